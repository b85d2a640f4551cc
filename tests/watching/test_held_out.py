"""Held-out measurements: as users would get it, beside their own words; sample pictures."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image

from t2x.errors import T2XError
from t2x.rewriters.templates import SMALL, Template
from t2x.testing import FakeGenerator, FakeReward
from t2x.types import Check, Rewrite
from t2x.watching.building import build_watch
from t2x.watching.config import HeldOutSection, SampleSection, WatchConfig
from t2x.watching.held_out import HeldOut, undisturbed
from t2x.watching.samples import cut_samples, write_samples
from t2x.watching.steps import read_steps

PROMPTS = ["two red dogs", "a cat", "a bus"]
TAGGED = Template(require_answer=True)


def rewrites() -> list[Rewrite]:
    """One accepted, one whose check failed, one without an answer."""
    reverted = Rewrite(
        "a cat", "a cat", status="reverted", checks=(Check("x", False),),
        raw="<think></think><answer>a dog in the park</answer>",
    )  # fmt: skip
    failed = Rewrite("a bus", "a bus", status="failed", raw="<think>")
    return [Rewrite("two red dogs", "two dogs, red"), reverted, failed]


def brightness(text: str, seed: int) -> float:
    return float(FakeGenerator().generate([text], seeds=[seed])[0, 0].mean())


def test_measured_as_users_get_it_beside_their_own_words() -> None:
    """The second and third prompt are drawn in the user's words: they gain nothing."""
    held_out = HeldOut(PROMPTS, FakeGenerator(), [FakeReward()], pictures=2, seed=5)
    found = held_out.measure(rewrites(), TAGGED).metrics
    own = [(brightness(p, 5) + brightness(p, 6)) / 2 for p in PROMPTS]
    new = [(brightness("two dogs, red", 5) + brightness("two dogs, red", 6)) / 2, *own[1:]]
    gain = new[0] - own[0]
    assert found["reward"] == found["fake-reward"] == pytest.approx(sum(new) / 3)
    assert found["gain"] == pytest.approx(gain / 3)
    # Of gains (g, 0, 0): deviation sqrt(g^2 (1 - 1/3) / 2), over sqrt(3).
    assert found["gain_error"] == pytest.approx(abs(gain) / 3)
    third = pytest.approx(1 / 3)
    assert (found["violations"], found["failed"], found["changed"]) == (third, third, third)
    assert found["missing"] == 0


def test_pictures_have_the_negative_prompt_of_the_rollouts(tmp_path: Path) -> None:
    """Those of the user's own words too, behind what a rewrite rules out; if it can be taken."""
    drawn: list[tuple[str, str]] = []

    class Noting(FakeGenerator):
        def generate(self, prompts: Any, *, negative: Any = None, **options: Any) -> Any:
            drawn.extend(zip(prompts, negative or [""] * len(prompts), strict=True))
            return super().generate(prompts, negative=negative, **options)

    for takes in (True, False):
        drawn.clear()
        generator = Noting(size=(8, 8))
        generator.supports_negative = takes  # type: ignore[attr-defined]
        watch = build_watch(
            WatchConfig(held_out=HeldOutSection({"t2x.testing:FakeReward": 1.0}), report=0),
            tmp_path,
            None,  # type: ignore[arg-type]
            validation=["a cat"],
            generator=generator,
            negative="blurry",
        )
        assert watch.held_out is not None
        watch.held_out.measure([Rewrite("a cat", "one cat", "dogs" if takes else "")], TAGGED)
        with_it = [("a cat", "blurry"), ("one cat", "dogs, blurry")]
        assert drawn == (with_it if takes else [("a cat", ""), ("one cat", "")])


def test_drift_is_that_of_what_the_policy_proposed() -> None:
    """Of the reverted one the proposal counts, not the user's words; one without answer is out."""
    held_out = HeldOut(PROMPTS, FakeGenerator(), [FakeReward()])
    found = held_out.measure(rewrites(), TAGGED).metrics
    assert found["similarity"] == pytest.approx((1 + 0) / 2)  # "dogs" is there, "cat" is not
    assert found["words"] == (3 + 5) / 2
    held_out = HeldOut(PROMPTS, FakeGenerator(), [FakeReward()], similarity=lambda a, b: 0.25)
    assert held_out.measure(rewrites(), TAGGED).metrics["similarity"] == 0.25


def test_a_score_that_is_missing_is_left_out_and_counted() -> None:
    held_out = HeldOut(PROMPTS, FakeGenerator(), [FakeReward(fails_on="dogs")])
    found = held_out.measure(rewrites(), TAGGED).metrics
    assert found["missing"] == pytest.approx(1 / 3)
    assert found["gain"] == 0.0
    blind = HeldOut(["a dog"], FakeGenerator(), [FakeReward(fails_on="dog")])
    found = blind.measure([Rewrite("a dog", "a dog")], SMALL).metrics
    assert math.isnan(found["reward"]) and found["missing"] == 1


def test_own_words_are_drawn_once() -> None:
    class Counting(FakeGenerator):
        drawn = 0

        def generate(self, prompts, **options):  # type: ignore[no-untyped-def]
            self.drawn += len(prompts)
            return super().generate(prompts, **options)

    generator = Counting()
    held_out = HeldOut(PROMPTS, generator, [FakeReward()])
    for _ in range(3):
        held_out.measure(rewrites(), TAGGED)
    assert generator.drawn == 3 + 3 * 3


def test_mode_and_random_state_come_back() -> None:
    model = torch.nn.Dropout()
    state = torch.get_rng_state()
    with undisturbed(model.train()):
        model.eval()
        torch.rand(3)
    assert model.training and torch.equal(torch.get_rng_state(), state)
    with pytest.raises(ZeroDivisionError), undisturbed(model):
        model.eval()
        raise ZeroDivisionError
    assert model.training


def test_samples_are_kept_and_cut(tmp_path: Path) -> None:
    held_out = HeldOut(PROMPTS, FakeGenerator(size=(8, 8)), [FakeReward()], pictures=2)
    measured = held_out.measure(rewrites(), TAGGED)
    for step in (0, 100):
        write_samples(tmp_path, step, measured, prompts=2, pictures=1)
    lines = read_steps(tmp_path / "samples.jsonl")
    assert [s["prompt"] for s in lines[1]["samples"]] == PROMPTS[:2]
    with Image.open(tmp_path / "samples" / "step-000100" / "0-0.png") as picture:
        assert picture.size == (8, 8) and picture.info["prompt"] == "two dogs, red"
    with Image.open(tmp_path / "samples" / "own-words" / "0-0.png") as picture:
        assert picture.info["prompt"] == "two red dogs"
    with Image.open(tmp_path / "samples" / "step-000100.png") as sheet:
        assert sheet.width > 2 * 256
    assert not (tmp_path / "samples" / "step-000100" / "2-0.png").exists()
    cut_samples(tmp_path, 50)
    assert sorted(p.name for p in (tmp_path / "samples").iterdir()) == [
        "own-words",
        "step-000000",
        "step-000000.png",
    ]
    assert [line["step"] for line in read_steps(tmp_path / "samples.jsonl")] == [0]


def test_sections_say_what_does_not_fit() -> None:
    section = HeldOutSection({"align": 1.0}, prompts=4, every=20)
    WatchConfig(held_out=section, samples=SampleSection(prompts=4, every=40))
    for options, said in (
        ({"samples": SampleSection()}, "need watch.held_out"),
        ({"held_out": section, "samples": SampleSection(every=30)}, "multiple of held_out.every"),
        ({"held_out": section, "samples": SampleSection(prompts=5)}, "give fewer"),
        (
            {"held_out": section, "samples": SampleSection(prompts=1, pictures=2)},
            "pictures; give fewer",
        ),
        ({"report": -1}, "report is -1"),
    ):
        with pytest.raises(T2XError, match=said):
            WatchConfig(**options)  # type: ignore[arg-type]
    with pytest.raises(T2XError, match="rewards is empty"):
        HeldOutSection({})
    with pytest.raises(T2XError, match="every is 0"):
        HeldOutSection({"align": 1.0}, every=0)


def test_the_generator_of_the_rollouts_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a second one in memory; unless it draws in other processes, where it is only named."""
    drawing, loaded = FakeGenerator(), FakeGenerator()
    named: list[tuple[str, dict[str, str]]] = []

    def load(name: str, **options: str) -> FakeGenerator:
        named.append((name, options))
        return loaded

    monkeypatch.setattr("t2x.registry.load_generator", load)
    section = HeldOutSection({"t2x.testing:FakeReward": 1.0})
    for drawer, expected in ((drawing, drawing), ("emoji-flow", loaded)):
        scorer = SimpleNamespace(measurer=SimpleNamespace(drawer=SimpleNamespace(generator=drawer)))
        watch = build_watch(
            WatchConfig(held_out=section, report=0),
            tmp_path,
            None,  # type: ignore[arg-type]
            validation=["a cat"],
            generator="emoji-flow",
            generator_options={"dtype": "bfloat16"},
            scorer=scorer,  # type: ignore[arg-type]
        )
        assert watch.held_out is not None and watch.held_out.generator is expected
    assert named == [("emoji-flow", {"dtype": "bfloat16"})]


def test_building_refuses_what_cannot_show_hacking(tmp_path: Path) -> None:
    config = WatchConfig(held_out=HeldOutSection({"vqa": 1.0}), report=0)
    build = dict(validation=["a cat"], generator=FakeGenerator())
    with pytest.raises(T2XError, match="all of them are trained on"):
        build_watch(config, tmp_path, None, training_rewards=["vqa"], **build)  # type: ignore[arg-type]
    with pytest.raises(T2XError, match="no prompts: give data"):
        build_watch(config, tmp_path, None, generator=FakeGenerator())  # type: ignore[arg-type]
    with pytest.raises(T2XError, match="no generator"):
        build_watch(config, tmp_path, None, validation=["a cat"])  # type: ignore[arg-type]
