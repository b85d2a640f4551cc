"""Data files: the same bytes for the same rows, read back by datasets, never overwritten."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest

from t2x.data.files import card_path, check_free, read_rows, write_rows
from t2x.data.rows import pair_row, prompt_row, sft_row, text_length
from t2x.errors import T2XError

ROWS: list[dict[str, Any]] = [
    sft_row("a cat", "<answer>a cat 猫\n</answer>", kind="plain", score=1.5),
    sft_row('a "ß" dog', "<answer>TEXT1</answer>", 'a "TEXT1" dog', kind="photo", score=-2.0),
]
FORMATS = [".jsonl", pytest.param(".parquet", marks=pytest.mark.extra("train"))]


@pytest.mark.parametrize("suffix", FORMATS)
def test_rows_come_back_as_they_were(suffix: str):
    path = Path(f"rows{suffix}")
    card = write_rows(path, ROWS, {"command": "x"}, overwrite=False)
    assert list(read_rows(path)) == ROWS
    assert card["rows"] == 2
    assert card["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert json.loads(card_path(path).read_text("utf-8")) == card


@pytest.mark.extra("train")
@pytest.mark.parametrize(("suffix", "kind"), [(".jsonl", "json"), (".parquet", "parquet")])
def test_datasets_reads_both_formats_alike(suffix: str, kind: str):
    from datasets import load_dataset

    path = Path(f"rows{suffix}")
    write_rows(path, ROWS, {}, overwrite=False)
    rows = load_dataset(kind, data_files=str(path), split="train", cache_dir="cache")
    assert rows.to_list() == ROWS
    rows.to_json("again.jsonl")
    assert list(read_rows(Path("again.jsonl"))) == ROWS


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_same_rows_are_the_same_bytes(suffix: str):
    for name in ("a", "b"):
        write_rows(Path(f"{name}{suffix}"), ROWS, {}, overwrite=False)
    assert Path(f"a{suffix}").read_bytes() == Path(f"b{suffix}").read_bytes()


@pytest.mark.parametrize("taken", ["rows.jsonl", "rows.json"])
def test_nothing_is_overwritten_unless_asked(taken: str):
    Path(taken).write_text("mine")
    path = Path("rows.jsonl")
    with pytest.raises(T2XError, match="--overwrite"):
        write_rows(path, ROWS, {}, overwrite=False)
    assert Path(taken).read_text() == "mine"
    write_rows(path, ROWS, {}, overwrite=True)
    assert list(read_rows(path)) == ROWS


def test_another_kind_of_file_and_an_empty_one_are_refused():
    with pytest.raises(T2XError, match=r"\.jsonl or \.parquet"):
        check_free(Path("rows.csv"))
    with pytest.raises(T2XError, match="no row is left"):
        write_rows(Path("rows.jsonl"), [], {"dropped": {"repeated": 3}}, overwrite=False)
    assert not Path("rows.jsonl").exists()


def test_what_is_no_row_is_said_with_its_line():
    Path("rows.jsonl").write_text('{"a": 1}\n\n[1]\n')
    with pytest.raises(T2XError, match="line 3"):
        list(read_rows(Path("rows.jsonl")))


def test_a_missing_number_is_null():
    write_rows(Path("rows.jsonl"), [prompt_row("a cat", score=math.nan)], {}, overwrite=False)
    assert next(read_rows(Path("rows.jsonl")))["score"] is None


def test_rows_are_in_the_formats_of_trl():
    row = pair_row("a <lora:x:1> cat", "good", "bad", "a cat", margin=0.5)
    assert row == {
        "prompt": [{"role": "user", "content": "a cat"}],
        "original_prompt": "a <lora:x:1> cat",
        "chosen": [{"role": "assistant", "content": "good"}],
        "rejected": [{"role": "assistant", "content": "bad"}],
        "margin": 0.5,
    }


@pytest.mark.parametrize(
    ("text", "length"), [("", 0), ("two red cats.", 4), ("猫が2匹", 4), ("a-b, c", 5)]
)
def test_length_counts_words_marks_and_characters(text: str, length: int):
    assert text_length(text) == length
