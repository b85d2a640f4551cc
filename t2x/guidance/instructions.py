"""From an instruction and what a picture shows to what the edited picture shows.

    instruction_to_target("a red cat and a dog", "make the cat blue")   # "a blue cat and a dog"

By rules on the intents of ``t2x.guidance.intents``. What they can't do is said; then the words of
the edited picture are for the caller to give.
"""

from __future__ import annotations

import re

from t2x.errors import T2XError
from t2x.guidance.intents import Intent, intent_of
from t2x.prompts.grammar import ENGLISH
from t2x.prompts.phrases import Phrase, read
from t2x.prompts.tokens import colour_of

__all__ = ["instruction_to_target"]

_DETERMINER = r"(?:(?:an?|the|one|two|three|four|five|six|some|this|that|his|her|its|\d+)\s+)?"
_JOINS = (
    r"(?:and|with|plus|next to|beside|behind|in front of|near|above|below|under|over|on|in|holding"
    r"|wearing|to the (?:left|right) of|(?:left|right) of|on top of)"
)
_HELP = "or give the words of the edited picture (target prompt)"


def instruction_to_target(source: str, instruction: str) -> str:
    """Give the prompt of the edited picture.

    ``source``: what the picture shows, "" where nobody says; then an edit that names what shall be
    there is described by that alone. Colours and other attributes, swaps, additions, removals and
    styles are known. Raises T2XError for an instruction that is none of them, and for a thing that
    ``source`` does not tell of.
    """
    source, intent = source.strip(), intent_of(instruction.strip(" .!"), editing=True)
    change = {
        "attribute": _with_attribute,
        "replace": _swapped,
        "add": _added,
        "remove": _without,
        "style": _styled,
    }[intent.action]
    return change(source, intent)


def _with_attribute(source: str, intent: Intent) -> str:
    if intent.scope == "global" and source:
        return f"{source}, {intent.result}"
    if not source:
        head = re.sub(r"^(?:the|this|that|all)\s+", "", intent.target.strip(), flags=re.IGNORECASE)
        return _articled(f"a {intent.result} {head}")
    start, end, phrase = _place(source, intent.target)
    told = source[start:end].split()
    count = len(told) - len(phrase.words)
    kept = [w for w in told[count:] if not (_is_colour(intent.result) and _is_colour(w))]
    changed = " ".join([*told[:count], intent.result, *kept])
    return _articled(source[:start] + changed + source[end:])


def _swapped(source: str, intent: Intent) -> str:
    if not source:
        return intent.result
    start, end, _ = _place(source, intent.target)
    return _articled(source[:start] + _with_article(intent.result) + source[end:])


def _added(source: str, intent: Intent) -> str:
    what = _with_article(intent.result)
    if intent.target:  # "give the cat a hat"
        owner = re.sub(r"^(?:the|this|that)\s+", "", intent.target, flags=re.IGNORECASE)
        what = f"{what} on the {owner}"
    return f"{source} and {what}" if source else what


def _without(source: str, intent: Intent) -> str:
    if not source:
        raise T2XError(
            f"what stays when {intent.target or 'it'} is removed, nobody says; tell what the "
            f"picture shows (source prompt), {_HELP}"
        )
    start, end, _ = _place(source, intent.target)
    before, after = source[:start], source[end:]
    joined = re.search(rf"(?:,?\s*\b{_JOINS}\s+|,\s*)$", before, re.IGNORECASE)
    if joined:
        found = before[: joined.start()] + after
    else:
        follows = re.match(rf"\s*(?:,\s*)?(?:\b{_JOINS}\b\s*)?", after, re.IGNORECASE)
        found = before + after[follows.end() if follows else 0 :]
    found = re.sub(r"\s+", " ", found).strip(" ,")
    if not any(phrase.head for phrase in read(found, ENGLISH).phrases):
        raise T2XError(f"nothing is left of {source!r} without {intent.target!r}; {_HELP[3:]}")
    return _articled(found)


def _styled(source: str, intent: Intent) -> str:
    if not source:
        raise T2XError(
            f"a style needs something to be drawn in it; tell what the picture shows "
            f"(source prompt), {_HELP}"
        )
    result = intent.result.strip()
    told = result if re.search(r"\b(?:in|style|at|by|with)\b", result) else f"{result} style"
    return f"{source}, {told}"


def _place(source: str, target: str) -> tuple[int, int, Phrase]:
    """Where ``source`` tells of ``target``: begin and end, determiner included."""
    wanted = [p for p in read(target, ENGLISH).phrases if p.head]
    if wanted:
        colours = {name for name, _ in wanted[0].colours}
        told = [p for p in read(source, ENGLISH).phrases if p.head == wanted[0].head]
        told.sort(key=lambda p: not colours <= {name for name, _ in p.colours})
        for phrase in told:
            words = r"\s+".join(map(re.escape, phrase.words))
            found = re.search(rf"\b{_DETERMINER}{words}\b", source, re.IGNORECASE)
            if found:
                return found.start(), found.end(), phrase
    raise T2XError(
        f"{source!r} tells of no {target.strip() or 'such thing'!r}; tell all that the picture "
        f"shows (source prompt), {_HELP}"
    )


def _is_colour(word: str) -> bool:
    return any(colour_of(part.lower(), ENGLISH) for part in word.split())


def _with_article(text: str) -> str:
    """ "blue dog" as "a blue dog"; what has a determiner or is plural stays."""
    phrases = [p for p in read(text, ENGLISH).phrases if p.head]
    bare = phrases and phrases[0].kind == "bare" and not phrases[0].plural
    return f"a {text}" if bare and phrases[0].number is None else text


def _articled(text: str) -> str:
    """ "a orange cat" as "an orange cat", and the other way."""
    text = re.sub(r"\b([Aa])n?(?=\s+[aeio])", r"\1n", text)
    return re.sub(r"\b([Aa])n(?=\s+[bcdfgjklmnpqrstvwxyz])", r"\1", text)
