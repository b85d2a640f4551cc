"""Questions about a picture with their right answers, one for each primitive of a prompt.

For the VQA reward (``t2x.rewards.questions``), and to see while sampling what is still wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from t2x.guidance.primitives import Primitive, Primitives
from t2x.prompts.forms import is_plural
from t2x.world.captions import NUMBER_WORDS
from t2x.world.captions import plural as world_plural
from t2x.world.words import articled

__all__ = ["EMOJI", "GENERAL", "Probe", "Wording", "probes"]

# By kind of primitive: the question and its right answer, with fields in braces.
Wording = Mapping[str, tuple[str, str]]
_ASK = " Please answer yes or no."
GENERAL: Wording = {
    "object": ("Is there {thing} in this picture?" + _ASK, "yes"),
    "count": ("Are there exactly {number} {things} in this picture?" + _ASK, "yes"),
    "attribute": ("Is there {described} in this picture?" + _ASK, "yes"),
    "relation": ("{placed}?" + _ASK, "yes"),
    "style": ("Is this picture in the style of {value}?" + _ASK, "yes"),
    "text": ('Does this picture show the written words "{value}"?' + _ASK, "yes"),
    "negation": ("Is there {thing} in this picture?" + _ASK, "no"),
}
# In the words that emoji-vlm was taught; it was taught none of style and text.
EMOJI: Wording = {
    "object": ("Is there {thing}?", "yes"),
    "count": ("How many {things}?", "{number}"),
    "attribute": ("Is there {described}?", "yes"),
    "relation": ("{placed}?", "yes"),
    "negation": ("Is there {thing}?", "no"),
}
_PLACES = {"left of": "to the left of", "right of": "to the right of", "in": "inside"}


@dataclass(frozen=True)
class Probe:
    """A question, its right ``answer`` in lower case ("yes", "no", or a word), and the primitive
    that it is ``about``.
    """

    text: str
    answer: str
    about: Primitive


def probes(found: Primitives, wording: Wording = GENERAL) -> tuple[Probe, ...]:
    """One question for each primitive, in their order; kinds that ``wording`` lacks are left out,
    and so is a count of one, where the general wording asks for the thing already.
    """
    out = []
    for item in found.items:
        if item.kind not in wording or (item.kind == "count" and not _counts(item, wording)):
            continue
        question, answer = wording[item.kind]
        fields = _fields(item)
        text = question.format_map(fields)
        out.append(Probe(text[:1].upper() + text[1:], answer.format_map(fields), item))
    return tuple(out)


def _counts(item: Primitive, wording: Wording) -> bool:
    return item.value != "1" or "{number}" in wording["count"][1]


def _fields(item: Primitive) -> dict[str, str]:
    subject, value = item.subject, item.value
    numbers = dict(enumerate(NUMBER_WORDS))
    number = numbers.get(int(value), value) if item.kind == "count" else ""
    return {
        "thing": _articled(subject),
        "things": _plural(subject),
        "described": _articled(f"{value} {subject}"),
        "number": number,
        "value": value,
        "placed": _placed(item) if item.kind == "relation" else "",
    }


def _placed(item: Primitive) -> str:
    """A relation as the beginning of a question: "is the cat to the left of the dog"."""
    if not item.other:
        return f"is the {item.subject} {item.value}"
    words = _PLACES.get(item.value, item.value)
    others = " and ".join(f"the {name}" for name in item.other.split(" and "))
    if words.endswith("s"):  # "chases"
        return f"is it true that the {item.subject} {words} {others}"
    return f"is the {item.subject} {words} {others}"


def _articled(words: str) -> str:
    if not words:
        return ""
    return words if is_plural(words.split()[-1]) else articled(words)


def _plural(noun: str) -> str:
    """Plural by the world's table, which knows irregular ones, else by the endings of English."""
    if (told := world_plural(noun)) != f"{noun}s":
        return told
    if noun.endswith(("s", "x", "z", "ch", "sh")):
        return f"{noun}es"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"
