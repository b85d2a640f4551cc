"""The OCR reward over engines made up here, and RapidOCR where the extra is installed."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import pytest
import torch
from PIL import Image, ImageDraw, ImageFont

from t2x.errors import MissingDependencyError
from t2x.media import from_pil
from t2x.registry import import_attr, load_reward

quoted_texts = import_attr("t2x.rewards.ocr:quoted_texts")
WHITE = torch.ones(1, 3, 8, 8)


def engine(*texts: str):
    return lambda picture: list(texts)


def score(prompt: str, *texts: str) -> float:
    return load_reward("ocr", engine=engine(*texts)).score([prompt], WHITE).item()


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ('a sign "OPEN"', ["OPEN"]),
        ("a sign \u201cOPEN\u201d and \u201eZU\u201c", ["OPEN", "ZU"]),
        ("a sign 'OPEN'", ["OPEN"]),
        ("a \u2018big sale\u2019 banner", ["big sale"]),
        ("\u300c\u732b\u300d", ["\u732b"]),
        ('"two\nlines"', ["two\nlines"]),
        ("don't draw the dog's bone", []),
        ('a 6" pizza', []),
        ('an empty "" and a sign "OPEN"', ["OPEN"]),
        ('""', []),
        ('a blank " "', []),
        ('one " only', []),
        ("", []),
    ],
)
def test_what_is_in_quotes(prompt: str, expected: list[str]) -> None:
    assert quoted_texts(prompt) == expected


def test_known_scores() -> None:
    assert score('a sign "OPEN"', "we are", "open") == 1
    assert score('a sign "OPEN"', "OPXN") == 0.75
    assert score('a sign "OPEN"') == 0
    assert score('"OPEN" over \u201cSALT\u201d', "open") == 0.5
    assert score('"BIG SALE"', "BIG", "SALE") == 1  # broken into lines


def test_no_quote_and_an_engine_that_fails_are_nan_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails_on_black(picture: Image.Image) -> Sequence[str]:
        if picture.getpixel((0, 0)) == (0, 0, 0):
            raise RuntimeError("out of memory")
        return ["hi"]

    reward = load_reward("ocr", engine=fails_on_black)
    media = torch.stack([torch.ones(3, 8, 8), torch.zeros(3, 8, 8), torch.ones(3, 8, 8)])
    with caplog.at_level(logging.WARNING):
        got = reward.score(['"hi"', '"hi"', "hi"], media)
    assert got[0].item() == 1 and got[1:].isnan().all() and got.dtype == torch.float32
    assert reward.unread == 1  # type: ignore[attr-defined]
    assert "out of memory" in caplog.text and "1 of 3 prompts have no text" in caplog.text


def test_bad_pixels_are_nan_and_never_reach_the_engine() -> None:
    reward = load_reward("ocr", engine=engine("hi"))
    assert reward.score(['"hi"'], WHITE * math.nan).isnan().all()


def test_each_picture_is_read_by_itself_at_its_own_size() -> None:
    reward = load_reward("ocr", engine=lambda picture: [str(picture.width)])
    items = [torch.ones(1, 3, 4, w) for w in (7, 8)]
    assert reward.score(['"7"', '"7"'], items).tolist() == [1, 0]


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "rapidocr", None)
    with pytest.raises(MissingDependencyError, match=r"t2x\[ocr\]"):
        load_reward("ocr")


@pytest.mark.extra("ocr")
def test_rapidocr_reads_what_is_drawn() -> None:
    picture = Image.new("RGB", (320, 120), "white")
    draw = ImageDraw.Draw(picture)
    draw.text((30, 30), "OPEN 24 H", "black", ImageFont.load_default(48))
    media = from_pil([picture, Image.new("RGB", (320, 120), "white")])
    prompts = ['a sign that says "Open 24h"', 'a sign that says "Open 24h"']
    read, blank = load_reward("ocr").score(prompts, media).tolist()
    assert read == 1 and blank == 0
