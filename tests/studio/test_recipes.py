"""Recipes inside pictures: what is written is read, and draws the same bytes again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from t2x.cli import run
from t2x.errors import T2XError
from t2x.media import png_text
from t2x.studio import Studio
from t2x.studio.events import Drawn, Failed, Finished
from t2x.studio.recipes import Recipe, chunks, read_chunks
from t2x.studio.redrawing import draw_again, request_of
from t2x.studio.requests import BestOfRequest, CompareRequest, EditRequest, GuideRequest
from t2x.studio.uploads import read_dropped

PROMPT = "two kittens to the left of a crimson sofa"


@pytest.fixture(scope="module")
def studio() -> Iterator[Studio]:
    studio = Studio(generator="emoji-flow-turbo", rewards=())
    yield studio
    studio.close()


def again(studio: Studio, path: str | Path, source: str | Path | None = None) -> list[Drawn]:
    """Drop a picture and draw it again."""
    dropped = read_dropped(path)
    assert dropped.recipe is not None and dropped.tool == "t2x"
    picture = None if source is None else Image.open(source).convert("RGB")
    task = draw_again(dropped.recipe, picture=picture, expected=dropped.picture)
    events = list(studio.run(task, user="ada"))
    assert isinstance(events[-1], Finished), events[-1]
    return [event for event in events if isinstance(event, Drawn)]


def pixels(picture: Image.Image) -> bytes:
    return picture.convert("RGB").tobytes()


def test_what_is_written_is_read() -> None:
    recipe = Recipe(
        prompt='a "cat" \u2603\nand {braces}',
        text="a cat",
        negative="dogs",
        seed=2**63,
        batch=4,
        model="emoji-flow",
        revision="ab",
        sampling={"num_inference_steps": 4, "height": 64, "width": 32},
        rewrite={"rewriter": "rules", "seed": 1},
        three_way=[1.0, None],
        versions={"t2x": "1"},
    )
    written = chunks(recipe)
    assert read_chunks(written) == recipe and recipe.size == (64, 32)
    assert set(written) >= {"t2x", "prompt", "text", "seed"} and "guidance" not in written
    assert read_chunks({"prompt": "a", "text": "b", "seed": "3"}) == Recipe("a", "b", seed=3)
    assert read_chunks({"Software": "paint"}) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"t2x": "9"}, "upgrade t2x"),
        ({"seed": "many"}, "seed is no valid JSON"),
        ({"seed": '"1"'}, "seed"),
        ({"seed": str(2**70)}, "damaged"),
        ({"num": "100000"}, "damaged"),
        ({"sampling": "[" * 100_000}, "damaged"),
        ({"text": "x" * (1 << 21)}, "characters"),
        ({"text": " "}, "empty"),
    ],
)
def test_a_damaged_recipe_is_one_line(change: dict[str, str], words: str) -> None:
    given = chunks(Recipe("a", "b")) | change
    with pytest.raises(T2XError, match=words) as caught:
        read_chunks(given)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_generated_pictures_are_drawn_again(
    studio: Studio, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three in one batch, one of them after a rewrite; alone a last bit may differ."""
    options = ["--model", "emoji-flow-turbo", "--rewriter", "rules", "--steps", "3", "--json"]
    assert run(["generate", PROMPT, "-n", "3", "--seed", "7", *options]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["batch"] for row in rows] == [3, 3, 3] and rows[0]["rewrite"]["rewriter"]
    for row in rows:
        (drawn,) = again(studio, row["file"])
        assert pixels(drawn.picture) == pixels(Image.open(row["file"]))
        assert read_chunks(png_text(row["file"])) == Recipe.from_record(drawn.recipe)
    request = request_of(read_dropped(rows[1]["file"]).recipe)  # type: ignore[arg-type]
    assert isinstance(request, BestOfRequest) and request.sampling.steps == 3
    assert (request.prompt, request.text, request.seed) == (PROMPT, rows[1]["text"], 8)


def test_guided_pictures_are_drawn_again(
    studio: Studio, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--model", "emoji-flow-turbo", "--guide", "aesthetic=0.5", "--mode", "J", "--json"]
    assert run(["generate", "a cat", *options, "--guide-option", "size=0.2"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    request = request_of(read_dropped(row["file"]).recipe)  # type: ignore[arg-type]
    assert isinstance(request, GuideRequest)
    assert request.weights == {"aesthetic": 0.5} and request.options["size"] == 0.2
    (drawn,) = again(studio, row["file"])
    assert pixels(drawn.picture) == pixels(Image.open(row["file"]))


def test_edits_are_made_again_from_their_source(
    studio: Studio, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ["--model", "emoji-flow-turbo", "--json"]
    assert run(["generate", "a red cat", *model]) == 0
    source = json.loads(capsys.readouterr().out)[0]["file"]
    said = ["make the cat blue", "--source-prompt", "a red cat", "--region", "0,0,1,0.7"]
    assert run(["edit", source, *said, *model]) == 0
    after = json.loads(capsys.readouterr().out)[0]["after"]
    (drawn,) = again(studio, after, source)
    assert pixels(drawn.picture) == pixels(Image.open(after))
    recipe = read_dropped(after).recipe
    assert recipe is not None
    with pytest.raises(T2XError, match=r"give 0000-seed0\.png, too"):
        request_of(recipe)
    with pytest.raises(T2XError, match="pixels differ"):
        request_of(recipe, picture=Image.new("RGB", (64, 64)))
    assert isinstance(request_of(recipe, picture=Image.open(source)), EditRequest)


def test_the_sheet_of_a_demo_fills_the_form_and_is_drawn_again(
    studio: Studio, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--model", "emoji-flow-turbo", "--rewriter", "rules", "--reward", "aesthetic"]
    assert run(["demo", PROMPT, "-n", "2", "--seed", "3", *options]) == 0
    capsys.readouterr()
    drawn = again(studio, "out/compare.png")
    arms = json.loads(Path("out/result.json").read_text())["arms"]
    for arm, shown in arms.items():
        found = [d for d in drawn if d.arm == arm]
        digests = [hashlib.sha256(pixels(d.picture)).hexdigest() for d in found]
        assert digests == [picture["sha256"] for picture in shown["pictures"]]
    recipe = read_dropped("out/compare.png").recipe
    request = request_of(recipe)  # type: ignore[arg-type]
    assert isinstance(request, CompareRequest) and request.num == 2 and request.seed == 3
    assert request.text == arms["rewritten"]["prompt"]


def test_another_model_is_said(studio: Studio) -> None:
    task = draw_again(Recipe("a cat", "a cat", model="flux"))
    last = list(studio.run(task, user="ada"))[-1]
    assert isinstance(last, Failed) and "flux drew this, and emoji-flow-turbo" in last.message


def _picture(path: str, **text: Any) -> str:
    from PIL.PngImagePlugin import PngInfo

    info = PngInfo()
    for key, value in text.items():
        info.add_text(key, value if isinstance(value, str) else json.dumps(value))
    Image.new("RGB", (8, 8)).save(path, pnginfo=info)
    return path


A1111 = """a cat, (masterpiece:1.2), a Steps: of stone
on a wall
Negative prompt: blurry, dog
Steps: 20, Sampler: Euler a, CFG scale: 7.5, Seed: 1234, Size: 512x768, Model: "dream, v1"\
"""
GRAPH = {
    "3": {
        "class_type": "KSampler",
        "inputs": {
            "seed": 5, "steps": 20, "cfg": 8.0, "sampler_name": "euler", "model": ["4", 0],
            "positive": ["9", 0], "negative": ["7", 0], "latent_image": ["5", 0],
        },
    },
    "4": {"class_type": "CheckpointLoaderSimple", "inputs": {"ckpt_name": "x.safetensors"}},
    "6": {"class_type": "CLIPTextEncode", "inputs": {"text": ["10", 0], "clip": ["4", 1]}},
    "7": {"class_type": "CLIPTextEncode", "inputs": {"text": "watermark", "clip": ["4", 1]}},
    "9": {"class_type": "ConditioningZeroOut", "inputs": {"conditioning": ["6", 0]}},
    "10": {"class_type": "PrimitiveString", "inputs": {"value": "a fox"}},
}  # fmt: skip
FOOOCUS = {"prompt": "a ship", "negative_prompt": "", "seed": "77", "resolution": "(896, 1152)"}
INVOKE = {"positive_prompt": "a barn", "negative_prompt": "cow", "seed": 9, "cfg_scale": 6}


@pytest.mark.parametrize(
    ("text", "tool", "prompt", "negative", "seed"),
    [
        ({"parameters": A1111}, "A1111", "a cat, (masterpiece:1.2), a Steps: of stone\non a wall",
         "blurry, dog", 1234),
        ({"prompt": GRAPH, "workflow": {"nodes": []}}, "ComfyUI", "a fox", "watermark", 5),
        ({"parameters": FOOOCUS}, "Fooocus", "a ship", "", 77),
        ({"invokeai_metadata": INVOKE}, "InvokeAI", "a barn", "cow", 9),
        ({"sd-metadata": {"image": {"prompt": [{"prompt": "a hen"}], "seed": 4}}}, "InvokeAI",
         "a hen", "", 4),
    ],
)  # fmt: skip
def test_other_programs_give_their_prompt(
    text: dict[str, Any], tool: str, prompt: str, negative: str, seed: int
) -> None:
    dropped = read_dropped(_picture("other.png", **text))
    assert dropped.tool == tool and dropped.recipe is not None
    found = dropped.recipe
    assert (found.prompt, found.negative, found.seed) == (prompt, negative, seed)
    assert "another picture" in dropped.said


def test_what_could_not_be_taken_is_said() -> None:
    dropped = read_dropped(_picture("a.png", parameters=A1111))
    assert dropped.recipe is not None and dropped.recipe.size == (768, 512)
    assert dropped.recipe.sampling["guidance_scale"] == 7.5
    assert "not taken: Sampler, Model" in dropped.said
    looped = {"1": {"class_type": "KSampler", "inputs": {"positive": ["1", 0]}}}
    dropped = read_dropped(_picture("b.png", prompt=looped))
    assert dropped.recipe is None and "no prompt could be read" in dropped.said
    dropped = read_dropped(_picture("c.png", workflow={"nodes": []}))
    assert "workflow and not the graph" in dropped.said
    dropped = read_dropped(_picture("d.png", Title="holiday"))
    assert (dropped.recipe, dropped.tool) == (None, "") and "no recipe" in dropped.said


def test_a_comment_of_a_jpeg_is_read() -> None:
    exif = Image.Exif()
    exif.get_ifd(0x8769)[0x9286] = b"UNICODE\0" + A1111.encode("utf-16-be")
    Image.new("RGB", (8, 8)).save("a.jpg", exif=exif)
    dropped = read_dropped("a.jpg")
    assert dropped.tool == "A1111" and dropped.recipe is not None and dropped.recipe.seed == 1234
