"""Prompts from every kind of source, and which of them stay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from t2x.data.files import write_rows
from t2x.data.prompts import PromptRules, Sieve
from t2x.data.rows import prompt_row
from t2x.data.sources import Sourced, read_prompts
from t2x.errors import T2XError
from t2x.world.scene import CLASSES
from t2x.world.words import articled

PROMPTS = ["a heron on ice", "two kayaks, one green", "名字"]


def texts(source: str, column: str | None = None) -> list[str]:
    return [p.text for p in read_prompts(source, column=column)]


def test_lines_csv_and_rows_are_read():
    Path("a.txt").write_text("\n".join(PROMPTS), "utf-8")
    Path("a.csv").write_text("id,prompt\n" + "".join(f'{i},"{p}"\n' for i, p in enumerate(PROMPTS)))
    rows = [{"text": p, "id": i} for i, p in enumerate(PROMPTS)]
    Path("a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("a.txt", "a.csv", "a.jsonl"):
        assert texts(name) == PROMPTS, name


@pytest.mark.extra("train")
def test_parquet_and_messages_are_read():
    rows = [prompt_row(p, "seen") for p in PROMPTS]
    write_rows(Path("a.parquet"), rows, {}, overwrite=False)
    assert texts("a.parquet") == PROMPTS
    assert texts("a.parquet", "prompt") == ["seen"] * 3


def test_bad_lines_are_counted_and_stop_nothing():
    Path("a.jsonl").write_text('{"prompt": "a heron"}\n{"prompt": 3}\n{"prompt": "\\ud800"}\n')
    sieve = Sieve(PromptRules())
    assert [p.text for p in sieve.admit(read_prompts("a.jsonl"))] == ["a heron"]
    assert sieve.dropped == {"no text in the column": 2}
    Path("a.csv").write_text('prompt,id\n"a heron",1\na,b,c\n')
    sieve = Sieve(PromptRules())
    assert [p.text for p in sieve.admit(read_prompts("a.csv"))] == ["a heron"]
    assert sieve.dropped == {"unreadable line": 1}


@pytest.mark.parametrize("source", ["nothing", "a.zip", "missing.jsonl", "missing.txt"])
def test_a_source_that_is_not_there_is_said(source: str):
    with pytest.raises(T2XError, match=source.partition(".")[0]):
        list(read_prompts(source))


def test_a_column_that_is_not_there_is_said_with_those_that_are():
    Path("a.jsonl").write_text('{"words": "a heron"}\n')
    with pytest.raises(T2XError, match=r"words.*--column"):
        texts("a.jsonl")
    assert texts("a.jsonl", "words") == ["a heron"]


def test_each_reason_is_counted():
    prompts = [
        "a heron",
        "A HERON!",
        " ",
        "one",
        "a very long request with many words",
        "cats BREAK dogs",
        f"a photo of {articled(CLASSES[0])}",
    ]
    sieve = Sieve(PromptRules(min_words=2, max_words=6))
    assert [p.text for p in sieve.admit(map(Sourced, prompts))] == ["a heron"]
    assert sieve.dropped == {
        "repeated": 1,
        "empty": 1,
        "too short": 1,
        "too long": 1,
        "in several parts, or in none": 1,
        "geneval (exact)": 1,
    }


def test_prompts_that_are_too_long_for_the_policy_are_left_out_and_never_cut():
    sieve = Sieve(PromptRules(max_tokens=9), count_tokens=len)
    assert [p.text for p in sieve.admit([Sourced("a heron"), Sourced("a tall heron")])] == [
        "a heron"
    ]
    assert sieve.dropped == {"too many tokens": 1}
    with pytest.raises(T2XError, match="max_tokens"):
        Sieve(PromptRules(max_tokens=9))


def test_two_sets_can_be_kept_apart():
    """RL on prompts that SFT has not seen, as PromptEnhancer."""
    sieve = Sieve(PromptRules())
    sieve.exclude([Sourced("A heron.")])
    assert [p.text for p in sieve.admit([Sourced("a heron"), Sourced("a kayak")])] == ["a kayak"]
    assert sieve.dropped == {"in the other file": 1}


@pytest.mark.extra("train")
def test_a_data_set_of_the_hub_is_streamed(monkeypatch: pytest.MonkeyPatch):
    import datasets

    def load(name: str, *, split: str, streaming: bool) -> Iterator[dict[str, str]]:
        assert (name, split, streaming) == ("owner/prompts", "test", True)
        return iter([{"caption": "a heron"}, {"caption": "a kayak"}])

    monkeypatch.setattr(datasets, "load_dataset", load)
    found = read_prompts("owner/prompts", split="test")
    assert [p.text for p in found] == ["a heron", "a kayak"]


def test_repeats_and_benchmarks_stay_where_they_are_wanted():
    photo = f"a photo of {articled(CLASSES[0])}"
    sieve = Sieve(PromptRules(repeated=True, decontaminated=False))
    assert len([*sieve.admit(map(Sourced, [photo, photo]))]) == 2


@pytest.mark.parametrize("name", ["min_words", "max_words", "max_tokens"])
def test_wrong_numbers_are_refused(name: str):
    with pytest.raises(T2XError, match=name):
        PromptRules(**{name: 0})
