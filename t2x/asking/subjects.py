"""Which subject a prompt has: what draws it decides what can be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t2x.asking.records import Subject
    from t2x.types import Generator

__all__ = ["find_subject", "is_embedded"]

_EMBEDDED = ("emoji-flow", "emoji-flow-turbo")


def is_embedded(generator: Generator) -> bool:
    """Whether it draws the emoji world."""
    return generator.model_id in _EMBEDDED


def find_subject(prompt: str, *, generator: Generator | None, rewriter: Any, seed: int) -> Subject:
    """The emoji world for its own generators, what a chat model proposes where the rewriter is one,
    else what can be read off the text alone.

    Without generator and rewriter a prompt that names things of the emoji world is about these.
    """
    from t2x.asking.emoji_world import EmojiWorld

    if generator is not None and is_embedded(generator):
        return EmojiWorld(prompt, seed)
    if rewriter is not None:
        from t2x.asking.proposed import propose

        if (proposed := propose(prompt, rewriter.rewriter, seed=seed)) is not None:
            return proposed
    if generator is None and rewriter is None:
        from t2x.asking.reading import read_prompt

        if read_prompt(prompt):
            return EmojiWorld(prompt, seed)
    from t2x.asking.plain_text import plain_text

    return plain_text(prompt, seed)
