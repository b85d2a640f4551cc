"""Fenced blocks of Markdown, to run what a document shows.

A block runs unless its info string says why not: ``bash not-run="gpu"``.
"""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from t2x.errors import T2XError
from t2x.registry import import_attr

__all__ = ["REASONS", "Block", "checked_loader", "commands", "fenced_blocks"]

# Why a block may not be run by a test.
REASONS = ("hub", "gpu", "long", "install", "app")  # app: a server, or what asks one
_FENCE = re.compile(r"^```(?P<info>[^`\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r'\bnot-run="([^"]*)"')


@dataclass(frozen=True)
class Block:
    """A fenced block: its ``language`` or "", its ``text``, the ``line`` of its fence (from 1), and
    why it is ``not_run``, or ""."""

    language: str
    text: str
    line: int
    not_run: str


def fenced_blocks(markdown: str) -> list[Block]:
    """All fenced blocks, in order. Raises T2XError for a reason that is not one of ``REASONS``."""
    found = []
    for match in _FENCE.finditer(markdown):
        language, _, rest = match["info"].strip().partition(" ")
        marks = _NOT_RUN.findall(rest)
        line = markdown.count("\n", 0, match.start()) + 1
        if rest and (not marks or marks[0] not in REASONS):
            raise T2XError(
                f"line {line}: a fence says {rest!r}; give nothing, or not-run= with one of "
                f"{', '.join(REASONS)}"
            )
        found.append(Block(language, match["text"], line, marks[0] if marks else ""))
    return found


def commands(block: Block) -> Iterator[str]:
    """Each command of a shell block, as it stands; comments and empty lines are left out, a line
    that ends with a backslash goes on."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if shlex.split(line, comments=True):
            yield line.strip()


def checked_loader(target: str, made: Any) -> Callable[..., Any]:
    """A stand-in for a loader: gives ``made`` if the factory "module:attr" takes the arguments."""
    factory = import_attr(target)

    def load(name: str, **options: Any) -> Any:
        inspect.signature(factory).bind(*([] if "source" in options else [name]), **options)
        return made

    return load
