"""What the page says as HTML: marked words, ticks, bars, curves; and that no text becomes code."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from PIL import Image

from t2x.studio.events import Cancelled, Failed, GuidanceStep, Progress, Scored, Waiting
from t2x.types import Check, Rewrite

pytestmark = pytest.mark.extra("app")
EVIL = '<script>alert(1)</script> "onload=x ${alert(2)} {{value}} \ud800'


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def tags(html: str) -> _Tags:
    found = _Tags()
    found.feed(html)
    return found


def text(html: str) -> str:
    return re.sub(r"<[^>]+>", "", html)


def test_words_that_changed_are_marked_and_no_others() -> None:
    from t2x.apps.studio.words import marked

    before, after = marked("two kittens and a  Dog", "two cats and a  dog, sharp")
    assert before == "two <del>kittens</del> and a  Dog"
    assert after == "two <ins>cats</ins> and a  dog<ins>, sharp</ins>"


@pytest.mark.parametrize("before", ["a cat", "", " \n a\tcat ", "名前 <b>", "a&b"])
@pytest.mark.parametrize("after", ["a cat", "", "  the cat.\n\nbig", "x < y"])
def test_marks_keep_both_texts(before: str, after: str) -> None:
    from html import unescape

    from t2x.apps.studio.words import marked

    assert [unescape(text(part)) for part in marked(before, after)] == [before, after]


def rewrite(**more: Any) -> Rewrite:
    given: dict[str, Any] = {"original": "a cat", "text": "one cat, centre"} | more
    return Rewrite(**given)


@pytest.mark.parametrize("status", ["accepted", "unchanged", "reverted", "failed"])
def test_no_text_of_a_rewrite_becomes_code(status: Any) -> None:
    from t2x.apps.studio.words import rewrite_html

    checks = (Check("numbers_kept", False, EVIL), Check(EVIL, False), Check("things_kept", True))
    html = rewrite_html(
        Rewrite(EVIL, EVIL + "!", EVIL, EVIL, status, checks, model_id=EVIL, raw=EVIL)
    )
    found = tags(html)
    assert "script" not in found.tags and "onload" not in found.attributes
    assert html.encode() and "alert(1)" in html


def test_a_reverted_rewrite_says_why_in_words() -> None:
    from t2x.apps.studio.words import rewrite_html

    html = rewrite_html(
        rewrite(
            text="a cat",
            status="reverted",
            checks=(Check("numbers_kept", False, "the number 5 is lost"), Check("length", True)),
            raw="<think>hm</think><answer>three cats</answer>",
        )
    )
    assert "broke what you asked for: the number 5 is lost. Your own words are drawn." in html
    assert "<p>three cats</p>" in html and "hm" not in html
    assert '<li class="no"' in html and "well formed (1)" in html


@pytest.mark.parametrize(
    ("name", "reason", "said"),
    [
        ("completion", "no closed answer block", "its answer was not finished"),
        ("completion", "", "a finished answer"),
        ("fits_budget", "tokenizer 50/48 tokens, cut: 'dog'",
         "the model does not read its end, &#x27;dog&#x27; (50 tokens, room for 48)"),
        ("fits_budget", "clip 9/7 tokens, cut: 'a'; t5 9/8 tokens, cut: 'b'",
         "clip does not read its end, &#x27;a&#x27; (9 tokens, room for 7); t5 does not"),
    ],
)  # fmt: skip
def test_why_a_rewrite_was_not_used_is_said_without_terms(
    name: str, reason: str, said: str
) -> None:
    from t2x.apps.studio.words import rewrite_html

    checks = (Check(name, False, reason),)
    html = rewrite_html(rewrite(text="a cat", status="failed", checks=checks))
    assert said in html and "tokenizer" not in html and "completion" not in html


def test_ticks_name_what_is_kept() -> None:
    from t2x.apps.studio.words import checks_html

    html = checks_html((Check("colours_kept", True), Check("no_junk", True)))
    assert text(html) == "✓ colours✓ well formed (1)"


def test_bars_show_means_the_gain_and_what_is_not_measured() -> None:
    from t2x.apps.studio.bars import bars_html

    html = bars_html(
        [
            Scored("vqa", {"original": (0.2, 0.4), "rewritten": (0.8, math.nan)}, range=(0, 1)),
            Scored("clip", {"original": (math.nan,)}, problem="no weights <here>"),
        ]
    )
    assert "+0.5" in html and "width:30.0%" in html and "width:80.0%" in html
    assert "1 picture is not measured" in html
    assert "not measured: no weights &lt;here&gt;" in html


def test_a_bar_without_a_bound_is_measured_by_the_longest() -> None:
    from t2x.apps.studio.bars import bars_html

    html = bars_html([Scored("x", {"original": (-1.0,), "rewritten": (3.0,)})])
    assert "width:1.0%" in html and "width:100.0%" in html


def test_lines_of_a_job() -> None:
    from t2x.apps.studio.live import status_line

    assert "2 jobs are before yours" in status_line(Waiting("x", 2))
    line = status_line(Progress("drawing with x", 1, 4, 75.2, step=5, steps=10))
    assert "Drawing with x · 2 of 4" in line and "width:38%" in line and "1 min 15 s left" in line
    problem = status_line(Failed(EVIL))
    assert 'role="alert"' in problem and "script" not in tags(problem).tags
    assert "3 were finished" in status_line(Cancelled(3))


def steps(values: list[float]) -> list[GuidanceStep]:
    picture = Image.new("RGB", (4, 4))
    return [
        GuidanceStep(0, 7, i, len(values), 1.0, {"clip": v}, {"clip": 1.0}, 0.1, 1.0, picture)
        for i, v in enumerate(values)
    ]


def test_a_curve_goes_through_what_was_measured() -> None:
    from t2x.apps.studio.live import curves_html

    html = curves_html(steps([0.0, math.nan, 1.0]))
    assert 'points="4.0,60.0 216.0,4.0"' in html and "0 → 1" in html
    assert "not measured" in curves_html(steps([math.nan]))
    assert 'points="4.0,32.0"' in curves_html(steps([0.5]))


def test_a_curve_of_a_job_that_is_done_ends_at_the_right() -> None:
    """Rewards steer some of the steps alone; while it runs there is room for the others."""
    from t2x.apps.studio.live import curves_html

    done = steps([0.0, 1.0, math.nan, math.nan])
    assert 'points="4.0,60.0 216.0,4.0"' in curves_html(done)
    assert 'points="4.0,60.0 74.7,4.0"' in curves_html(done[:2])


def test_the_strip_shows_at_most_eight_steps_and_the_last() -> None:
    from t2x.apps.studio.live import strip_html

    html = strip_html(steps([0.1] * 30))
    assert html.count("<img") == 8 and "<figcaption>30</figcaption>" in html
    assert strip_html([]) == ""
