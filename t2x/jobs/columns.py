"""One column of a CSV file, as a stream (RFC 4180; commas, semicolons or tabs).

A field in quotes may hold line breaks, so that a record may be several lines. A quote that is never
closed would take the whole rest of the file for one field: past ``MAX_LINE`` bytes or at the end of
the file the record's first line is a bad one, and reading goes on with the line after it.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from t2x.errors import T2XError

MAX_LINE = 1 << 20  # bytes; a prompt is a few hundred
_SEPARATORS = ",;\t"

__all__ = ["MAX_LINE", "Record", "count_records", "read_column"]


@dataclass(frozen=True)
class Record:
    """A record's text in the column, or the reason why it has none; ``number`` is its first
    line."""

    number: int
    text: str = ""
    error: str = ""


def read_column(lines: Iterator[bytes], column: str) -> Iterator[Record]:
    """Give the column of every record behind the header.

    Raises T2XError if the header has no such column.
    """
    records = _records(lines)
    _, head, _ = next(records, (1, b"", True))
    separator, place, width = _header(head, column)
    for number, raw, closed in records:
        if not raw.strip():
            continue
        if not closed:
            yield Record(number, error="a quoted field is not closed")
            continue
        if len(raw.rstrip(b"\r\n")) > MAX_LINE:
            yield Record(number, error=f"the record is longer than {MAX_LINE} bytes")
            continue
        yield _record(number, raw, separator, place, width)


def _records(lines: Iterator[bytes]) -> Iterator[tuple[int, bytes, bool]]:
    """Join lines until their quotes are even; give the number of the first line, the record, and
    whether it is whole: of one that is not, the first line comes alone.
    """
    ahead: deque[bytes] = deque()
    number = 1
    while True:
        held: list[bytes] = []
        size = quotes = 0
        while size <= MAX_LINE:
            line = ahead.popleft() if ahead else next(lines, None)
            if line is None:
                break
            held.append(line)
            size += len(line)
            quotes += line.count(b'"')
            if quotes % 2 == 0:
                break
        if not held:
            return
        if quotes % 2:
            ahead.extendleft(reversed(held[1:]))
            yield number, held[0], False
            number += 1
        else:
            yield number, b"".join(held), True
            number += len(held)


def _header(raw: bytes, column: str) -> tuple[str, int, int]:
    """Find the separator with which the header holds ``column``, its place and the number of
    columns."""
    text = raw.decode("utf-8-sig", "replace")
    for separator in _SEPARATORS:
        names = [name.strip() for name in next(csv.reader([text], delimiter=separator), [])]
        if column in names:
            return separator, names.index(column), len(names)
    names = next(csv.reader([text]), [])
    shown = ", ".join(repr(name) for name in names[:20]) or "none"
    raise T2XError(
        f"the first line of the CSV names no column {column!r}; it names {shown}; give one with "
        "--column"
    )


def _record(number: int, raw: bytes, separator: str, place: int, width: int) -> Record:
    try:
        text = raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
        fields = next(csv.reader([text], delimiter=separator, strict=True))
    except UnicodeDecodeError as error:
        return Record(number, error=f"not UTF-8: {error}")
    except (csv.Error, StopIteration) as error:
        return Record(number, error=f"not valid CSV: {error}")
    if len(fields) != width:
        return Record(number, error=f"{len(fields)} fields where the header has {width}")
    return Record(number, fields[place])


def count_records(file: BinaryIO) -> int:
    """Count records behind the header by line breaks outside quotes; blank ones count too."""
    inside, found, last = False, 0, b"\n"
    while block := file.read(1 << 20):
        for part, piece in enumerate(block.split(b'"')):
            inside ^= bool(part)
            found += 0 if inside else piece.count(b"\n")
        last = block
    return max(0, found + (not last.endswith(b"\n")) - 1)
