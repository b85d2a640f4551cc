"""The judge against eyes: generated pictures, labelled by what is seen in them before it spoke.

Each set has ``sheet.png``, the pictures, 64x64 each, in rows of 20, and ``labels.json``: for each
its prompt, the scene that this asks for, and what was seen, objects as [class, colour or null,
slot]. The README beside them says who labelled them and how.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from t2x.world.judge import Detection, Judge
from t2x.world.render import IMAGE_SIZE, SLOT_CENTERS
from t2x.world.scene import Scene

FOLDER = Path(__file__).parents[1] / "fixtures" / "judge_labels"
COLUMNS = 20
Labels = list[dict[str, Any]]


def read(name: str) -> tuple[Labels, NDArray[np.bool_]]:
    """The labels of a set, and the judge's verdicts on its pictures."""
    labels: Labels = json.loads((FOLDER / name / "labels.json").read_text())["pictures"]
    sheet = np.asarray(Image.open(FOLDER / name / "sheet.png").convert("RGB"))
    cells = [divmod(i, COLUMNS) for i in range(len(labels))]
    size = IMAGE_SIZE
    pictures = [sheet[r * size : (r + 1) * size, c * size : (c + 1) * size] for r, c in cells]
    scenes = [Scene.from_dict(label["scene"]) for label in labels]
    return labels, np.array([v.correct for v in Judge().check_batch(scenes, pictures)])


def by_eye(labels: Labels, key: str = "seen") -> NDArray[np.bool_]:
    """Whether what was seen is what each prompt asks for."""
    return np.array([_is_satisfied(Scene.from_dict(x["scene"]), x[key]) for x in labels])


def _is_satisfied(scene: Scene, objects: list[tuple[str, str | None, str]]) -> bool:
    seen = [Detection(cls, color, *SLOT_CENTERS[slot], 26, 1.0) for cls, color, slot in objects]
    return Judge().verdict(scene, seen).correct


def agreement(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> tuple[float, float]:
    """Share of equal answers, and Cohen's kappa."""
    share = float((a == b).mean())
    chance = float(a.mean() * b.mean() + (1 - a.mean()) * (1 - b.mean()))
    return share, (share - chance) / (1 - chance)


@pytest.mark.parametrize(
    ("name", "least", "least_kappa"),
    [("trained", 0.92, 0.82), ("early", 0.86, 0.72)],  # measured: 0.942, 0.864; 0.883, 0.763
)
def test_agrees_with_eyes(name: str, least: float, least_kappa: float) -> None:
    labels, judged = read(name)
    eyes = by_eye(labels)
    assert len(labels) >= 200
    # Both answers are common, so that agreement means something.
    assert 0.2 < eyes.mean() < 0.8
    share, kappa = agreement(eyes, judged)
    assert share >= least
    assert kappa >= least_kappa
    # No lean to one side: the judge passes about as many pictures as eyes do.
    assert abs(float(judged.mean() - eyes.mean())) < 0.06


def test_agrees_with_a_second_pair_of_eyes() -> None:
    labels, judged = read("trained")
    first, second = by_eye(labels), by_eye(labels, "seen_again")
    assert agreement(first, second)[0] >= 0.95
    assert agreement(second, judged)[0] >= 0.92
