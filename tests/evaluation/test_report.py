"""report.html and the comparison behind it: self-contained, escaped, honest."""

from __future__ import annotations

import base64
import io
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from PIL import Image

from t2x.evaluation.report import report_page
from t2x.evaluation.side_by_side import RewardColumn, SideBySide
from t2x.types import Check, Rewrite

NAN = math.nan
NASTY = "</style><script>alert('x')</script> & \"quotes\" <img src=http://e.org/x> $title"


class Page(HTMLParser):
    """Collects tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        self.text += data


def make(text: str = "a photo of a cat", *rewards: RewardColumn, **fields: object) -> SideBySide:
    pictures = {
        arm: tuple(Image.new("RGB", (64, 64), (i, i, level)) for i in range(2))
        for arm, level in (("original", 10), ("rewritten", 200))
    }
    rewrite = Rewrite("a cat", text, model_id="fake-rewriter", **fields)
    columns = rewards or (RewardColumn("clip", (0.1, 0.2), (0.3, 0.1), "cosine", (-1.0, 1.0)),)
    return SideBySide(
        rewrite,
        (4, 5),
        pictures,
        columns,
        "fake-generator",
        settings={"guidance_scale": 3.5, "nested": {"steps": 20}},
        versions={"torch": "2.0"},
        command="t2x demo 'a cat'",
    )


def test_nothing_is_loaded_from_anywhere():
    page = Page(report_page(make()))
    names = [tag for tag, _ in page.tags]
    assert not {"script", "link", "iframe", "object"} & set(names) and not page.open
    for _, attributes in page.tags:
        for name in ("src", "href", "srcset", "action"):
            assert (attributes.get(name) or "data:").startswith("data:")
    assert not re.search(r"url\(|@import|https?://", report_page(make()))


def test_pictures_are_inside_in_pairs_of_equal_seeds():
    page = Page(report_page(make()))
    images = [attributes for tag, attributes in page.tags if tag == "img"]
    order = [(arm, seed) for seed in (4, 5) for arm in ("original", "rewritten")]
    assert [image["alt"] for image in images] == [f"{arm}, seed {seed}" for arm, seed in order]
    result = make()
    for image, (arm, seed) in zip(images, order, strict=True):
        data = base64.b64decode(image["src"].removeprefix("data:image/png;base64,"))
        with Image.open(io.BytesIO(data)) as picture:
            expected = result.pictures[arm][seed - 4]
            assert picture.tobytes() == expected.tobytes()
    assert "image-rendering: pixelated" in report_page(result)


def test_every_text_is_escaped():
    result = make(
        NASTY,
        RewardColumn(NASTY, (0.1, 0.2), (0.3, 0.1), NASTY),
        RewardColumn("b", (NAN,) * 2, (NAN,) * 2, problem=NASTY),
        reasoning=NASTY,
        negative=NASTY,
        checks=(Check(NASTY, False, NASTY),),
    )
    text = report_page(result)
    page = Page(text)
    assert not {"script"} & {tag for tag, _ in page.tags} and not page.open
    assert page.text.count(NASTY) >= 7
    assert text.count("</style>") == 1


def test_all_that_is_known_is_told():
    checks = (Check("numbers_kept", True), Check("colours_kept", False, "the colour red is lost"))
    page = Page(report_page(make(reasoning="a cat has a plain look", checks=checks)))
    for text in (
        "a photo of a cat",
        "a cat has a plain look",
        "numbers_kept",
        "the colour red is lost",
        "guidance_scale",
        "steps=20",
        "version of torch",
        "t2x demo 'a cat'",
        "fake-generator",
        "0.1500",  # mean of the original
        "0.2000",  # mean of the rewritten
        "+0.0500",
        "1 / 1",
    ):
        assert text in page.text


def test_what_no_command_can_repeat_says_what_it_was():
    objects = {"generator": {"class": "a.Flow", "sampling": {"steps": 8}}, "reward <b>": {"x": 1}}
    result = replace(make(), command="", objects=objects)
    page = Page(report_page(result))
    assert "Made from Python objects" in page.text and "again:" not in page.text
    assert "class=a.Flow, sampling=steps=8" in page.text and "reward <b>" in page.text
    assert result.record()["command"] is None and result.record()["objects"] == objects
    assert "again:" in Page(report_page(make())).text
    assert "objects" not in Page(report_page(replace(make(), command=""))).text


def test_what_was_not_measured_says_so_and_is_no_zero():
    broken = RewardColumn("vqa", (NAN,) * 2, (NAN,) * 2, problem="no weights")
    half = RewardColumn("hps", (0.5, NAN), (0.7, 0.9), "preference")
    page = Page(report_page(make("a photo", broken, half)))
    assert "not measured: no weights" in page.text and "1 scores not measured" in page.text
    assert "vqanot measurednot measured" in page.text and "0.0000" not in page.text
    # The unpaired 0.9 stays out of the mean.
    assert half.mean("original") == 0.5 and half.mean("rewritten") == 0.7


def test_a_reverted_rewrite_shows_why_and_what_was_proposed():
    checks = (Check("colours_kept", False, "the colour red is lost"),)
    page = Page(report_page(make("a cat", status="reverted", checks=checks, raw="a dog")))
    assert "Why: the colour red is lost" in page.text and "a dog" in page.text
    assert "The user's own words were used again." in page.text


def column(name: str, change: float) -> RewardColumn:
    return RewardColumn(name, (0.5, 0.5), (0.5 + change,) * 2)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ((0.1,), "The rewrite scores higher on a."),
        ((-0.1,), "The rewrite scores lower on a."),
        ((0.0,), "The rewrite scores the same."),
        ((0.1, 0.2), "The rewrite scores higher on all 2 rewards."),
        ((-0.1, -0.2), "The rewrite scores lower on all 2 rewards."),
        ((0.0, 0.0), "The rewrite scores the same on all 2 rewards."),
        (
            (0.1, -0.2, 0.1),
            "The rewrite scores higher on 2 of 3 rewards (a, c), lower on 1 (b).",
        ),
        ((-0.1, 0.0), "The rewrite scores lower on 1 of 2 rewards (a)."),
        ((1e-9, NAN), "The rewrite scores the same; not measured: b."),
        ((NAN,), "No reward could be measured, so the pictures have to speak for themselves."),
    ],
)
def test_the_summary_is_honest(changes, sentence):
    columns = [column(name, change) for name, change in zip("abc", changes, strict=False)]
    result = make("a photo", *columns)
    assert result.summary() == sentence
    assert sentence in Page(report_page(result)).text


def test_scores_of_one_seed_are_won_lost_or_tied():
    reward = RewardColumn("clip", (0.1, 0.5, 0.3, NAN), (0.2, 0.4, 0.3, 0.9))
    assert (reward.won, reward.lost, reward.missing) == (1, 1, 1)
    assert reward.record()["seeds"] == {"measured": 3, "won": 1, "lost": 1, "tied": 1}
    assert reward.difference == 0.0


@pytest.mark.parametrize(
    ("scores", "limits", "axis"),
    [
        ((0.2, 0.4), (0.0, 1.0), (0.0, 1.0)),
        ((0.2, 0.4), (-1.0, 1.0), (0.0, 1.0)),
        ((-0.2, 0.4), (-1.0, 1.0), (-1.0, 1.0)),
        ((4.0, 6.0), (1.0, 10.0), (1.0, 10.0)),
        ((2.0, 5.0), (-math.inf, math.inf), (0.0, 5.0)),
        ((-2.0, 5.0), (-math.inf, math.inf), (-2.0, 5.0)),
        ((3.0, 3.0), (3.0, 3.0), (3.0, 4.0)),
        ((NAN, NAN), (-math.inf, math.inf), (0.0, 1.0)),
    ],
)
def test_the_axis_of_a_bar_is_the_range_of_the_reward(scores, limits, axis):
    before, after = scores
    reward = RewardColumn("r", (before,), (after,), range=limits)
    assert reward.axis == axis
    assert reward.share(axis[0]) == 0 and reward.share(axis[1]) == 1
    assert 0 <= reward.share(-100) <= reward.share(100) <= 1


def test_the_record_is_plain_json():
    import json

    result = make("a photo \ud800", RewardColumn("hps", (NAN, 1.0), (2.0, math.inf)))
    record = json.loads(json.dumps(result.record(), allow_nan=False).encode("utf-8"))
    assert record["rewards"]["hps"]["original"] == [None, 1.0]
    assert record["rewards"]["hps"]["rewritten"] == [2.0, None]
    assert record["rewrite"]["text"] == "a photo ?"
    assert len({p["sha256"] for arm in record["arms"].values() for p in arm["pictures"]}) == 4
