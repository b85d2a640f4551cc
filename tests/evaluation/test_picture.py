"""compare.png: what is drawn where, and texts that fonts do not like."""

from __future__ import annotations

import math

import numpy as np
import pytest
from PIL import Image

from t2x.evaluation.lettering import readable, wrap
from t2x.evaluation.picture import (
    BETTER,
    COLORS,
    MARGIN,
    PANEL,
    PROMPT,
    WORSE,
    draw_comparison,
)
from t2x.evaluation.side_by_side import RewardColumn, SideBySide
from t2x.types import Check, Rewrite

NAN = math.nan


def checker(color: str, size: tuple[int, int] = (64, 64)) -> Image.Image:
    image = Image.new("RGB", size, color)
    for x in range(0, size[0], 2) if size == (64, 64) else ():
        image.putpixel((x, 0), (255, 255, 255))
    return image


def make(
    original: str = "a cat",
    text: str = "a photo of a cat",
    *,
    rewards: tuple[RewardColumn, ...] = (RewardColumn("clip", (0.2,), (0.4,), range=(0, 1)),),
    colors: tuple[str, str] = ("#102030", "#405060"),
    size: tuple[int, int] = (64, 64),
    num: int = 1,
    **fields: object,
) -> SideBySide:
    rewards = tuple(
        RewardColumn(r.name, r.original * num, r.rewritten * num, range=r.range) for r in rewards
    )
    pictures = {
        arm: (checker(color, size),) * num
        for arm, color in zip(("original", "rewritten"), colors, strict=True)
    }
    rewrite = Rewrite(original, text, model_id="fake", **fields)
    return SideBySide(rewrite, tuple(range(num)), pictures, rewards, "fake-generator")


def shades(image: Image.Image) -> dict[tuple[int, ...], int]:
    return {color: count for count, color in image.getcolors(1 << 24)}


def rgb(color: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(color[1:]))


def halves(sheet: Image.Image) -> tuple[Image.Image, Image.Image]:
    middle = sheet.width // 2
    return (
        sheet.crop((0, 0, middle, sheet.height)),
        sheet.crop((middle, 0, sheet.width, sheet.height)),
    )


def test_small_pictures_are_enlarged_by_whole_pixels_on_their_own_side():
    result = make(num=4)
    left, right = halves(draw_comparison(result))
    area = 4 * (64 * 64 - 32) * 4 * 4  # four pictures, each pixel but 32 white ones 4 by 4
    assert shades(left)[rgb("#102030")] == shades(right)[rgb("#405060")] == area
    assert rgb("#405060") not in shades(left) and rgb("#102030") not in shades(right)


def test_one_picture_is_shown_larger_and_only_four_of_many():
    (one, _), (nine, _) = (halves(draw_comparison(make(num=num))) for num in (1, 9))
    pixels = 64 * 64 - 32
    assert shades(one)[rgb("#102030")] == pixels * 8 * 8
    assert shades(nine)[rgb("#102030")] == 4 * pixels * 4 * 4


@pytest.mark.parametrize("size", [(1024, 1024), (1024, 256), (10, 300), (600, 1)])
def test_pictures_of_any_size_stay_in_their_cell(size):
    left, right = halves(draw_comparison(make(size=size)))
    for half, color in ((left, "#102030"), (right, "#405060")):
        ys, xs = np.nonzero((np.asarray(half) == rgb(color)).all(axis=-1))
        assert np.ptp(xs) < PANEL and np.ptp(ys) < PANEL


def bar_width(sheet: Image.Image, arm: str) -> int:
    """Longest run of the arm's colour in a row of bars, below the title's tag."""
    bars = np.asarray(sheet)[MARGIN + 60 :]
    hits = np.pad((bars == rgb(COLORS[arm])).all(axis=-1).astype(int), ((0, 0), (1, 1)))
    edges = np.diff(hits, axis=1)
    starts, ends = (np.nonzero(edges == sign)[1] for sign in (1, -1))
    return int((ends - starts).max(initial=0))


def test_bars_are_as_long_as_their_scores():
    reward = RewardColumn("clip", (0.3,), (0.6,), range=(0.0, 1.0))
    left, right = halves(draw_comparison(make(rewards=(reward,))))
    track = PANEL - 280
    assert bar_width(left, "original") == pytest.approx(0.3 * track, abs=3)
    # The black line at the original's score splits the longer bar.
    assert bar_width(right, "rewritten") == pytest.approx(0.3 * track, abs=4)


@pytest.mark.parametrize(
    ("before", "after", "seen", "absent"),
    [
        (0.2, 0.5, BETTER, WORSE),
        (0.5, 0.2, WORSE, BETTER),
        (0.5, 0.5, None, None),
        (NAN, NAN, None, None),
        (NAN, 0.5, None, None),
    ],
)
def test_better_is_green_worse_is_red_and_neither_has_no_colour(before, after, seen, absent):
    result = make(rewards=(RewardColumn("clip", (before,), (after,), range=(0, 1)),))
    colors = shades(draw_comparison(result))
    for color in (BETTER, WORSE):
        assert (rgb(color) in colors) == (color == seen)
    assert absent is None or rgb(absent) not in colors


def test_what_was_not_measured_has_no_bar():
    result = make(rewards=(RewardColumn("clip", (NAN,), (NAN,), range=(0, 1)),))
    left, right = halves(draw_comparison(result))
    assert bar_width(left, "original") < 20 and bar_width(right, "rewritten") < 20


def test_long_prompts_end_in_dots_and_do_not_move_the_rest():
    short, long = draw_comparison(make("cat " * 100)), draw_comparison(make("cat " * 5000))
    assert short.size == long.size
    lines = wrap("cat " * 5000, PROMPT, PANEL, 4)
    assert len(lines) == 4 and lines[-1].endswith("...")
    assert all(PROMPT.width(line) <= PANEL for line in lines)


@pytest.mark.parametrize("text", ["", "a", "a b", "w" * 500, "word " * 30, "a " + "x" * 90 + " b"])
def test_wrapping_loses_nothing_that_fits(text):
    lines = wrap(text, PROMPT, PANEL, 100)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(PROMPT.width(line) <= PANEL for line in lines) and lines


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("a café, naïve", "a cafe, naive"),
        ("two\n\tcats \u200b\ufe0f!", "two cats !"),
        ("猫 😀", "猫 😀"),
        ("“quoted” – yes", "“quoted” - yes"),
        ("lone \ud800", "lone \U000f0000"),
    ],
)
def test_texts_become_what_the_font_can_draw(text, drawn):
    assert readable(text) == drawn
    assert draw_comparison(make(text, text)).size[0] > 2 * PANEL


def test_signs_without_a_glyph_are_visible():
    blank = draw_comparison(make("", ""))
    boxes = draw_comparison(make("猫", ""))
    assert blank.tobytes() != boxes.tobytes()


def test_a_reason_and_a_negative_prompt_are_drawn():
    plain = draw_comparison(make("a cat", "a cat", status="reverted"))
    why = make("a cat", "a cat", status="reverted", checks=(Check("x", False, "a cat is lost"),))
    assert draw_comparison(why).tobytes() != plain.tobytes()
    negative = draw_comparison(make(negative="blur"))
    assert negative.tobytes() != draw_comparison(make()).tobytes()
