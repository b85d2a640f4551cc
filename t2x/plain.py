"""From results to what JSON can hold."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["json_line", "plain"]


def plain(value: Any) -> Any:
    """Turn a result into JSON values: NaN and infinity, for which JSON has no word, become None,
    and half surrogate pairs, which no file can hold, question marks."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) or value is None:
        return value
    return str(value).encode("utf-8", "replace").decode("utf-8")


def json_line(value: Any) -> str:
    """Write a result as one line of JSONL, with its line break."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False) + "\n"
