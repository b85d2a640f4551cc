"""Options about guidance that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["GuideOption"]

GuideOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Another setting of guidance, as size=0.3 (how far a step goes); may be repeated. "
        "A name that is not known lists those of the mode."
    ),
]
