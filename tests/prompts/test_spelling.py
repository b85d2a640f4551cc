"""Which words are English, and which are forms of one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from t2x.prompts import spelling
from t2x.prompts.constraints import stem
from t2x.prompts.spelling import closest, is_part, is_word, root


@pytest.mark.parametrize(
    "word", ["horse", "house", "parrot", "carrot", "lemon", "kitten", "glasses", "seen", "wolves"]
)
def test_words_are_known(word: str) -> None:
    assert is_word(word)


@pytest.mark.parametrize("word", ["elefant", "horese", "umbrela", "zbera", "handbga", "tise"])
def test_slips_are_not(word: str) -> None:
    assert not is_word(word)


def test_only_what_is_misspelt_is_mended() -> None:
    assert closest("elefant", ["giraffe", "elephant"], similar=0.8) == "elephant"
    assert closest("elefant", ["giraffe", "zebra"], similar=0.8) is None
    assert closest("horse", ["house"], similar=0.8) is None


@pytest.mark.parametrize(
    ("slip", "word"),
    [("baer", "bear"), ("beear", "bear"), ("umbrela", "umbrella"),
     ("bananna", "banana"), ("kitr", "kite")],
)  # fmt: skip
def test_one_slip_is_closest(slip: str, word: str) -> None:
    known = ["beaker", "bear", "umbrella", "banana", "bandana", "kite", "kitten"]
    assert closest(slip, known, similar=0.7) == word


@pytest.mark.parametrize(
    ("one", "other"),
    [("sunny", "sun"), ("dancer", "dancing"), ("theatre", "theater"), ("colour", "color"),
     ("running", "run"), ("woolly", "wool")],
)  # fmt: skip
def test_forms_have_one_root(one: str, other: str) -> None:
    assert root(stem(one)) == root(stem(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [("horse", "house"), ("parrot", "carrot"), ("kitten", "kite"), ("rain", "train")],
)
def test_other_words_have_other_roots(one: str, other: str) -> None:
    assert root(stem(one)) != root(stem(other))


def test_parts_of_longer_words() -> None:
    assert is_part("boat", "sailboat") and is_part("moon", "moonlight")
    assert not is_part("rain", "train") and not is_part("bear", "beard")


def test_without_a_vocabulary_every_word_may_be_misspelt(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spelling, "find_spec", lambda name: None)
    monkeypatch.setattr(spelling, "_pairs", spelling._pairs.__wrapped__)
    monkeypatch.setattr(spelling, "_words", spelling._words.__wrapped__)
    assert not is_word("horse") and closest("horse", ["house"], similar=0.8) == "house"
    assert "any word of a prompt may count as misspelt" in caplog.text


def test_the_words_are_read_without_open_clip_and_torch() -> None:
    code = (
        "import sys; from t2x.prompts.spelling import is_word; assert is_word('horse');"
        "print({'torch', 'open_clip'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
