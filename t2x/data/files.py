"""Data files and the cards beside them: JSONL or parquet, the same bytes for the same rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2x.errors import T2XError
from t2x.files import made_folder, write_whole
from t2x.plain import json_line, plain

__all__ = ["FORMATS", "card_path", "check_free", "read_rows", "write_rows"]

FORMATS = (".jsonl", ".parquet")


def card_path(path: Path) -> Path:
    """Where the card of a data file is: ``pairs.json`` for ``pairs.parquet``."""
    return path.with_suffix(".json")


def check_free(path: Path, *, overwrite: bool = False) -> None:
    """Raise T2XError if ``path`` is of another kind or taken; called before the work begins."""
    if path.suffix not in FORMATS:
        raise T2XError(f"{str(path)!r} must end in {' or '.join(FORMATS)}; give such a name")
    taken = [p for p in (path, card_path(path)) if p.exists()]
    if taken and not overwrite:
        raise T2XError(
            f"{str(taken[0])!r} is there; give another name, or --overwrite to make it anew"
        )
    made_folder(path.parent)
    if path.suffix == ".parquet":
        _pyarrow()


def write_rows(
    path: Path, rows: Sequence[Mapping[str, Any]], card: Mapping[str, Any], *, overwrite: bool
) -> dict[str, Any]:
    """Write rows and the card beside them, and give the card.

    To what it is given the card adds how many rows there are, the columns and the SHA-256 of the
    file. Raises T2XError if there are no rows: nothing could be trained on them.
    """
    check_free(path, overwrite=overwrite)
    if not rows:
        raise T2XError(
            f"no row is left for {str(path)!r}: {json.dumps(plain(card.get('dropped', {})))}; "
            "give more prompts, or rules that let more through"
        )
    if path.suffix == ".parquet":
        _write_parquet(path, rows)
    else:
        write_whole(path, "".join(map(json_line, rows)))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    whole = {**card, "file": path.name, "rows": len(rows), "columns": [*rows[0]], "sha256": digest}
    write_whole(card_path(path), json.dumps(plain(whole), ensure_ascii=False, indent=1) + "\n")
    return whole


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Give the rows of a data file one by one; T2XError for one that is not there, and for a line
    that is no JSON object.
    """
    if not path.is_file():
        raise T2XError(f"there is no file {str(path)!r}")
    if path.suffix == ".parquet":
        for batch in _pyarrow().ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
        return
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _row(line, number, path)


def _row(line: str, number: int, path: Path) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise T2XError(f"line {number} of {str(path)!r} is no valid JSON: {error}") from error
    if not isinstance(row, dict):
        raise T2XError(f"line {number} of {str(path)!r} is no JSON object; write one per line")
    return row


def _write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    import pyarrow

    table = pyarrow.Table.from_pylist([dict(row) for row in rows])
    part = path.with_name(f"{path.name}.part")
    try:
        _pyarrow().write_table(table, part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _pyarrow() -> Any:
    from t2x.registry import missing_dependency

    try:
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise missing_dependency(error) from error
    return pyarrow.parquet
