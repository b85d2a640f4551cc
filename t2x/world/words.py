"""Small words between big ones: articles, commas and "and"."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["articled", "joined"]


def articled(words: str) -> str:
    """Put ``a`` or ``an`` before ``words``."""
    an = words[0] in "aeiou" and not words.startswith(("ewe", "uni"))
    return f"an {words}" if an else f"a {words}"


def joined(phrases: Sequence[str]) -> str:
    """``a, b and c``."""
    if len(phrases) == 1:
        return phrases[0]
    return f"{', '.join(phrases[:-1])} and {phrases[-1]}"
