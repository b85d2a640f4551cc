"""Options of commands about memory: placement of the generator, and a limit."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import typer

__all__ = [
    "Dtype",
    "MemoryLimit",
    "Offload",
    "Quantize",
    "VaeTiling",
    "batch_under",
    "placement_options",
]

Offload: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Keep parts on the CPU until they act, on a GPU: model (whole parts), group (blocks), "
        "sequential (layers; slowest)."
    ),
]
Quantize: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Load weights as 8bit (torchao) or 4bit (bitsandbytes, on a GPU)."),
]
Dtype: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Number format: float32, bfloat16, float16, or auto; without, float32 on a CPU and "
        "what the model's authors use elsewhere."
    ),
]
VaeTiling: TypeAlias = Annotated[
    bool, typer.Option("--vae-tiling", help="Decode in tiles: less memory, seams may show.")
]
MemoryLimit: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Stay under this much memory, like 20GB: phase after phase, fewer pictures at a time; "
        "what does not fit is said before anything is loaded."
    ),
]


def placement_options(
    offload: str | None, quantize: str | None, vae_tiling: bool
) -> dict[str, Any]:
    """Options of loading a generator, those that were given."""
    given = {"offload": offload, "quantize": quantize, "vae_tiling": vae_tiling or None}
    return {key: value for key, value in given.items() if value is not None}


def batch_under(
    limit: str,
    models: tuple[str, str],
    pictures: int,
    size: tuple[int, int] | None,
    options: dict[str, Any],
) -> int:
    """How many pictures may be drawn at a time under ``limit``; ``models`` are rewriter and
    generator. Raises T2XError if one of them is too large alone."""
    from t2x.memory import fit_under

    given = {key: value for key, value in options.items() if value is not None}
    rewriter, generator = models
    fitting = fit_under(
        limit, rewriter=rewriter, generator=generator, pictures=pictures, size=size, options=given
    )
    return fitting.batch
