"""``t2x ask``: rows of pictures, answers by letter and label, going on, one-line errors."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from PIL import Image

from t2x.cli import run
from t2x.media import png_text

FAKE = ["--model", "t2x.testing:FakeGenerator"]


def test_answers_are_scriptable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "asked"
    arguments = ["ask", "a car", *FAKE, "--out", str(out), "--json"]
    assert run([*arguments, "--answers", "a,o,x,b"]) == 0
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert len(told["answers"]) == len(told["sheets"]) == 4
    assert told["answers"][2][1] == "doesn't matter"
    with Image.open(told["sheets"][0]) as sheet:
        assert sheet.width > 500
    assert png_text(told["picture"])["text"] == told["text"]
    assert "[x] doesn't matter" in said.err
    assert run([*arguments, "--answers", "a", "--resume"]) == 0
    assert len(json.loads(capsys.readouterr().out)["answers"]) == 5


def test_the_keyboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("nonsense\na\nback\nx\nq\n"))
    assert run(["ask", "a car", *FAKE, "--out", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "'nonsense' is no answer" in said.err
    assert said.out.startswith("prompt: ")
    assert len(json.loads((tmp_path / "asking.json").read_text())["answers"]) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ask", " "], "the prompt is empty"),
        (["ask", "a car", *FAKE, "--answers", "castle"], "'castle' is no answer"),
        (["ask", "a car", *FAKE, "--resume"], "holds no answers"),
        (["ask", "a car", *FAKE, "--answers", ","], "no answer was named"),
    ],
)
def test_errors_are_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 1
    said = capsys.readouterr().err.strip().splitlines()
    assert message in said[-1] and said[-1].startswith("error: ")
