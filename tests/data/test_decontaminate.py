"""Benchmark prompts are found by their hashes, ordinary ones are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from t2x.data import decontaminate
from t2x.data.decontaminate import (
    SHORTEST,
    SPAN,
    Match,
    find_benchmark,
    hash_prompts,
    prompt_words,
    sources,
)
from t2x.world.scene import CLASSES
from t2x.world.words import articled

SHORT = "six silver spoons asleep"
SEVEN = "Seven brass kettles whistling beside an owl"
LONG = (
    "a lighthouse keeper mends his fishing net on the wet stone steps while gulls circle "
    "above him and a storm waits at the horizon"
)
PACKAGE = Path(decontaminate.__file__).parent


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A benchmark of three prompts in place of the real ones."""
    wholes, spans = hash_prompts([SHORT, SEVEN, LONG])
    tables = dict.fromkeys(wholes, "mine"), dict.fromkeys(spans, "mine")
    monkeypatch.setattr(decontaminate, "_tables", lambda: tables)


@pytest.mark.parametrize(
    "text",
    [SHORT, SHORT.upper() + "!", f"  {SHORT.replace(' ', '   ')}.\n", "six-silver, spoons: asleep"],
)
def test_case_marks_and_spacing_hide_nothing(own: None, text: str):
    assert find_benchmark(text) == Match("mine", "exact")


def test_a_short_prompt_inside_another_text_is_no_match(own: None):
    assert find_benchmark(f"{SHORT} in a drawer") is None


def test_a_prompt_of_seven_words_is_found_inside_another_text(own: None):
    assert len(prompt_words(SEVEN)) == SHORTEST
    assert find_benchmark(f"please draw {SEVEN}, 8k") == Match("mine", "near")


def test_any_run_of_nine_words_of_a_long_prompt_is_found(own: None):
    words = prompt_words(LONG)
    for start in range(len(words) - SPAN):
        run = " ".join(words[start : start + SPAN + 1])
        assert find_benchmark(f"i saw {run} yesterday") == Match("mine", "near"), run
    assert find_benchmark(" ".join(words[: SPAN - 1])) is None


def test_exact_comes_before_near(own: None):
    assert find_benchmark(LONG) == Match("mine", "exact")


@pytest.mark.parametrize("text", ["", " ", "...", "a dog", "\ud800", "名字"])
def test_other_texts_pass(own: None, text: str):
    assert find_benchmark(text) is None


def test_apostrophes_of_both_kinds_are_one(own: None):
    assert prompt_words("Don’t, CAN'T") == ["dont", "cant"]


def test_the_file_holds_hashes_alone_and_what_its_card_says():
    path = PACKAGE / "benchmarks.safetensors"
    assert path.stat().st_size < 1 << 20
    arrays, card = load_file(path), sources()
    assert set(card["benchmarks"]) == {
        "geneval", "t2i-compbench", "partiprompts", "dpg-bench", "genai-bench", "vbench",
    }  # fmt: skip
    for name, counts in card["benchmarks"].items():
        for part, number in counts.items():
            hashes = arrays.pop(f"{name}/{part}")
            assert len(hashes) == number > 0
            assert hashes.dtype == "uint64"
            # Hashes are spread over all 64 bits; bytes of texts would not be.
            assert 0.4 < float((hashes >> 63).mean()) < 0.6
    assert not arrays


def test_counts_are_those_of_the_benchmarks():
    sizes = {name: row["wholes"] for name, row in sources()["benchmarks"].items()}
    assert sizes["geneval"] == 553
    assert sizes["dpg-bench"] == 1065
    assert sizes["partiprompts"] == 1631  # of 1,632, two differ in spelling marks alone
    assert sizes["genai-bench"] >= 1600


def test_the_worlds_photo_template_is_genevals():
    found = [find_benchmark(f"a photo of {articled(cls)}") for cls in CLASSES]
    assert found.count(Match("geneval", "exact")) > len(CLASSES) * 0.8


def ordinary_prompts() -> list[str]:
    """What people might ask for, written for the checks of constraints."""
    rows: list[dict[str, Any]] = [
        json.loads(line)
        for path in sorted(Path(__file__).parent.glob("constraint_*.jsonl"))
        for line in path.read_text("utf-8").splitlines()
    ]
    return [row.get("original") or row.get("prompt") or "" for row in rows]


def test_ordinary_prompts_are_seldom_near():
    """Of 1,595 texts; of 2,000 captions of COCO the card's controls say how many."""
    prompts = ordinary_prompts()
    near = [p for p in prompts if (m := find_benchmark(p)) and m.kind == "near"]
    assert len(prompts) > 1000
    assert len(near) < 0.005 * len(prompts), near
    captions = sources()["controls"]["found"]["COCO captions"]
    assert captions["near"] < 0.005 * captions["texts"]


def test_the_other_copy_of_a_benchmark_is_found_whole():
    copy = sources()["controls"]["found"]["PartiPrompts of another copy"]
    assert copy["exact"] == copy["texts"] > 1000
