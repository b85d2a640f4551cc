"""From results and settings to the plain values that JSON and YAML can hold."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["plain"]


def plain(value: Any, *, strict: bool = False) -> Any:
    """Give dataclasses and mappings as dicts, sequences and arrays as lists, and the text of
    whatever else JSON has no word for.

    With ``strict`` the result can be written as UTF-8 JSON for any reader: what is NaN or infinite
    becomes None, and lone surrogates become "?". Without it numbers and texts stay as they are, so
    that keys of different values differ and a configuration is read back as it was.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        # Fields that the constructor doesn't take can't be given back to it.
        fields = (field.name for field in dataclasses.fields(value) if field.init)
        return {name: plain(getattr(value, name), strict=strict) for name in fields}
    if isinstance(value, Mapping):
        return {_key(key): plain(item, strict=strict) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, strict=strict) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist(), strict=strict)
    if isinstance(value, float):
        return value if math.isfinite(value) or not strict else None
    if value is None or isinstance(value, bool | int):
        return value
    return str(value).encode("utf-8", "replace").decode("utf-8") if strict else str(value)


def _key(key: Any) -> str | int:
    return key if isinstance(key, str | int) else str(key)
