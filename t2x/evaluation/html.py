"""Pages that work offline: one file, style and pictures inside, no script, every text escaped."""

from __future__ import annotations

import base64
import io
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["data_url", "escaped", "fill_page"]


def fill_page(name: str, **parts: str) -> str:
    """Fill the template ``name`` of this folder, behind the head that all pages share, with
    ``parts``, which are HTML."""
    folder = files("t2x.evaluation")
    page = "".join((folder / part).read_text(encoding="utf-8") for part in ("head.html", name))
    return Template(page).substitute(parts)


def escaped(value: object) -> str:
    """Escape; half surrogate pairs, which no file can hold, become question marks."""
    return escape(str(value).encode("utf-8", "replace").decode("utf-8"))


def data_url(image: Image) -> str:
    """The picture as a PNG inside a URL."""
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
