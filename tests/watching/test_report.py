"""The page about runs: complete, offline, the same for the same folder."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from t2x import cli
from t2x.errors import MissingDependencyError, T2XError
from t2x.watching import report
from t2x.watching.plots import draw_panel, smoothed
from t2x.watching.report import report_page, require_plots, try_report, write_report
from t2x.watching.runs import read_run, read_runs, summary_of
from t2x.watching.trends import Curve

from .folders import made_up_run, write_lines

pytestmark = pytest.mark.extra("report")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = made_up_run(tmp_path / "one", steps=60)
    lines = []
    for step in range(0, 61, 5):
        path = folder / "samples" / f"step-{step:06d}" / "0-0.png"
        path.parent.mkdir(parents=True)
        Image.new("RGB", (16, 16), (step, 0, 0)).save(path)
        sample = {"prompt": "<b>", "text": f"text {step}", "status": "reverted", "scores": [None]}
        lines.append({"step": step, "samples": [sample]})
    write_lines(folder / "samples.jsonl", lines)
    groups = [
        {
            "step": step,
            "prompt": f"prompt {gain}",
            "own_words": 0.2,
            "gain": gain,
            "members": [{"text": "x & y", "kind": "failed", "reward": None}],
        }
        for step, gain in ((60, 0.4), (60, -0.3), (59, 0.1), (59, None))
    ]
    write_lines(folder / "groups.jsonl", groups)
    alarm = {"step": 40, "name": "kl", "text": "2 nats", "stop": True}
    write_lines(folder / "alarms.jsonl", [alarm])
    return folder


class Page(HTMLParser):
    """Tags that are open, and everything that a browser would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br", "img"):
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href") and value:
                self.loaded.append(value)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_of_a_run(run: Path) -> None:
    page = report_page(read_runs([run]))
    parsed = Page()
    parsed.feed(page)
    assert parsed.open == []
    # Nothing is loaded; what begins with # is a mark inside a drawing.
    assert all(url.startswith(("data:image/png", "#")) for url in parsed.loaded)
    assert "<script" not in page and "&lt;b&gt;" in page and "x &amp; y" in page
    assert re.findall(r"<th>step (\d+)</th>", page) == ["0", "10", "25", "35", "50", "60"]
    assert page.count("data:image/png") == 6
    assert page.index("prompt 0.4") < page.index("prompt -0.3")
    assert "The run ended here" in page and "beta: 0.04" in page
    assert "Held-out reward 0.4" in page
    assert page == report_page(read_runs([run]))


def test_drawings_are_xml_in_the_pages_colours() -> None:
    curve = Curve(tuple(range(50)), tuple(float(i % 7) for i in range(50)))
    svg = draw_panel("A & B", [(0, curve, curve), (9, curve, None)], marks=[3.0], zero=True)
    root = ElementTree.fromstring(svg)
    assert root.attrib["aria-label"] == "A & B"
    assert "var(--run0)" in svg and "var(--run1)" in svg and "var(--worse)" in svg
    drawn = set(re.findall(r"(?:stroke|fill): (#[0-9a-f]{6})", svg))
    assert drawn <= {"#ffffff"}  # no colour of its own that dark paper would hide
    assert "A &amp; B" in svg and "<metadata" not in svg
    assert svg == draw_panel("A & B", [(0, curve, curve), (9, curve, None)], marks=[3.0], zero=True)


def test_smoothing_keeps_means_and_ends() -> None:
    curve = Curve((1, 2, 3, 4), (0.0, 3.0, 0.0, 3.0))
    assert smoothed(curve, 3).values == (1.5, 1.0, 2.0, 1.5)
    assert smoothed(curve, 1) == curve


def test_runs_over_each_other(run: Path, tmp_path: Path) -> None:
    other = made_up_run(tmp_path / "two", steps=60, seed=1)
    page = report_page(read_runs([run, other]), by="seconds")
    assert "2 runs over each other" in page
    assert "<td>run.seed</td><td>0</td><td>1</td>" in page
    assert "trainer.beta" not in page
    assert page.count('var(--run1)"></span>two') == 2
    # Marks of alarms stand only where one run is drawn.
    assert "stroke: var(--worse)" not in page


def test_names_tell_runs_apart(tmp_path: Path) -> None:
    folders = [made_up_run(tmp_path / part / "grpo", steps=5) for part in ("a", "b")]
    assert [r.name for r in read_runs(folders)] == [str(Path("a/grpo")), str(Path("b/grpo"))]
    with pytest.raises(T2XError, match="each once"):
        read_runs([folders[0], folders[0]])
    with pytest.raises(T2XError, match=r"has no log\.jsonl"):
        read_run(tmp_path)


def test_summary_of_a_run(run: Path) -> None:
    found = summary_of(read_run(run))
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    held = {x["step"]: x["heldout/reward"] for x in lines if "heldout/reward" in x}
    assert found["best_held_out"] == max(held.values()) == held[found["best_step"]]
    assert found["first_held_out"] == held[0]
    assert found["stopped_early"] is True and found["steps"] == 60


def test_a_page_needs_little(tmp_path: Path) -> None:
    """A run that has just begun, or whose log was written by a run without measurements."""
    write_lines(tmp_path / "log.jsonl", [])
    assert "0 steps" in write_report([tmp_path]).read_text()
    write_lines(tmp_path / "log.jsonl", [{"step": 1, "loss": None}, {"step": 2, "loss": 0.5}])
    (tmp_path / "config.yaml").write_text("a: [")
    assert "nothing was measured on held-out prompts" in write_report([tmp_path]).read_text()


def test_a_failing_page_ends_no_training(
    run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write_lines(run / "groups.jsonl", [{"step": 60}])
    try_report(run)
    assert "could not be written" in caplog.text
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"t2x\[report\]"):
        require_plots()


def test_turns_and_rounds_of_a_run_are_shown_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (2, 10, 1):
        made_up_run(tmp_path / "own" / "rounds" / str(number), steps=4)
        (tmp_path / "own" / "rounds" / str(number) / "config.yaml").unlink()
    (tmp_path / "own" / "rounds" / "0").mkdir()  # measured only
    (tmp_path / "own" / "config.yaml").write_text("run: {seed: 3}\n")
    assert cli.run(["report", str(tmp_path / "own"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found["runs"]] == ["rounds/1", "rounds/2", "rounds/10"]
    assert Path(found["report"]) == tmp_path / "own" / "report.html"
    assert write_report([tmp_path / "own"]) == tmp_path / "own" / "report.html"
    assert read_runs([tmp_path / "own"])[2].settings() == {"run.seed": 3}

    # Beside another run, and with a turn of the same name.
    for name in ("a", "b"):
        made_up_run(tmp_path / name / "turns" / "0-style", steps=4)
    runs = read_runs([tmp_path / name for name in ("a", "b")])
    assert [run.name for run in runs] == ["a/turns/0-style", "b/turns/0-style"]


def test_a_training_that_logged_nothing_is_said_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Shorter than trainer.logging_steps."""
    try_report(tmp_path)
    (record,) = caplog.records
    assert "nothing was logged" in record.getMessage() and record.exc_info is None
    assert not (tmp_path / "report.html").exists()


def test_the_command(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["report", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert Path(found["report"]) == run / "report.html" and (run / "report.html").is_file()
    assert found["runs"][0]["alarms"][0]["name"] == "kl"
    out = tmp_path / "pages" / "both.html"
    other = made_up_run(tmp_path / "two", steps=10)
    assert cli.run(["report", str(run), str(other), "--out", str(out), "--by", "seconds"]) == 0
    assert out.is_file() and "two" in capsys.readouterr().out
    assert cli.run(["report", str(tmp_path)]) == 1
    assert "has no log.jsonl" in capsys.readouterr().err
    assert cli.run(["report", str(run), "--by", "hours"]) == 1
