"""The file that ties a benchmark's folder to its settings, and keeps what is in it out of training
data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2x.errors import T2XError
from t2x.files import write_whole

MARKER = "t2x-benchmark.json"
_WHAT = "pictures and rewrites of a public benchmark: for measuring, never for training"

__all__ = ["MARKER", "DamagedMarkerError", "read_marker", "refuse_benchmark", "write_marker"]


class DamagedMarkerError(T2XError):
    """The file is there and is no JSON: a disk was full, or a copy broke off."""


def write_marker(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings, which are JSON values, into ``folder``."""
    text = json.dumps({"what": _WHAT, **settings}, ensure_ascii=False, indent=1) + "\n"
    write_whole(folder / MARKER, text)


def read_marker(folder: Path) -> dict[str, Any] | None:
    """The settings of a folder; None if it is no benchmark's. Raises T2XError."""
    try:
        value = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise T2XError(f"cannot read {folder / MARKER}: {error}") from error
    except ValueError as error:
        raise DamagedMarkerError(
            f"cannot read {folder / MARKER}: {error}; --overwrite begins the run anew"
        ) from error
    if not isinstance(value, dict) or value.pop("what", None) is None:
        raise T2XError(f"{folder / MARKER} was not written by t2x; move it away")
    return value


def refuse_benchmark(path: str | Path) -> None:
    """Raise T2XError if a file or folder lies in what ``t2x benchmark`` wrote."""
    here = Path(path).absolute()
    for folder in (here, *here.parents):
        if (folder / MARKER).is_file():
            raise T2XError(
                f"{str(path)!r} lies in {str(folder)!r}, which holds a public benchmark's prompts: "
                "they must never become training data; give other prompts"
            )
