"""``t2x export``: a trained rewriter as a folder that others can load."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from t2x.commands.console import print_json, print_table

__all__ = ["export"]


def export(
    source: Annotated[
        str,
        typer.Argument(
            help="Folder of a run, one of its checkpoints, a folder of a model, a name, or a hub "
            "id."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for it, new or empty.")],
    adapter: Annotated[
        bool,
        typer.Option(
            "--adapter/--merged", help="Adapters alone, or whole weights with them merged in."
        ),
    ] = False,
    gguf: Annotated[
        str | None,
        typer.Option(
            help="Write GGUF as well: f32, f16, bf16 or q8_0, by llama.cpp's converter, if it is "
            "installed."
        ),
    ] = None,
    converter: Annotated[
        Path | None, typer.Option(help="That converter, convert_hf_to_gguf.py.")
    ] = None,
    licence: Annotated[
        str | None,
        typer.Option("--licence", "--license", help="Licence of the weights; the base's without."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Export a trained rewriter with its tokenizer, template and a model card.

    `t2x rewrite --model OUT` uses what was exported, and so does any program that loads models of
    transformers, peft or llama.cpp.
    """
    from t2x.training.export import export_model

    written = export_model(
        source, out, adapter=adapter, gguf=gguf, converter=converter, licence=licence
    )
    if as_json:
        print_json({"out": out, "files": [path.name for path in written]})
        return
    print_table(str(out), ("file", "MB"), [(p.name, p.stat().st_size / 1e6) for p in written])
