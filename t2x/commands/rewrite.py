"""``t2x rewrite``: prompts from the command line or a JSONL file, each rewritten once or more."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from t2x.commands.console import check_prompts, note, plain, print_json, print_table
from t2x.errors import T2XError

if TYPE_CHECKING:
    from t2x.types import Generator, Rewrite, Rewriter

CHUNK = 32

__all__ = ["rewrite"]


@dataclass(frozen=True)
class Line:
    """One input line: its number from 1, and its prompt or the reason why it has none."""

    number: int
    prompt: str = ""
    error: str = ""


def rewrite(
    prompts: Annotated[list[str] | None, typer.Argument(help="What you want to see.")] = None,
    source: Annotated[
        str | None,
        typer.Option("--in", help="JSONL with a text or {'prompt': ...} per line; - is stdin."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write JSONL here instead of stdout.")] = None,
    model: Annotated[
        str, typer.Option("--model", help="A name from `t2x list`, a folder, or a hub id.")
    ] = "emoji-rewriter",
    num: Annotated[int, typer.Option("--num", "-n", min=1, help="Rewrites per prompt.")] = 1,
    seed: Annotated[int, typer.Option(help="Same prompt, seed and model: same text.")] = 0,
    target: Annotated[
        str | None, typer.Option(help="Generator whose token limits a rewrite must keep.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> None:
    """Rewrite prompts so that the generator understands them.

    Every rewrite is checked against the prompt; what breaks a check is given back unchanged, with
    the reason.
    """
    if bool(prompts) == (source is not None):
        raise T2XError("give prompts on the command line or a file with --in, one of both")
    if prompts:
        check_prompts(prompts)
        lines: Iterator[Line] = (Line(i, text) for i, text in enumerate(prompts, 1))
    else:
        lines = _read_lines(_checked_source(source or "-", out))
    from t2x.rewriters.loading import load_guarded

    rewriter = load_guarded(model, generator=None if target is None else _load_target(target))
    records = _records(rewriter, lines, num, seed)
    if as_json or source is not None or out is not None:
        _write(records, out)
    else:
        _show(list(records))


def _load_target(name: str) -> Generator:
    from t2x.registry import load_generator

    return load_generator(name)


def _checked_source(source: str, out: Path | None) -> str:
    if source != "-" and not Path(source).is_file():
        raise T2XError(f"there is no file {source!r}; give a JSONL file, or - for stdin")
    if source != "-" and out is not None and out.exists() and out.samefile(source):
        raise T2XError(f"--out is the input {source!r} itself; give another file")
    return source


def _read_lines(source: str) -> Iterator[Line]:
    """Read JSONL lazily; blank lines are skipped, bad ones come with the reason."""
    with nullcontext(sys.stdin.buffer) if source == "-" else open(source, "rb") as file:
        for number, raw in enumerate(file, 1):
            if raw.strip():
                yield _parse_line(number, raw)


def _parse_line(number: int, raw: bytes) -> Line:
    try:
        value = json.loads(raw)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        return Line(number, error=f"not valid JSON: {error}")
    prompt = value.get("prompt") if isinstance(value, dict) else value
    if not isinstance(prompt, str):
        return Line(number, error="neither a text nor an object with a text under 'prompt'")
    if not prompt.strip():
        return Line(number, error="the prompt is empty")
    return Line(number, prompt)


def _records(
    rewriter: Rewriter, lines: Iterable[Line], num: int, seed: int
) -> Iterator[dict[str, Any]]:
    """Give one record per input line, in order, working on a few lines at a time."""
    iterator = iter(lines)
    while chunk := list(islice(iterator, CHUNK)):
        good = [line.prompt for line in chunk if not line.error]
        answers = iter(rewriter.rewrite(good, num_generations=num, seed=seed) if good else [])
        for line in chunk:
            if line.error:
                yield {"line": line.number, "error": line.error}
            else:
                yield {
                    "line": line.number,
                    "prompt": line.prompt,
                    "rewrites": [rewrite_record(item) for item in next(answers)],
                }


def rewrite_record(item: Rewrite) -> dict[str, Any]:
    """Give the fields of a rewrite that a reader of the output needs."""
    fields = asdict(item)
    fields["checks"] = [check for check in fields["checks"] if not check["passed"]]
    return {key: value for key, value in fields.items() if key not in ("original", "raw")}


def _write(records: Iterable[dict[str, Any]], out: Path | None) -> None:
    bad = total = 0
    target: Any = nullcontext(None)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        target = out.open("w", encoding="utf-8")
    with target as file:
        for record in records:
            total += 1
            bad += "error" in record
            _write_line(record, file)
    if bad:
        raise T2XError(f"{bad} of {total} lines hold no prompt; see 'error' in the output")
    if out is not None:
        note(f"{total} lines written to {out}")


def _write_line(record: dict[str, Any], file: IO[str] | None) -> None:
    if file is None:
        print_json(record, indent=None)
    else:
        file.write(json.dumps(plain(record), ensure_ascii=False) + "\n")


def _show(records: list[dict[str, Any]]) -> None:
    rows = []
    for record in records:
        for item in record["rewrites"]:
            reasons = "; ".join(check["reason"] or check["name"] for check in item["checks"])
            status = f"{item['status']}: {reasons}" if reasons else item["status"]
            rows.append((record["prompt"], item["text"], status))
    print_table("", ("prompt", "rewrite", "status"), rows)
