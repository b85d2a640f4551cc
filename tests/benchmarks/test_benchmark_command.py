"""``t2x benchmark``, on the embedded generator; what it writes is no source of training data."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from t2x.benchmarks.marker import MARKER
from t2x.cli import run
from t2x.errors import T2XError

from . import made_up

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def t2x(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Call:
    monkeypatch.chdir(tmp_path)
    made_up.write_all(tmp_path)

    def call(*arguments: object) -> tuple[int, str, str]:
        code = run([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_geneval_from_prompts_to_what_to_run_next(t2x: Call, tmp_path: Path) -> None:
    words = ("benchmark", "geneval", "--prompts", "evaluation_metadata.jsonl", "--out", "o")
    options = ("--generator", "emoji-flow-turbo", "--rewriter", "rules", "--rewards", "clip")
    few = ("--images-per-prompt", 1)
    code, out, err = t2x(*words, *options, *few, "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["arms"]["raw"]["clip"]["overall"]["n"] == 3
    assert result["arms"]["raw"]["clip"]["overall"]["low"] is None  # of 3 prompts no interval
    assert result["differences"]["clip"]["overall"]["holds"] == "undecided"
    assert len(made_up.read_geneval(tmp_path / "o" / "raw")) == 3
    assert (
        "next: run the official evaluator, https://github.com/djghosh13/geneval at af4902f" in err
    )
    assert "python evaluation/evaluate_images.py" in err and "drawing raw (3/3)" in err

    code, out, err = t2x(*words, *options, *few)
    assert code == 0 and "loading emoji-flow-turbo" not in err
    assert "rewrite - raw" in out and "counting" in out
    code, out, err = t2x(*words, *options, *few, "--steps", 2)
    assert code == 1 and not out and "sampling was {}, is {'num_inference_steps': 2}" in err


def test_a_generator_is_placed_as_asked(t2x: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def run_benchmark(setup: Any, **_: Any) -> None:
        seen.append(setup.sampling)
        raise T2XError("enough")

    monkeypatch.setattr("t2x.benchmarks.running.run_benchmark", run_benchmark)
    words = ("benchmark", "geneval", "--prompts", "p.jsonl", "--out", "o", "--steps", 2)
    assert t2x(*words, "--offload", "model", "--quantize", "8bit", "--vae-tiling")[0] == 1
    placed = {"offload": "model", "quantize": "8bit", "vae_tiling": True}
    assert seen == [{"num_inference_steps": 2, **placed}]


def test_facts_need_no_prompts(t2x: Call) -> None:
    code, out, _ = t2x("benchmark", "dpg", "--facts", "--json")
    assert code == 0 and json.loads(out)["repository"] == "TencentQQGYLab/ELLA"
    assert t2x("benchmark", "vbench", "--facts")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("geneval",), "give --prompts with the official file of geneval and --out"),
        (("genevall", "--facts"), "did you mean 'geneval'"),
        (("geneval", "--prompts", "none.jsonl", "--out", "o"), "there is no evaluation_metadata"),
        (
            ("geneval", "--prompts", "evaluation_metadata.jsonl", "--out", "o", "--size", "big"),
            "a size is written HEIGHTxWIDTH",
        ),
    ],
)
def test_what_is_wrong_is_one_line(t2x: Call, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = t2x("benchmark", *arguments)
    assert code == 1 and not out and words in err and err.count("\n") == 1
    assert not Path("o").exists()


def test_what_a_benchmark_wrote_is_no_training_data(t2x: Call, tmp_path: Path) -> None:
    folder = tmp_path / "o"
    folder.mkdir()
    row = {"prompt": "a plain tin cup", "rewrites": [{"text": "a tin cup, in detail"}]}
    (folder / "rewrites.jsonl").write_text(json.dumps(row) + "\n", "utf-8")
    assert t2x("data", "prompts", "a.jsonl", "--from", "o/rewrites.jsonl")[0] == 0
    (folder / MARKER).write_text('{"what": "a benchmark"}', "utf-8")
    code, _, err = t2x("data", "prompts", "b.jsonl", "--from", "o/rewrites.jsonl")
    assert code == 1 and "must never become training data" in err
    assert not Path("b.jsonl").exists()


def test_candidates_of_a_benchmark_are_refused_too(t2x: Call, tmp_path: Path) -> None:
    from t2x.data.gathering import PromptSource, gather_candidates

    folder: Any = tmp_path / "o"
    folder.mkdir()
    (folder / MARKER).write_text('{"what": "a benchmark"}', "utf-8")
    (folder / "x.scored.jsonl").write_text("", "utf-8")
    source = PromptSource(str(folder / "x.scored.jsonl"))
    with pytest.raises(T2XError, match="must never become training data"):
        gather_candidates(
            source, None, tmp_path / "out.jsonl", Counter(), as_policy=True,
            overwrite=False, progress=None,
        )  # fmt: skip
