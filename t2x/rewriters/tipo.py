"""TIPO (arXiv 2411.08127): fields of tags and sentences that a small model fills in.

Tags go in and come out as tags: those of the user first and as written, then new ones in the order
of the model, up to the limit of the length that was asked for. A sentence comes out as the field
``long`` of ``short_to_tag_to_long``.

Differs from the reference implementation (KGen): sentences are not taken apart at full stops, nor
anything put in another order; a field begins only with one of the names that TIPO knows; nothing
between ``<|`` and ``|>`` is deleted from what the user wrote; and where it would try again until a
length is reached, what the model wrote is judged as it is.
"""

from __future__ import annotations

import re

from t2x.rewriters.parsing import Parsed

__all__ = ["FIELDS", "MAX_TAGS", "TAGS_USER", "TEXT_USER", "fields", "read_long", "read_tags"]

FIELDS = (
    "aspect ratio",
    "artist",
    "characters",
    "copyrights",
    "generated",
    "long",
    "meta",
    "quality",
    "rating",
    "short",
    "tag",
    "target",
)
LENGTH = "long"
MAX_TAGS = {"very_short": 6, "short": 18, "long": 36, "very_long": 54}
TAGS_USER = f"target: <|{LENGTH}|>\ntag: {{prompt}},"
TEXT_USER = f"target: <|{LENGTH}|> <|short_to_tag_to_long|>\nshort: {{prompt}}\ntag:"
_FIELD = re.compile(rf"^(?P<name>{'|'.join(FIELDS)}):", re.MULTILINE)
_CONTROL = re.compile(r"<\|\w+\|>|</?s>")


def fields(text: str) -> dict[str, str]:
    """Split what the model wrote behind "tag:" into its fields, the first of each name."""
    found = list(_FIELD.finditer(text))
    starts = [("tag", 0, 0), *((m["name"], m.start(), m.end()) for m in found)]
    ends = [start for _, start, _ in starts[1:]] + [len(text)]
    parts: dict[str, str] = {}
    for (name, _, begin), end in zip(starts, ends, strict=True):
        parts.setdefault(name, _CONTROL.sub("", text[begin:end]).strip())
    return parts


def read_tags(prompt: str, text: str, *, truncated: bool) -> Parsed:
    """The user's tags and then the new ones; of a list that is cut off, all but the last tag."""
    written = fields(text)["tag"].split("\n")[0]
    own = [tag.strip() for tag in prompt.strip(" ,\n").split(",")]
    items = [tag.strip() for tag in written.split(",")]
    if truncated and "\n" not in text:
        items = items[:-1]
    seen = {_key(tag) for tag in own}
    new = []
    for tag in items:
        if tag and _key(tag) not in seen:
            seen.add(_key(tag))
            new.append(tag)
    room = max(MAX_TAGS[LENGTH] - len(own), 0)
    if not new and truncated:
        return Parsed(problem="cut off before its end")
    return Parsed(", ".join([prompt.strip(" ,\n"), *new[:room]]))


def read_long(text: str, *, truncated: bool) -> Parsed:
    """The sentences of the field ``long``."""
    parts = fields(text)
    if truncated and list(parts)[-1] in ("tag", "long"):
        return Parsed(reasoning=parts["tag"], problem="cut off before its end")
    if not parts.get("long"):
        return Parsed(reasoning=parts["tag"], problem="the field 'long' is missing or empty")
    return Parsed(parts["long"], reasoning=parts["tag"])


def _key(tag: str) -> str:
    """What two spellings of a tag have in common; the tag itself stays as it is written."""
    return " ".join(tag.casefold().replace("_", " ").split())
