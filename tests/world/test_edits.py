"""Edits of the emoji world: scenes whose change is known, and methods at equal cost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from t2x.errors import T2XError, UnknownNameError
from t2x.generators.diffusion import DiffusionGenerator
from t2x.testing.fakes import FakeReward
from t2x.testing.pipelines import tiny_stable_diffusion
from t2x.types import Media
from t2x.world.edited import EditSetup, _arm, _EditOrder, evaluate_edits
from t2x.world.edits import EDIT_KINDS, background, sample_edit
from t2x.world.judge import Detection, Judge, Verdict, detect
from t2x.world.render import Placed, render
from t2x.world.scene import Scene

ARMS = ("sdedit", "flowedit", "rewardflow", "rewardflow without tether")
N = 4


def told(prompt: str) -> list[tuple[str, str]]:
    """(slot, object) of each object of a layout caption."""
    parts = prompt.rstrip(".").split(". ")[1:]
    return [tuple(part.split(": ", 1)) for part in parts]  # type: ignore[misc]


@pytest.mark.parametrize("number", range(24))
def test_an_edit_changes_what_it_says_and_nothing_else(number: int) -> None:
    edit = sample_edit(number)
    assert edit == sample_edit(number) and edit.kind == EDIT_KINDS[number % 4]
    before, after = set(told(edit.source_prompt)), set(told(edit.target_prompt))
    gone, new = before - after, after - before
    wanted = {"colour": (1, 1), "swap": (1, 1), "add": (0, 1), "remove": (1, 0)}[edit.kind]
    assert (len(gone), len(new)) == wanted
    slots = {slot for slot, _ in gone | new}
    assert slots == {edit.changes.slot}
    assert edit.changes.cls in edit.instruction
    counts = edit.target.num_objects - edit.source.num_objects
    assert counts == {"add": 1, "remove": -1}.get(edit.kind, 0)


def test_background_leaves_out_what_changes() -> None:
    edit = next(e for e in map(sample_edit, range(40)) if e.kind == "colour")
    other = Placed("cat" if edit.changes.cls != "cat" else "dog", None, 48, 48, 20, "x")
    changing = Placed(edit.changes.cls, edit.changes.color, 16, 16, 20, "y")
    seen = detect(render([changing, other], (0.97, 0.97, 0.97)))
    mask = background(edit, seen)
    assert mask.shape == (64, 64) and not mask[16, 16] and mask[48, 48] and mask[0, 63]
    assert not background(edit, []).any()
    added = next(e for e in map(sample_edit, range(40)) if e.kind == "add")
    mask = background(added, [])
    assert not mask[added.changes.y, added.changes.x] and mask.mean() > 0.3


def test_renders_of_targets_satisfy_the_judge() -> None:
    right = []
    for number in range(8):
        edit = sample_edit(number)
        slots = {"center": (32, 32, 40), "left": (16, 32, 26), "right": (48, 32, 26)}
        slots |= {"top": (32, 16, 26), "bottom": (32, 48, 26)}
        for v, y in (("top", 16), ("bottom", 48)):
            slots |= {f"{v} {h}": (x, y, 25) for h, x in (("left", 16), ("right", 48))}
        groups = {g.cls: g for g in edit.target.groups}
        placed = []
        for slot, words in told(edit.target_prompt):
            cls = max((c for c in groups if words.endswith(c)), key=len)
            placed.append(Placed(cls, groups[cls].color, *slots[slot], slot))
        picture = render(placed, (0.97, 0.97, 0.97))
        right.append(Judge().check(edit.target, picture).correct)
    assert np.mean(right) >= 0.85


def setup(**changes: Any) -> EditSetup:
    sampling = {"num_inference_steps": 2, "guidance_scale": 3.0, "height": 64, "width": 64}
    generator = DiffusionGenerator(
        tiny_stable_diffusion(), model_id="tiny", revision="r", sampling=sampling
    )
    given = {"rewards": [FakeReward()], "held_out": _Green(), "n": N, "budget": 4.0, "chunk": 4}
    return EditSetup(**{"arms": ARMS, "generator": generator, **given, **changes})


class _Green(FakeReward):
    name = "green"


@pytest.fixture
def lenient_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sees every object of a scene, all at one place: a tiny random model draws none that the
    judge itself would accept."""

    def judge(scenes: Sequence[Scene], media: Media) -> list[Verdict]:
        return [
            Verdict(True, tuple(Detection(g.cls, g.color, 20, 20, 20, 1.0) for g in scene.groups))
            for scene in scenes
        ]

    monkeypatch.setattr("t2x.world.judge.judge_pictures", judge)


@pytest.mark.usefixtures("lenient_judge")
def test_methods_edit_the_same_sources_at_equal_cost() -> None:
    found = evaluate_edits(setup())
    plain = found["plain_picture_flops"]
    for name in ARMS:
        arm = found["arms"][name]
        assert arm["size"] >= 2 and 0.5 < arm["flops_of_budget"] <= 1.02
        assert arm["flops"] <= 1.02 * 4.0 * plain
        assert 0 < arm["psnr"] < 60 and 0 <= arm["overall"] <= 1 and arm["seconds"] > 0
        assert set(arm["kinds"]) == set(EDIT_KINDS)
    assert found["arms"]["sdedit"]["reward_backwards"] == 0
    assert found["arms"]["rewardflow"]["reward_backwards"] > 0
    gap = found["differences"]["rewardflow without tether - rewardflow"]["psnr"]
    assert gap["mean"] != 0  # whether it helps, an untrained decoder can't tell
    assert "rewardflow - sdedit" in found["differences"]
    assert json.loads(json.dumps(found))["n"] == N


def test_only_with_policy_the_instruction_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the arm "rewardflow" is told in a store as it was before there was another."""
    given: list[Any] = []

    def edit(generator: Any, sources: torch.Tensor, **options: Any) -> torch.Tensor:
        given.append(options["instructions"])
        return sources

    monkeypatch.setattr("t2x.world.edited.edit", edit)
    plain, told = _arm("rewardflow"), _arm("rewardflow with policy")
    orders = [_EditOrder("", "", 0, sample_edit(number), torch.empty(0)) for number in range(4)]
    bench: Any = SimpleNamespace(sampling=lambda *_, **__: None, rewards=[], weights={"clip": 1.0})
    for arm in (plain, told):
        arm.run(bench, 3, orders)
    assert given == [None, [sample_edit(number).instruction for number in range(4)]]
    assert plain.config == told.config and repr(plain) != repr(told)
    text = "_EditArm(name='rewardflow', config=EditConfig(method='rewardflow', strength=0.7, "
    assert repr(plain).startswith(text) and "policy" not in repr(plain)


def test_a_generator_that_draws_no_source_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Verdict(False, ())
    monkeypatch.setattr("t2x.world.judge.judge_pictures", lambda scenes, _: [wrong] * len(scenes))
    with pytest.raises(T2XError, match="right sources"):
        evaluate_edits(setup(arms=("sdedit",), n=1))
    with pytest.raises(UnknownNameError, match="allowed: sdedit"):
        evaluate_edits(setup(arms=("magic",)))
    for part in ("adaptive weights", "policy"):  # edits have neither: it would be the whole again
        with pytest.raises(UnknownNameError, match="allowed: rewardflow without tether"):
            evaluate_edits(setup(arms=(f"rewardflow without {part}",), n=1))
