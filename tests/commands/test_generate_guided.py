"""``t2x generate --guide``: what is refused before anything is loaded, and what is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from t2x import registry
from t2x.cli import run
from t2x.generators import DiffusionGenerator, GuidedGenerator
from t2x.guidance.recipe import GuidanceRecipe
from t2x.media import load_picture, png_text
from t2x.testing import FakeReward, tiny_stable_diffusion

GUIDE = ("generate", "cat", "--guide", "bright=2")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(registry.REWARDS, "bright", "t2x.testing:FakeReward")


@pytest.fixture
def t2x(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: object) -> tuple[int, str, str]:
        code = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("generate", "cat", "--mode", "J"), "name rewards with --guide"),
        (("generate", "cat", "--strength", 0.5), "give one with --source"),
        (("generate", "cat", "--source", "none.png"), "there is no file 'none.png'"),
        (("generate", "cat", "--budget", 9), "--budget is about guidance"),
        (("generate", "cat", "--guide-option", "size=1"), "--guide-option is about guidance"),
        (("generate", "cat", "--strip"), "--strip is about guidance"),
        (("generate", "cat", "--reader", "m"), "--reader is about guidance"),
        ((*GUIDE, "--mode", "E", "--reader", "m"), "a reader is asked by the policy"),
        (("generate", "cat", "--guide", "brigh=1"), "did you mean 'bright'"),
        (("generate", "cat", "--guide", "bright=much"), "NAME=WEIGHT"),
        ((*GUIDE, "--mode", "K"), "allowed: E: gradients through the decoder"),
        ((*GUIDE, "--guide-option", "sise=1"), "did you mean 'size'"),
        ((*GUIDE, "--mode", "E", "--budget", 16, "--steps", 8), "leave --steps out"),
        ((*GUIDE, "--mode", "search", "--strip"), "leave --strip out"),
        ((*GUIDE, "--mode", "particles", "--budget", 9, "--guide-option", "count=2"), "one of"),
    ],
)
def test_what_means_nothing_is_one_line_before_anything_is_loaded(
    t2x: Any, monkeypatch: pytest.MonkeyPatch, arguments: tuple[Any, ...], words: str
) -> None:
    def load(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a model was loaded for nothing")

    monkeypatch.setattr("t2x.registry.load_generator", load)
    code, out, err = t2x(*arguments)
    assert code == 1 and not out and words in err and err.count("\n") == 1


@pytest.fixture
def guided(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the loader was asked for; it gives a tiny pipeline under that guidance."""
    asked: list[Any] = []

    def load(name: str, *, guidance: GuidanceRecipe, **options: Any) -> GuidedGenerator:
        asked.append(options)
        plain = DiffusionGenerator.from_pretrained(
            tiny_stable_diffusion(), num_inference_steps=4, guidance_scale=3.0, **options
        )
        return GuidedGenerator(plain, guidance)

    monkeypatch.setattr("t2x.registry.load_generator", load)
    return asked


def test_recipe_and_strip_are_written_beside_the_picture(t2x: Any, guided: list[Any]) -> None:
    """The rewritten text is drawn, the user's words are scored."""
    options = ("--budget", 10, "--guide-option", "size=2", "--seed", 7, "--strip", "--json")
    code, out, err = t2x(*GUIDE, "--rewriter", "t2x.testing:FakeRewriter", *options)
    assert code == 0, err
    (row,) = json.loads(out)

    asked = row["guidance"]
    assert (row["prompt"], row["text"][:5]) == ("cat", "cat, ")
    assert asked["config"]["rewards"] == {"bright": 2.0} and asked["config"]["size"] == 2.0
    assert (asked["mode"], asked["budget"]) == ("E", 10)
    assert asked["sampling"]["num_inference_steps"] == 5
    assert asked["last"]["fake-reward"] > asked["first"]["fake-reward"]
    drawn = FakeReward().score(["cat"], load_picture(row["file"]))
    assert asked["scores"] == {"fake-reward": pytest.approx(drawn.item(), abs=1e-5)}
    assert json.loads(png_text(row["file"])["guidance"]) == asked
    assert Path(row["strip"]).name == "0000-seed7-strip.png"
    assert load_picture(row["strip"]).shape[-1] > 900
    assert load_picture(row["file"]).shape == (1, 3, 64, 64)


def test_a_strip_without_a_mode_is_of_gradients(t2x: Any, guided: list[Any]) -> None:
    code, out, err = t2x(*GUIDE, "--strip", "--json")
    assert code == 0, err
    (row,) = json.loads(out)
    assert row["guidance"]["mode"] == "E" and Path(row["strip"]).is_file()


def test_a_mode_without_steps_says_what_it_tried(t2x: Any, guided: list[Any]) -> None:
    code, out, _ = t2x(*GUIDE, "--mode", "search", "--guide-option", "pictures=2", "--json")
    (row,) = json.loads(out)

    assert code == 0 and "strip" not in row
    assert len(row["guidance"]["notes"]["tried"]) == 2
    assert row["guidance"]["settings"]["pictures"] == 2
