"""From results and settings to what JSON and YAML can hold."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["is_text", "json_line", "lines_of", "plain"]


def plain(value: Any, *, exact: bool = False) -> Any:
    """Turn a result into JSON values: NaN and infinity, for which JSON has no word, become None,
    and half surrogate pairs, which no file can hold, question marks.

    Dataclasses become dicts of what their constructor takes, arrays lists, and other objects their
    text. With ``exact`` numbers and texts stay as they are: keys of different values differ, and a
    configuration is read back as it was.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field.name for field in dataclasses.fields(value) if field.init)
        return {name: plain(getattr(value, name), exact=exact) for name in fields}
    if isinstance(value, Mapping):
        return {_key(key): plain(item, exact=exact) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, exact=exact) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist(), exact=exact)
    if isinstance(value, float):
        return value if exact or math.isfinite(value) else None
    if isinstance(value, int) or value is None:
        return value
    return str(value) if exact else str(value).encode("utf-8", "replace").decode("utf-8")


def _key(key: Any) -> str | int:
    return key if isinstance(key, str | int) else str(key)


def is_text(value: str) -> bool:
    """Whether it is Unicode. JSON, and a shell that does not speak UTF-8, can give half surrogate
    pairs, which no tokenizer takes and no file can hold."""
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def json_line(value: Any) -> str:
    """Write a result as one line of JSONL, with its line break."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False) + "\n"


def lines_of(text: str) -> list[str]:
    """The lines that ``json_line`` wrote: cut at line feeds alone. ``str.splitlines`` cuts at
    U+2028, U+0085 and others, too, which JSON leaves in a text as they are."""
    return text.removesuffix("\n").split("\n") if text else []
