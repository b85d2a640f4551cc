"""``t2x edit`` and ``t2x generate --three-way`` on tiny models of the real classes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from PIL import Image

from t2x import registry
from t2x.cli import run
from t2x.generators.diffusion import DiffusionGenerator
from t2x.generators.sources import source_digest
from t2x.media import load_picture, save_png
from t2x.studio.recipes import read_chunks
from t2x.studio.redrawing import request_of
from t2x.testing import FakeReward, tiny_stable_diffusion

loaded: list[dict[str, Any]] = []


def make(guidance: Any = None, **sampling: Any) -> DiffusionGenerator:
    loaded.append(sampling)
    assert guidance is None
    given = {"num_inference_steps": 3, **sampling}
    return DiffusionGenerator(tiny_stable_diffusion(), model_id="tiny", sampling=given)


@pytest.fixture(autouse=True)
def workplace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loaded.clear()
    module = ModuleType("edit_fakes")
    module.make, module.bright = make, FakeReward  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "edit_fakes", module)
    monkeypatch.setitem(registry.REWARDS, "bright", "edit_fakes:bright")
    monkeypatch.chdir(tmp_path)
    save_png(torch.rand(3, 32, 32), "cat.png")


@pytest.fixture
def t2x(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: object) -> tuple[int, str, str]:
        code = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


MODEL = ("--model", "edit_fakes:make", "--json")
SAID = ("make the cat blue", "--source-prompt", "a red cat and a dog")


def test_saves_before_and_after_with_how_it_came_about(t2x):
    code, out, _ = t2x("edit", "cat.png", *SAID, *MODEL, "-n", 2, "--seed", 5, "--out", "o")
    rows = json.loads(out)
    assert code == 0 and [row["seed"] for row in rows] == [5, 6]
    assert torch.equal(load_picture(rows[0]["before"]), load_picture("cat.png"))
    after = [load_picture(row["after"]) for row in rows]
    assert after[0].shape == (1, 3, 32, 32) and not torch.equal(*after)
    text = Image.open(rows[1]["after"]).text  # type: ignore[attr-defined]
    recipe = read_chunks(text)
    assert recipe is not None and recipe.prompt == "a blue cat and a dog"
    assert recipe.edit["instruction"] == SAID[0] and recipe.edit["method"] == "flowedit"
    assert (recipe.seed, recipe.model, recipe.batch) == (6, "tiny", 2)
    assert recipe.source == {"name": "cat.png", "digest": source_digest(load_picture("cat.png"))}
    again = json.loads(t2x("edit", "cat.png", *SAID, *MODEL, "--seed", 5, "--out", "o")[1])
    assert len(list(Path("o").iterdir())) == 6
    assert (load_picture(again[0]["after"]) - after[0]).abs().max() <= 1.1 / 255


def test_chooses_a_method_from_what_is_known(t2x):
    rows = json.loads(t2x("edit", "cat.png", "add a dog", *MODEL)[1])
    assert rows[0]["method"] == "sdedit" and rows[0]["prompt"] == "a dog"
    guided = ("--target-prompt", "a dog", "--guide", "bright=2", "--region", "0,0,0.5,1")
    code, out, err = t2x("edit", "cat.png", *guided, "--tether", 5, *MODEL)
    assert code == 0, err
    rows = json.loads(out)
    assert rows[0]["method"] == "rewardflow"
    assert rows[0]["tether"] == 5 and rows[0]["guide"] == "bright=2"


def test_options_of_guidance_act_and_are_written_down(t2x):
    guided = ("make the cat blue", "--source-prompt", "a red cat", "--guide", "bright=2")
    guided = (*guided, "--steps", "6", "--strength", "1")
    drawn = {}
    for given in (
        (),
        ("--mode", "J"),
        ("--guide-option", "size=3", "--guide-option", "free_last=0"),
    ):
        code, out, err = t2x("edit", "cat.png", *guided, *given, *MODEL)
        assert code == 0, err
        (row,) = json.loads(out)
        drawn[given] = load_picture(row["after"])
    plain, through, further = drawn.values()
    assert not torch.equal(plain, through) and not torch.equal(plain, further)
    recipe = read_chunks(Image.open(row["after"]).text)  # type: ignore[attr-defined]
    assert recipe is not None and recipe.edit["options"] == {"size": 3.0, "free_last": 0}
    request = request_of(recipe, picture=Image.open("cat.png"))
    assert (request.mode, request.options) == ("E", {"size": 3.0, "free_last": 0})


def test_resizes_and_passes_sampling_on(t2x):
    given = ("--size", "16x24", "--steps", 2, "--guidance", 2.5)
    (row,) = json.loads(t2x("edit", "cat.png", *SAID, *MODEL, *given)[1])
    assert loaded == [{"num_inference_steps": 2, "guidance_scale": 2.5}]
    assert load_picture(row["after"]).shape == load_picture(row["before"]).shape == (1, 3, 16, 24)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("none.png", *SAID), "none.png"),
        (("text.txt", *SAID), "text.txt"),
        (("cat.png",), "say what to change"),
        (("cat.png", "remove the cat"), "source prompt"),
        (("cat.png", "make the bus blue", "--source-prompt", "a cat"), "tells of no"),
        (("cat.png", *SAID, "--method", "ddim"), "allowed: flowedit"),
        (("cat.png", "add a dog", "--method", "flowedit"), "source prompt"),
        (("cat.png", *SAID, "--method", "rewardflow"), "needs rewards"),
        (("cat.png", *SAID, "--guide", "bright", "--method", "sdedit"), "rewardflow"),
        (("cat.png", *SAID, "--guide", "nothing"), "nothing"),
        (("cat.png", *SAID, "--guide", "bright", "--mode", "search"), "mode E or J"),
        (("cat.png", *SAID, "--guide", "bright", "--guide-option", "sise=1"), "did you mean"),
        (("cat.png", *SAID, "--guide-option", "size=1"), "about rewards"),
        (
            ("cat.png", *SAID, "--method", "sdedit", "--focus", "0.2"),
            "focus is for the method flowedit",
        ),
        (
            ("cat.png", *SAID, "--method", "sdedit", "--source-scale", "2"),
            "source-scale is for the method flowedit",
        ),
        (("cat.png", *SAID, "--region", "1,0,0,1"), "LEFT,TOP"),
        (("cat.png", *SAID, "--size", "9"), "HEIGHTxWIDTH"),
        (("cat.png", *SAID, "--strength", "2"), "strength"),
    ],
)
def test_errors_come_in_one_line_before_a_model_is_loaded(t2x, arguments, said):
    Path("text.txt").write_text("no picture")
    code, out, err = t2x("edit", *arguments, *MODEL)
    assert code == 1 and not out and said in err and err.count("\n") == 1
    assert not loaded and not Path("out").exists()


def test_three_way_stands_between_the_users_words_and_the_rewrite(t2x):
    given = ("a red cat", *MODEL, "--rewriter", "t2x.testing:FakeRewriter", "--guidance", 4)
    drawn = {}
    for weights in (None, "0,4", "2,2", "4,0"):
        asked = () if weights is None else ("--three-way", weights)
        code, out, err = t2x("generate", *given, *asked, "--size", "32x32")
        assert code == 0, err
        (row,) = json.loads(out)
        drawn[weights] = load_picture(row["file"])
    assert row["three_way"] == [4.0, 0.0] and "three_way" in Image.open(row["file"]).text
    alone = json.loads(
        t2x("generate", "a red cat", *given[1:4], "--guidance", 4, "--size", "32x32")[1]
    )
    assert torch.equal(drawn["0,4"], drawn[None])
    assert (drawn["4,0"] - load_picture(alone[0]["file"])).abs().max() <= 1.1 / 255
    assert not torch.equal(drawn["2,2"], drawn[None])


def test_three_way_says_what_it_needs(t2x):
    code, _, err = t2x("generate", "a cat", *MODEL, "--three-way", "2,2")
    assert code == 1 and "--rewriter" in err
    code, _, err = t2x("generate", "a cat", *MODEL, "--three-way", "x")
    assert code == 1 and "2,3" in err and not loaded
