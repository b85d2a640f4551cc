"""One column of a CSV file, as a stream (RFC 4180; commas, semicolons or tabs).

A field in quotes may hold line breaks, so that a record may be several lines. Only a quote that a
field begins with opens one: `a 12" record` is text. One that is never closed would take the whole
rest of the file for one field: past ``MAX_LINE`` bytes, at the end of the file, or where the lines
together are no record, the first line is a bad one, and reading goes on with the line after it.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from t2x.errors import T2XError

MAX_LINE = 1 << 20  # bytes; a prompt is a few hundred
_SEPARATORS = ",;\t"
_MARK = b"\xef\xbb\xbf"  # editors on Windows begin a file with it

__all__ = ["MAX_LINE", "Record", "column_names", "read_column"]


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
    reader = _Reader(lines)
    _, head, _ = reader.take(_SEPARATORS) or (1, [], True)
    separator, place, width = _header(b"".join(head), column)
    while taken := reader.take(separator):
        number, held, closed = taken
        raw = b"".join(held)
        if not raw.strip():
            continue
        if not closed:
            record = Record(number, error="a quoted field is not closed")
        elif len(raw.rstrip(b"\r\n")) > MAX_LINE:
            record = Record(number, error=f"the record is longer than {MAX_LINE} bytes")
        else:
            record = _record(number, raw, separator, place, width)
        if record.error:
            reader.give_back(held[1:])
        yield record


def column_names(lines: Iterator[bytes]) -> list[str]:
    """The names in the header, split at the separator that gives most of them."""
    taken = _Reader(lines).take(_SEPARATORS)
    text = b"".join(taken[1]).decode("utf-8-sig", "replace") if taken else ""
    found = (next(csv.reader([text], delimiter=separator), []) for separator in _SEPARATORS)
    return [name.strip() for name in max(found, key=len) if name.strip()]


class _Reader:
    """Takes lines, as many as a record's quotes ask for; ``number`` is that of the next one."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self._ahead: deque[bytes] = deque()
        self.number = 1

    def take(self, separators: str) -> tuple[int, list[bytes], bool] | None:
        """Give the number of the first line, the lines, and whether all their quotes are closed;
        None at the end."""
        marks = separators.encode()
        held: list[bytes] = []
        size, inside = 0, False
        while size <= MAX_LINE:
            line = self._ahead.popleft() if self._ahead else next(self._lines, None)
            if line is None:
                break
            held.append(line)
            size += len(line)
            inside = _is_open(line, inside, marks)
            if not inside:
                break
        if not held:
            return None
        number = self.number
        self.number += len(held)
        return number, held, not inside

    def give_back(self, lines: list[bytes]) -> None:
        self._ahead.extendleft(reversed(lines))
        self.number -= len(lines)


def _is_open(line: bytes, inside: bool, separators: bytes) -> bool:
    """Whether a field in quotes goes on behind a line that begins ``inside`` one or not.

    A closing quote with text behind it is no CSV: more lines would not mend that.
    """
    opens = re.compile(rb'[%b]"' % separators)
    at = 0
    if not inside:
        at = len(_MARK) if line.startswith(_MARK) else 0
        inside = line.startswith(b'"', at)
        at += inside
    while True:
        if inside:
            at = line.find(b'"', at) + 1
            if not at:
                return True
            if line.startswith(b'"', at):  # two of them are a quote in the text
                at += 1
                continue
            if line[at : at + 1].strip(b"\r\n" + separators):
                return False
        found = opens.search(line, at)
        if found is None:
            return False
        at, inside = found.end(), True


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
        f"the first line of the CSV names no column {column!r}; it names {shown}; say which of "
        "them holds the prompts (--column)"
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
