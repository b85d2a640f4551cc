"""Options of commands that load a generator: what is added to it, or stands in for parts of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from t2x.errors import T2XError

LoraOption = Annotated[
    list[str] | None,
    typer.Option(
        "--lora",
        help="A LoRA: file, folder or hub id, and how strongly it acts, as neon.safetensors:0.8; "
        "may be repeated.",
    ),
]
EmbeddingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--embedding",
        help="A textual inversion: file, folder or hub id, and a word in place of its own, as "
        "thing.pt=<thing>; may be repeated.",
    ),
]
PartOption = Annotated[
    list[str] | None,
    typer.Option(
        "--part",
        help="A component from another file or folder, as unet=lightning.safetensors or "
        "vae=FOLDER; may be repeated.",
    ),
]
ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        help="Of a --model in one file: the folder in diffusers' format, or the hub id, whose "
        "configuration it has.",
    ),
]
PresetOption = Annotated[
    str | None,
    typer.Option(
        "--preset",
        help="Sample as this published model of `t2x list generators` does, where a folder or file "
        "does not say what it is; none: as the pipeline's own defaults.",
    ),
]

__all__ = [
    "ConfigOption",
    "EmbeddingOption",
    "LoraOption",
    "PartOption",
    "PresetOption",
    "addition_options",
]


def addition_options(
    *,
    lora: Sequence[str] | None = None,
    embedding: Sequence[str] | None = None,
    part: Sequence[str] | None = None,
    config: str | None = None,
    preset: str | None = None,
) -> dict[str, Any]:
    """Options of ``load_generator`` from those of a command; only what was given.

    Raises T2XError for one that is named twice or is no NAME=VALUE.
    """
    given: dict[str, Any] = {
        "loras": _unique([_scaled(text) for text in lora or ()], "--lora"),
        "embeddings": _unique([_renamed(text) for text in embedding or ()], "--embedding"),
        "config": config,
        "preset": preset,
        **_unique([_assigned(text) for text in part or ()], "--part"),
    }
    return {key: value for key, value in given.items() if value}


def _scaled(text: str) -> tuple[str, float]:
    """ "path:0.8"; a path may hold colons itself."""
    source, colon, tail = text.rpartition(":")
    try:
        scale = float(tail) if colon else 1.0
    except ValueError:
        colon, scale = "", 1.0
    return source if colon else text, scale


def _renamed(text: str) -> tuple[str, str | None]:
    source, _, token = text.partition("=")
    return source, token or None


def _assigned(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or not value:
        raise T2XError(f"--part {text!r} is no NAME=FILE; write it as unet=lightning.safetensors")
    return name, value


def _unique(pairs: list[tuple[str, Any]], option: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise T2XError(f"{option} names one twice: {', '.join(name for name, _ in pairs)}")
    return found
