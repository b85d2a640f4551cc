"""What a text wants done: a new picture, or which edit of one, and to how much of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from t2x.prompts.constraints import extract
from t2x.prompts.grammar import ENGLISH
from t2x.prompts.phrases import read

__all__ = ["ACTIONS", "SCOPES", "Intent", "intent_of"]

ACTIONS = ("generate", "add", "replace", "remove", "attribute", "style")
SCOPES = ("local", "global")

_WHOLE = (
    r"(?:it|this|everything|(?:the|this) (?:whole |entire )?(?:picture|image|photo|photograph|scene"
    r"|painting|drawing|background|lighting|weather|sky))"
)
_THING = r"(?:the|that|this|his|her|its|their|all|both|every|each) .+?"
_COLOUR = r"colou?r"
# Tried in order. "change" is decided by its result: a style, an adjective, or a thing; "add?"
# counts only where it is known that there is a picture.
_FORMS = (
    ("replace", r"(?:replace|substitute|exchange|swap) (?P<target>.+?)"
                r" (?:with|for|by) (?P<result>.+)"),
    ("remove", r"(?:remove|delete|erase|take away|take out|get rid of|cut out|eliminate)"
               r" (?P<target>.+?)(?: from .+)?"),
    ("attribute", rf"(?:change|set|switch) (?:the )?{_COLOUR} of (?P<target>.+?)"
                  r" (?:in)?to (?P<result>.+)"),
    ("attribute", rf"(?:change|set|switch) (?P<target>.+?)(?:'s)? {_COLOUR}"
                  r" (?:in)?to (?P<result>.+)"),
    ("attribute", rf"(?:paint|{_COLOUR}|re{_COLOUR}|dye|tint) (?P<target>{_THING})"
                  r" (?:in )?(?P<result>[\w-]+(?: [\w-]+)?)"),
    ("change", rf"(?:turn|convert|transform|change|alter) (?P<target>{_WHOLE}|.+?)"
               r" (?:in)?to (?P<result>.+)"),
    ("change", rf"(?:make|render|redraw|repaint|draw) (?P<target>{_WHOLE})"
               r" (?:look )?(?:like |as |in(?:to)? )?(?P<result>.+)"),
    ("change", rf"make (?P<target>{_THING}) (?:look )?(?:like |in(?:to)? |be )?"
               r"(?P<result>(?:an? .+)|[\w-]+(?: [\w-]+)?)"),
    ("style", r"(?:apply|use) (?P<result>.+? style)"),
    ("add", r"give (?P<target>(?:the|this|that) .+?) (?P<result>(?:an?|some|two|three) .+)"),
    ("add", r"(?:add|insert|include) (?P<result>.+)"),
    ("add?", r"(?:put|place|draw) (?P<result>.+? (?:in|into|on|onto|next to|beside|behind|under"
             r"|above|below|near|to) (?:it|the|this|that)\b.*)"),
)  # fmt: skip
_EDITS = tuple((action, re.compile(form + "$", re.IGNORECASE)) for action, form in _FORMS)
_POLITE = re.compile(
    r"^\s*(?:(?:please|now|then|could you|can you|would you|let's"
    r"|i (?:want|would like|'d like) (?:you )?to)[, ]+)+",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Intent:
    """``action`` is one of :data:`ACTIONS`, ``scope`` one of :data:`SCOPES`; ``target`` is what an
    edit is done to and ``result`` what shall be there, both as told, "" where nothing is.
    """

    action: str = "generate"
    scope: str = "global"
    target: str = ""
    result: str = ""

    def describe(self) -> str:
        """The intent in a few words: ``replace, local: the cat -> a dog``."""
        told = " -> ".join(part for part in (self.target, self.result) if part)
        return f"{self.action}, {self.scope}{f': {told}' if told else ''}"

    def plain(self) -> Intent:
        """The same with the hyphens of joined compounds written as blanks."""
        return replace(
            self, target=self.target.replace("-", " "), result=self.result.replace("-", " ")
        )


def intent_of(text: str, *, editing: bool | None = None) -> Intent:
    """The intent of a prompt or an instruction.

    ``editing`` as in :func:`t2x.guidance.primitives.read_prompt`. Without a form that is known, an
    edit is taken for a change of the whole picture to what the text tells.
    """
    plain = _POLITE.sub("", re.sub(r"\s+", " ", text)).strip(" .!")
    if editing is not False:
        for action, pattern in _EDITS:
            if action == "add?" and not editing:
                continue
            if found := pattern.match(plain):
                parts = found.groupdict(default="")
                return _edit(action.rstrip("?"), parts.get("target", ""), parts.get("result", ""))
    if editing:
        return Intent("style" if extract(plain).styles else "add", "global", "", plain)
    return Intent()


def _edit(action: str, target: str, result: str) -> Intent:
    whole = re.fullmatch(_WHOLE, target, re.IGNORECASE) is not None
    if action == "change":
        action = _change(result, whole)
    if action == "style":
        return Intent(action, "global", "" if whole else target, result)
    return Intent(action, "global" if whole else "local", target, result)


def _change(result: str, whole: bool) -> str:
    """Which edit "make X Y" is: by what Y tells."""
    if extract(result).styles or re.search(r"\bstyle\b", result):
        return "style"
    if whole:
        return "style"
    named = [p for p in read(result, ENGLISH).phrases if p.head]
    article = re.match(r"(?:an?|the|some|one|two|three)\b", result, re.IGNORECASE)
    return "replace" if named and article else "attribute"
