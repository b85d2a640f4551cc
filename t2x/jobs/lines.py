"""Prompts out of a file with one per line, read as a stream: whatever a line holds, the next one
is read, and no line takes more memory than ``MAX_LINE``. A record of CSV counts as one line.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

from t2x.errors import T2XError
from t2x.jobs.columns import MAX_LINE, read_column
from t2x.plain import is_text

Format: TypeAlias = Literal["auto", "jsonl", "text", "csv"]
_BLOCK = 1 << 20
_SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".txt": "text",
    ".csv": "csv",
    ".tsv": "csv",
}
_BOM = "\ufeff"

__all__ = [
    "MAX_LINE",
    "Format",
    "Line",
    "Source",
    "blocks",
    "file_source",
    "input_source",
    "prompt_lines",
    "prompt_source",
    "read_lines",
]


@dataclass(frozen=True)
class Line:
    """One line: its index from 0, and its prompt or the reason why it has none; neither if it is
    blank. ``number`` is where it begins in the file, from 1; 0 is one more than its index."""

    index: int
    prompt: str = ""
    error: str = ""
    number: int = 0


@dataclass(frozen=True)
class Source:
    """Where lines come from.

    ``digest`` names the content, and ``total`` counts its lines; both are None for a stream, which
    can be read only once. ``path`` is that of a file. ``column`` of CSV holds the prompts.
    """

    open: Callable[[], AbstractContextManager[BinaryIO]]
    form: Format
    digest: str | None = None
    total: int | None = None
    path: Path | None = None
    column: str | None = None


def input_source(name: str, form: Format = "auto", *, column: str | None = None) -> Source:
    """Take a file, or standard input for ``-``."""
    if name == "-":
        return _with_column(Source(lambda: nullcontext(sys.stdin.buffer), form), column)
    return file_source(Path(name), form, column=column)


def file_source(path: Path, form: Format = "auto", *, column: str | None = None) -> Source:
    """Take a file; it is read through once, to know it again and to count its lines.

    ``auto`` goes by the name (.jsonl and .ndjson, .txt, .csv and .tsv), else by the first line,
    which is then never taken for CSV. ``column`` of CSV holds the prompts; None is "prompt".
    """
    if not path.is_file():
        raise T2XError(
            f"there is no file {str(path)!r}; give one with a prompt per line, or - for stdin"
        )
    digest, breaks, last = hashlib.sha256(), 0, b"\n"
    with path.open("rb") as file:
        for block in blocks(file):
            if not breaks:
                _check_text(block, path)
            digest.update(block)
            breaks += block.count(b"\n")
            last = block
    total = breaks + (not last.endswith(b"\n"))
    if form == "auto":
        form = _SUFFIXES.get(path.suffix.lower(), "auto")
    source = Source(lambda: path.open("rb"), form, digest.hexdigest(), total, path)
    source = _with_column(source, column)
    if form == "csv":
        source = replace(source, total=sum(1 for _ in read_lines(source)))
    return source


def _check_text(block: bytes, path: Path) -> None:
    """Refuse what would be read as other prompts than are there."""
    if block.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise T2XError(f"{str(path)!r} is UTF-16; save it as UTF-8")
    if b"\n" not in block and b"\r" in block.rstrip(b"\r"):
        raise T2XError(f"the lines of {str(path)!r} end in CR alone; save it with LF or CRLF")


def _with_column(source: Source, column: str | None) -> Source:
    if column is not None and source.form != "csv":
        raise T2XError(
            f"--column {column!r} is for CSV; give a .csv file, or --format csv, or leave it out"
        )
    return replace(source, column=(column or "prompt") if source.form == "csv" else None)


def prompt_source(prompts: Sequence[str]) -> Source:
    """Take prompts as they are."""
    data = "".join(f"{json.dumps(prompt)}\n" for prompt in prompts).encode("ascii")
    digest = hashlib.sha256(data).hexdigest()
    return Source(lambda: io.BytesIO(data), "jsonl", digest, len(prompts))


def prompt_lines(prompts: Iterable[Any]) -> Iterator[Line]:
    """Take prompts of any iterable as lines; what is no prompt is a bad one."""
    if isinstance(prompts, str):
        raise TypeError("prompts is one string; give a list of strings, or any other iterable")
    for index, prompt in enumerate(prompts):
        if isinstance(prompt, str):
            yield _line(index, prompt)
        else:
            yield Line(index, error=f"a prompt is a text, given {type(prompt).__name__}")


def blocks(file: BinaryIO) -> Iterator[bytes]:
    """Give the rest of a file in blocks of a megabyte."""
    while block := file.read(_BLOCK):
        yield block


def read_lines(source: Source) -> Iterator[Line]:
    """Read every line, blank and bad ones included, so that an index is a place in the file."""
    if source.form == "csv":
        with source.open() as file:
            for index, record in enumerate(read_column(_raw_lines(file), source.column or "")):
                line = Line(index, error=record.error)
                found = line if record.error else _line(index, record.text)
                yield replace(found, number=record.number)
        return
    parse = _PARSERS.get(source.form)
    with source.open() as file:
        for index, raw in enumerate(_raw_lines(file)):
            if not raw.strip():
                yield Line(index)
                continue
            if len(raw.rstrip(b"\r\n")) > MAX_LINE:
                yield Line(index, error=f"the line is longer than {MAX_LINE} bytes")
                continue
            if parse is None:  # the first line that says something decides
                parse = _PARSERS["jsonl" if _is_json(raw, index) else "text"]
            yield parse(raw, index)


def _raw_lines(file: BinaryIO) -> Iterator[bytes]:
    """Split at line feeds; of a line that is too long the rest is skipped."""
    while raw := file.readline(MAX_LINE + 2):
        rest = raw
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(_BLOCK)
        yield raw


def _is_json(raw: bytes, index: int) -> bool:
    try:
        return isinstance(json.loads(_text(raw, index)), dict | str)
    except (ValueError, RecursionError):
        return False


def _json_prompt(raw: bytes, index: int) -> Line:
    try:
        value = json.loads(_text(raw, index))
    except UnicodeDecodeError as error:
        return Line(index, error=f"not UTF-8: {error}")
    except (ValueError, RecursionError) as error:  # no JSON, a number too long, nested too deep
        return Line(index, error=f"not valid JSON: {error}")
    prompt = value.get("prompt") if isinstance(value, dict) else value
    if not isinstance(prompt, str):
        return Line(index, error="neither a text nor an object with a text under 'prompt'")
    return _line(index, prompt)


def _text_prompt(raw: bytes, index: int) -> Line:
    try:
        return _line(index, _text(raw, index).rstrip("\r\n"))
    except UnicodeDecodeError as error:
        return Line(index, error=f"not UTF-8: {error}")


def _text(raw: bytes, index: int) -> str:
    """Decode a line; editors on Windows put a mark before the first one."""
    text = raw.decode("utf-8")
    return text.removeprefix(_BOM) if index == 0 else text


def _line(index: int, prompt: str) -> Line:
    if not prompt.strip():
        return Line(index, error="the prompt is empty")
    if not is_text(prompt):
        return Line(index, error="the prompt is no valid Unicode text")
    return Line(index, prompt)


_PARSERS: dict[str, Callable[[bytes, int], Line]] = {"jsonl": _json_prompt, "text": _text_prompt}
