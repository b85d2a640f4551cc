"""The judge against eyes: generated pictures, labelled by what is seen in them before it spoke.

``sheet.png`` holds the pictures, 64x64 each, in rows of 20; ``labels.json`` has for each its
prompt, the scene that this asks for, and what was seen: objects as [class, colour or null, slot].
The README beside them says who labelled them and how.
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


@pytest.fixture(scope="module")
def labels() -> list[dict[str, Any]]:
    return json.loads((FOLDER / "labels.json").read_text())["pictures"]


@pytest.fixture(scope="module")
def pictures(labels: list[dict[str, Any]]) -> list[NDArray[np.uint8]]:
    sheet = np.asarray(Image.open(FOLDER / "sheet.png").convert("RGB"))
    cells = [divmod(i, COLUMNS) for i in range(len(labels))]
    size = IMAGE_SIZE
    return [sheet[r * size : (r + 1) * size, c * size : (c + 1) * size] for r, c in cells]


def by_eye(label: dict[str, Any]) -> bool:
    """Whether what was seen is what the prompt asks for."""
    seen = [
        Detection(cls, color, *SLOT_CENTERS[slot], 26, 1.0) for cls, color, slot in label["seen"]
    ]
    return Judge().verdict(Scene.from_dict(label["scene"]), seen).correct


def test_agrees_with_eyes(labels: list[dict[str, Any]], pictures: list[NDArray[np.uint8]]) -> None:
    scenes = [Scene.from_dict(label["scene"]) for label in labels]
    eyes = np.array([by_eye(label) for label in labels])
    judged = np.array([v.correct for v in Judge().check_batch(scenes, pictures)])
    assert len(labels) >= 200
    # Both answers are common, so that agreement means something.
    assert 0.2 < eyes.mean() < 0.8
    agreement = float((eyes == judged).mean())
    chance = float(eyes.mean() * judged.mean() + (1 - eyes.mean()) * (1 - judged.mean()))
    kappa = (agreement - chance) / (1 - chance)
    assert agreement >= 0.86  # measured: 0.883
    assert kappa >= 0.72  # measured: 0.763
    # No lean to one side: the judge passes about as many pictures as eyes do.
    assert abs(float(judged.mean() - eyes.mean())) < 0.06
