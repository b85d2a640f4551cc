"""``t2x search``, and the page that shows how a search converged."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from t2x.cli import run
from t2x.evaluation.search_page import FILES, history_page, picture_of, write_history
from t2x.search import Evolution, SearchRewriter
from t2x.testing import FakeGenerator, FakeReward, FakeRewriter

from .worlds import PROMPT, WORDS, Endings, Redness, WordPainter

EVIL = 'a red fox <script>alert("x")</script> & co'


def history_of(prompt: str = PROMPT, **parts: Any) -> Any:
    search = SearchRewriter(
        parts.get("rewriter", Endings(WORDS)),
        parts.get("generator", WordPainter()),
        parts.get("rewards", [Redness()]),
        method=Evolution("ga"),
        budget=10,
    )
    [history] = search.search([prompt])
    return history


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_shows_every_picture_and_the_way_to_the_winner() -> None:
    history = history_of()
    page = history_page(history)
    tags = Tags()
    tags.feed(page)
    assert not tags.open  # every element is closed
    pictures = [a["src"] for t, a in tags.seen if t == "img"]
    assert len(pictures) == history.cost.pictures == 10
    assert all(src and src.startswith("data:image/png;base64,") for src in pictures)
    assert sum(t == "circle" for t, _ in tags.seen) == len(history.candidates)
    blue = [a for t, a in tags.seen if t == "circle" and "--after" in (a["style"] or "")]
    assert len(blue) == len(history.lineage()) > 1
    assert page.count(">winner<") == 1
    for candidate in history.candidates:
        assert f"Round {candidate.turn}" in page or candidate.turn == 0
        assert candidate.rewrite.text in page
    assert not re.search(r"(src|href)=\"(?!data:)", page) and "<script" not in page


def test_text_of_users_is_escaped() -> None:
    page = history_page(history_of(EVIL))
    assert "<script" not in page and "&lt;script&gt;" in page


def test_the_same_history_gives_the_same_page_but_for_the_seconds() -> None:
    def stable(page: str) -> str:
        return re.sub(r"<dt>seconds of \w+</dt><dd>[\d.]+</dd>", "", page)

    assert stable(history_page(history_of())) == stable(history_page(history_of()))


def test_files_hold_the_same_story(tmp_path: Path) -> None:
    history = history_of()
    written = write_history(history, tmp_path)
    assert [p.name for p in written] == list(FILES)
    record = json.loads((tmp_path / "history.json").read_text("utf-8"))
    assert record["text"] == history.winner.rewrite.text
    assert record["lineage"] == list(history.lineage())
    assert len(record["candidates"]) == len(history.candidates)
    assert record["cost"]["pictures"] == 10 and record["cost"]["flops"] is None
    assert record["candidates"][0]["operator"] == "no rewrite"
    assert all("picture" not in shot for c in record["candidates"] for shot in c["pictures"])


def test_what_was_not_measured_leaves_a_page_and_no_picture(tmp_path: Path) -> None:
    history = history_of(rewards=[Redness(fails_on="fox")])
    assert [p.name for p in write_history(history, tmp_path)] == list(FILES[:2])
    page = (tmp_path / "history.html").read_text("utf-8")
    assert "Nothing could be scored" in page and "not measured" in page


def test_of_a_video_the_middle_frame_is_shown() -> None:
    history = history_of(
        rewriter=FakeRewriter(), generator=FakeGenerator("video"),
        rewards=[FakeReward(modality="video")],
    )  # fmt: skip
    assert picture_of(history.shot).size == (64, 64)
    assert history_page(history).count("<img") == 10


def test_the_command_writes_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "found"
    code = run(["search", "two kittens", "--budget", "3", "--out", str(out), "--json"])
    said = json.loads(capsys.readouterr().out)
    assert code == 0 and said["cost"]["pictures"] == 3 and said["cost"]["flops"] > 0
    assert sorted(p.name for p in out.iterdir()) == sorted(FILES)
    assert json.loads((out / "history.json").read_text("utf-8"))["text"] == said["text"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a cat", "--method", "annealing"], "unknown method 'annealing'; allowed: best-of-n"),
        (["a cat", "--method", "evolution:xx"], "unknown operators 'xx'"),
        ([" "], "the prompt is empty"),
        (["a cat", "--reward", ","], "no reward was named"),
        (["a cat", "--reward", "nothing"], "unknown reward 'nothing'"),
        (["a cat", "--reward", "clip=much"], "the weight in 'clip=much' is no number"),
    ],
)
def test_mistakes_are_said_in_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture
) -> None:
    assert run(["search", *arguments]) == 1
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("error: ") and words in said
