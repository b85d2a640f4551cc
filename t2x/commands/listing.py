"""``t2x list``: what can be named, without importing any of it."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated

import typer

from t2x.commands.console import print_json, print_table
from t2x.errors import UnknownNameError
from t2x.registry import TABLES, known_names
from t2x.world.weights import EMBEDDED, is_present

if TYPE_CHECKING:
    from t2x.generators.presets import ModelPreset

__all__ = ["list_names"]


def list_names(
    kind: Annotated[str | None, typer.Argument(help=f"One of: {', '.join(TABLES)}.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the rewriters, generators, rewards and training recipes that have a name.

    With --json all that is known of the published generators stands under "presets".
    """
    if kind is not None and kind not in TABLES:
        close = difflib.get_close_matches(kind, TABLES, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise UnknownNameError(f"unknown kind {kind!r}: {hint}known are: {', '.join(TABLES)}")
    kinds = list(TABLES) if kind is None else [kind]
    from t2x.generators.presets import NOT_RUN, presets
    from t2x.plain import plain

    published = presets() if "generators" in kinds else {}
    if as_json:
        facts = {"presets": {name: plain(preset) for name, preset in published.items()}}
        print_json({name: known_names(name) for name in kinds} | (facts if published else {}))
        return
    rows = [
        (name, entry, TABLES[name].get(entry, "plugin"), _weights(name, entry))
        for name in kinds
        for entry in known_names(name)
        if entry in TABLES[name] or entry not in published
    ]
    print_table("", ("kind", "name", "loaded from", "weights"), rows)
    if published:
        columns = ("generator", "tasks", "licence", "gated", "download", "repository")
        print_table(f"published models, {NOT_RUN}", columns, [_row(p) for p in published.values()])


def _row(preset: ModelPreset) -> tuple[str, ...]:
    gated = {True: "yes", False: "no", None: "unknown"}[preset.gated]
    tasks = ", ".join(preset.pipelines)
    licence = preset.licence or "unknown"
    return preset.name, tasks, licence, gated, preset.size, preset.hub[0]


def _weights(kind: str, name: str) -> str:
    if kind == "rewriters":
        from t2x.rewriters.presets import PRESETS

        if name in PRESETS:
            return PRESETS[name].weights or "yours"
    if kind == "commands" or name not in EMBEDDED:
        return ""
    return "embedded" if is_present(name) else "not trained"
