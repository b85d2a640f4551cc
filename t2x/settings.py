"""``t2x.json``: what a local folder of a model says about itself beside its weights.

A generator's folder names its default sampling settings, and the base that completes it if it holds
only some parts; a rewriter's folder holds its template under ``"rewriter"``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from t2x.errors import T2XError

SETTINGS_FILE = "t2x.json"
INDEX_FILE = "model_index.json"  # only a whole pipeline of diffusers has one

__all__ = ["INDEX_FILE", "SETTINGS_FILE", "base_name", "read_index", "read_object", "read_settings"]


def read_settings(folder: str | Path) -> dict[str, Any]:
    """Read the ``t2x.json`` of a local folder; empty when there is none."""
    path = Path(folder) / SETTINGS_FILE
    return read_object(path) if path.is_file() else {}


def base_name(folder: str | Path) -> str | None:
    """Give the ``"base"`` that completes a folder of parts, as written; None for a whole
    pipeline."""
    base = read_settings(folder).get("base")
    if base is None or (Path(folder) / INDEX_FILE).is_file():
        return None
    if not isinstance(base, str) or not base.strip():
        path = Path(folder) / SETTINGS_FILE
        raise T2XError(f'{path}: "base" is {base!r}; give a name, folder or hub id')
    return base


def read_index(folder: str | Path) -> dict[str, Any]:
    """Read the index of a pipeline of diffusers: classes as [library, name], and settings.

    Raises T2XError for a file that is none.
    """
    path = Path(folder) / INDEX_FILE
    index = read_object(path)
    if not isinstance(index.get("_class_name"), str):
        raise T2XError(f"{path} names no class of pipelines under '_class_name'")
    for name, entry in index.items():
        pair = isinstance(entry, list) and len(entry) == 2
        texts = pair and all(isinstance(text, str | None) for text in entry)
        if isinstance(entry, list) and not texts and not name.startswith("_"):
            raise T2XError(f"{path}: {name!r} is {entry!r}; it must be [library, class]")
    return index


def read_object(path: Path) -> dict[str, Any]:
    """Read a file that holds one JSON object; T2XError says what it holds instead."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise T2XError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise T2XError(f"{path} is no valid JSON: {error}; write one JSON object") from error
    if not isinstance(value, dict):
        raise T2XError(f"{path} must hold one JSON object, got {type(value).__name__}")
    return value
