"""``t2x generate`` and the demo say what became of a prompt's syntax."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from t2x.cli import run
from t2x.evaluation.demo import run_demo
from t2x.generators import DiffusionGenerator
from t2x.media import png_text
from t2x.testing import FakeReward, FakeRewriter, tiny_stable_diffusion

pytestmark = pytest.mark.extra("weights")

PROMPT = "a (red:1.5) cat <lora:none:1>"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny-flow")
    tiny_stable_diffusion().save_pretrained(path)
    settings = {"num_inference_steps": 2, "guidance_scale": 3.0, "height": 32, "width": 32}
    (path / "t2x.json").write_text(json.dumps(settings))
    return path


def test_json_and_pictures_hold_what_was_done(model: Path, tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "loras"
    folder.mkdir()
    given = ["--model", str(model), "--out", str(tmp_path), "--json", "--lora-folder", str(folder)]
    assert run(["generate", PROMPT, "a cat", *given]) == 0
    out, err = capsys.readouterr()
    rows = json.loads(out)
    assert rows[0]["text"] == PROMPT and "syntax" not in rows[1]
    assert rows[0]["syntax"]["text"] == "a red cat"
    became = {note["syntax"]: note["became"] for note in rows[0]["syntax"]["notes"]}
    assert became == {"<lora:none:1>": "removed", "red: 1.5": "applied"}
    assert json.loads(png_text(rows[0]["file"])["syntax"]) == rows[0]["syntax"]
    assert "syntax" not in png_text(rows[1]["file"]) and "'<lora:none:1>' removed" in err
    assert run(["generate", PROMPT, *given, "--syntax", "plain"]) == 0
    (plain,) = json.loads(capsys.readouterr().out)
    assert "syntax" not in plain
    assert Path(plain["file"]).read_bytes() != Path(rows[0]["file"]).read_bytes()
    assert run(["generate", PROMPT, *given, "--syntax", "some"]) == 1
    assert "give 'auto' or 'plain'" in capsys.readouterr().err


def test_the_demo_tells_each_arm_and_scores_the_words(model: Path, tmp_path: Path) -> None:
    heard: set[str] = set()

    class Listening(FakeReward):
        def score(self, prompts: Any, media: Any, *, context: Any = None) -> Any:
            heard.update(prompts)
            return super().score(prompts, media, context=context)

    reward = Listening()
    generator = DiffusionGenerator.from_pretrained(model)
    run_demo(
        "a [red] cat",
        out=tmp_path,
        num=1,
        rewriter=FakeRewriter(),
        generator=generator,
        rewards=[reward],
    )
    result = json.loads((tmp_path / "result.json").read_text())
    told = {arm: entry["syntax"] for arm, entry in result["arms"].items()}
    assert told["original"]["original"] == "a [red] cat"
    assert told["original"]["text"] == "a red cat" and heard == {"a red cat"}
    assert told["rewritten"]["original"] == result["arms"]["rewritten"]["prompt"]
    run_demo("a cat", out=tmp_path, num=1, rewriter="none", generator=generator, rewards=[reward])
    result = json.loads((tmp_path / "result.json").read_text())
    assert not any("syntax" in entry for entry in result["arms"].values())
