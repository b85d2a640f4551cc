"""``t2x list``: what can be named, without importing any of it."""

from __future__ import annotations

import difflib
from typing import Annotated

import typer

from t2x.commands.console import print_json, print_table
from t2x.errors import UnknownNameError
from t2x.registry import TABLES, known_names
from t2x.rewriters.presets import PRESETS
from t2x.world.weights import EMBEDDED, is_present

__all__ = ["list_names"]


def list_names(
    kind: Annotated[str | None, typer.Argument(help=f"One of: {', '.join(TABLES)}.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the rewriters, generators, rewards and training recipes that have a name."""
    if kind is not None and kind not in TABLES:
        close = difflib.get_close_matches(kind, TABLES, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UnknownNameError(f"unknown kind {kind!r}: {hint}known are: {', '.join(TABLES)}")
    kinds = list(TABLES) if kind is None else [kind]
    if as_json:
        print_json({name: known_names(name) for name in kinds})
        return
    rows = [
        (name, entry, TABLES[name].get(entry, "plugin"), _weights(name, entry))
        for name in kinds
        for entry in known_names(name)
    ]
    print_table("", ("kind", "name", "loaded from", "weights"), rows)


def _weights(kind: str, name: str) -> str:
    if kind == "rewriters" and name in PRESETS:
        return PRESETS[name].weights or "yours"
    if kind == "commands" or name not in EMBEDDED:
        return ""
    return "embedded" if is_present(name) else "not trained"
