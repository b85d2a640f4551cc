"""A column of CSV, record by record, whatever the file holds."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path

import pytest

from t2x.errors import T2XError
from t2x.jobs import columns
from t2x.jobs.columns import Record, read_column
from t2x.jobs.lines import file_source, input_source, read_lines
from t2x.jobs.rewriting import rewrite_file
from t2x.testing import FakeRewriter

TEXTS = ["a cat", 'a sign "open", lit', "two\nlines", "", " a;b\tc ", "猫", '"', "x,y\r\nz"]


def read(data: bytes, column: str = "prompt") -> list[Record]:
    return list(read_column(iter(data.splitlines(keepends=True)), column))


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_what_a_writer_wrote_is_read_back(separator: str, mark: str) -> None:
    file = io.StringIO()
    writer = csv.writer(file, delimiter=separator)
    writer.writerow(["id", "prompt", "note"])
    writer.writerows([i, text, "n"] for i, text in enumerate(TEXTS))
    found = read((mark + file.getvalue()).encode())
    assert [record.text for record in found] == TEXTS
    assert [record.number for record in found] == [2, 3, 4, 6, 7, 8, 9, 10]
    Path("in.csv").write_bytes((mark + file.getvalue()).encode())
    assert file_source(Path("in.csv")).total == len(TEXTS)


def test_a_bad_record_has_a_reason_and_the_next_is_read() -> None:
    data = b'id,prompt\n1,a cat\n2\n3,"a ""dog"" x" y\n4,\xff\n\n5,a,b\n6,"open\n7,a bus\n'
    found = read(data)
    assert [(r.number, r.text) for r in found if not r.error] == [(2, "a cat"), (9, "a bus")]
    errors = {record.number: record.error for record in found if record.error}
    assert list(errors) == [3, 4, 5, 7, 8]
    assert errors[3] == "1 fields where the header has 2" and "not valid CSV" in errors[4]
    assert "not UTF-8" in errors[5] and errors[8] == "a quoted field is not closed"


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_quote_within_a_field_is_text(separator: str) -> None:
    texts = ['a 12" vinyl record', "a red cat", 'a 7" single', "a dog", 'x, "y", z; "w" and\t"v']
    texts[-1] = texts[-1].replace(separator, " ")
    data = "".join(f"{text}{separator}{i}\n" for i, text in enumerate(["prompt", *texts])).encode()
    data = data.replace(b"0\n", b"n\n", 1)
    assert [(r.number, r.text, r.error) for r in read(data)] == [
        (i, text, "") for i, text in enumerate(texts, 2)
    ]
    Path("in.csv").write_bytes(data)
    done = rewrite_file(file_source(Path("in.csv")), "o.jsonl", rewriter=FakeRewriter())
    assert (done.written, done.bad) == (5, 0) and file_source(Path("in.csv")).total == 5


def test_lines_that_are_no_record_together_are_read_one_by_one() -> None:
    data = b'prompt,n\n"big" cat,1\n"open,2\na red cat,3\na "dog,4\n"a bus",5\n"two\nlines",6\n'
    found = read(data)
    assert [(r.number, r.text) for r in found if not r.error] == [
        (4, "a red cat"), (5, 'a "dog'), (6, "a bus"), (7, "two\nlines"),
    ]  # fmt: skip
    assert [r.number for r in found if r.error] == [2, 3]


def test_an_open_quote_takes_no_more_than_a_record_s_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MAX_LINE", 100)
    taken = 0

    def lines():
        nonlocal taken
        yield b"prompt\n"
        yield b'"never closed\n'
        for i in range(10_000):
            taken = i
            yield b"cat %d\n" % i

    records = read_column(lines(), "prompt")
    assert next(records) == Record(2, error="a quoted field is not closed")
    assert taken < 20
    assert next(records) == Record(3, "cat 0")


def test_quotes_that_close_amid_text_are_found_at_once() -> None:
    """Or each of many such lines would look through a megabyte."""
    taken = 0

    def lines():
        nonlocal taken
        yield b"prompt,n\n"
        for _ in range(10_000):
            taken += 1
            yield b'a"b,"c\n'

    records = read_column(lines(), "prompt")
    assert next(records).error and taken < 3


def test_a_missing_column_is_told_with_those_that_are_there() -> None:
    with pytest.raises(T2XError, match=r"no column 'prompt'; it names 'id', 'text'"):
        read(b"id,text\n1,a cat\n")
    with pytest.raises(T2XError, match="it names none"):
        read(b"")


def test_a_job_over_csv_counts_records_and_names_lines() -> None:
    Path("in.csv").write_bytes(b'id;text\n1;a cat\n2;"two\ndogs"\n3\n4;" "\n5;a bus\n')
    source = input_source("in.csv", column="text")
    assert (source.form, source.total, source.column) == ("csv", 5, "text")
    done = rewrite_file(source, "o.jsonl", rewriter=FakeRewriter())
    assert (done.written, done.bad) == (3, 2)
    good = [json.loads(line) for line in Path("o.jsonl").read_text("utf-8").splitlines()]
    assert [(row["index"], row["prompt"]) for row in good] == [
        (0, "a cat"), (1, "two\ndogs"), (4, "a bus"),
    ]  # fmt: skip
    bad = [json.loads(line) for line in Path("o.jsonl.errors").read_text("utf-8").splitlines()]
    assert [(row["index"], row["line"]) for row in bad] == [(2, 5), (3, 6)]
    with pytest.raises(T2XError, match="column was 'text', is 'id'"):
        rewrite_file(input_source("in.csv", column="id"), "o.jsonl", rewriter=FakeRewriter())


def test_a_column_is_for_csv_alone() -> None:
    Path("in.jsonl").write_text('"a cat"\n')
    with pytest.raises(T2XError, match="--column 'x' is for CSV"):
        input_source("in.jsonl", column="x")
    Path("table").write_text("prompt\na cat\n")
    assert [line.prompt for line in read_lines(file_source(Path("table"), "csv"))] == ["a cat"]


def test_noise_never_stops_the_reader() -> None:
    rng = random.Random(0)
    for _ in range(300):
        size = rng.randrange(60)
        noise = bytes(rng.choice(b'a",\n\r;\xff\0x') for _ in range(size))
        for record in read(b"prompt,x\n" + noise):
            assert record.number >= 2 and not (record.error and record.text)
