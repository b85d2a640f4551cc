"""The evaluation of asking, on a generator that draws the truth of what it is told."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from t2x.cli import run
from t2x.errors import T2XError
from t2x.store import Store
from t2x.world import asked
from t2x.world.asked import AskingSetup, evaluate_asking, vague_prompt
from t2x.world.asked_plot import draw_asking
from t2x.world.content import _HEAD, _layout_objects
from t2x.world.render import SLOT_CENTERS, Placed, render
from t2x.world.scene import Group, Scene


class Renderer:
    """Draws layout captions with the sprites themselves."""

    model_id, modality = "emoji-flow-turbo", "image"
    drawn = 0

    def generate(self, prompts: Any, *, negative: Any = None, seeds: Any, **_: Any) -> torch.Tensor:
        self.drawn += len(prompts)
        rows = [torch.from_numpy(self._one(text)).permute(2, 0, 1) / 255 for text in prompts]
        return torch.stack(rows)

    def _one(self, text: str) -> Any:
        assert _HEAD.match(text)
        objects = _layout_objects(text) or []
        placed = [
            Placed(cls, color, *SLOT_CENTERS[slot], size=40 if slot == "center" else 26, slot=slot)
            for (cls, color), slot in objects
        ]
        return render(placed, (0.97, 0.97, 0.97))


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    patch = pytest.MonkeyPatch()
    patch.setattr(asked, "measured_influences", lambda *_, **__: {"kind": 1.0})
    generator, store = Renderer(), Store(tmp_path_factory.mktemp("store"))
    setup = AskingSetup(n=30, arms=("gain", "nothing"), questions=6, noise=0.0, generator=generator)
    found = evaluate_asking(setup, store=store)
    before = generator.drawn
    assert found["pictures"] == before > 0
    assert evaluate_asking(setup, store=store) == found and generator.drawn == before
    patch.undo()
    return found


def test_asking_finds_the_scene_and_not_asking_does_not(result: dict[str, Any]) -> None:
    gain, nothing = result["arms"]["gain"], result["arms"]["nothing"]
    assert result["complete"]["overall"] > 0.95
    assert gain["overall"] > 0.7 and nothing["overall"] < 0.3
    assert gain["score"][0] == nothing["score"][0] and len(gain["score"]) == 7
    assert sum(gain["gain"]) == pytest.approx(gain["overall"] - gain["score"][0])
    assert set(nothing["score"]) == {nothing["overall"]} and nothing["questions"] == 0
    assert result["differences"]["gain - nothing"]["holds"] == "true"


def test_the_plot_is_drawn(result: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw_asking(result, tmp_path / "plot.svg")
    assert "no question" in (tmp_path / "plot.svg").read_text("utf-8")


def test_vague_prompts_leave_something_open() -> None:
    rng = random.Random(0)
    texts = {vague_prompt(Scene((Group("cat"),)), rng).text for _ in range(20)}
    assert texts == {"a pet", "an animal"}


@pytest.mark.parametrize(
    "options",
    [{"arms": ()}, {"arms": ("luck",)}, {"n": 0}, {"noise": 2.0}, {"split": "x"}, {"questions": 0}],
)
def test_what_can_not_be_run_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(T2XError):
        AskingSetup(**options).check()


def test_the_command_refuses_before_it_loads(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["eval", "ask", "--arms", "luck"]) == 1
    assert "unknown arm 'luck'" in capsys.readouterr().err
