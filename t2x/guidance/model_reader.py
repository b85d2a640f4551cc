"""A language model as the reader of prompts: the same primitives, asked for in lines of text.

    read = ModelReader(t2x.load_rewriter("owner/model"))
    read("two red cats, no dog")

What it names must be in the prompt; what can't be read, or names nothing, is left to the rules.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from t2x.errors import T2XError
from t2x.guidance.primitives import KINDS, Primitive, Primitives, read_prompt
from t2x.prompts.forms import content_words
from t2x.prompts.numerals import numbers
from t2x.rewriters.templates import Template

__all__ = ["TEMPLATE", "ModelReader", "load_reader", "parse_lines"]

log = logging.getLogger(__name__)

_INSTRUCTION = """\
List what a picture must show for the request to be met. One line for each fact, in one of these \
forms, names in the singular, and nothing else:
object | NAME
count | NAME | NUMBER
attribute | NAME | COLOUR OR OTHER ATTRIBUTE
relation | NAME | RELATION | OTHER NAME
style | STYLE
text | WRITTEN TEXT
negation | NAME OF WHAT MUST NOT BE THERE

Request: {prompt}"""
TEMPLATE = Template(user=_INSTRUCTION, require_answer=False)
_FIELDS = {
    "object": ("subject",),
    "count": ("subject", "value"),
    "attribute": ("subject", "value"),
    "relation": ("subject", "value", "other"),
    "style": ("value",),
    "text": ("value",),
    "negation": ("subject",),
}


def load_reader(reader: str | Callable[[str], Primitives]) -> Callable[[str], Primitives]:
    """A reader of prompts by the name of a chat model, as ``t2x.load_rewriter`` takes it; one that
    reads is given back. Raises T2XError as :class:`ModelReader`."""
    if not isinstance(reader, str):
        return reader
    from t2x.registry import load_rewriter

    return ModelReader(load_rewriter(reader))


class ModelReader:
    """Reads prompts by a chat model, each once.

    ``model``: a rewriter that follows instructions (``with_template``: language models, endpoints).
    Raises T2XError for one that knows a single task.
    """

    def __init__(self, model: Any, *, seed: int = 0) -> None:
        if not hasattr(model, "with_template"):
            raise T2XError(
                f"{getattr(model, 'model_id', model)!r} takes no instructions; give a chat model "
                "(t2x.load_rewriter of a hub id or an endpoint), or leave reading to the rules"
            )
        self.model = model.with_template(TEMPLATE)
        self.seed = seed
        self._read: dict[tuple[str, bool | None], Primitives] = {}

    def __call__(self, prompt: str, *, editing: bool | None = None) -> Primitives:
        """Primitives of ``prompt``. Of edits the rules alone are asked."""
        key = (prompt, editing)
        if key not in self._read:
            rules = read_prompt(prompt, editing=editing)
            self._read[key] = self._ask(rules) if rules.intent.action == "generate" else rules
        return self._read[key]

    def _ask(self, rules: Primitives) -> Primitives:
        rewrite = self.model.rewrite([rules.prompt], num_generations=1, seed=self.seed)[0][0]
        items = parse_lines(rewrite.raw or rewrite.text, rules.prompt)
        if not any(item.kind == "object" for item in items):
            log.warning(
                "%s named no object of %r; read by rules", self.model.model_id, rules.prompt
            )
            return rules
        return replace(rules, items=items, reader=str(self.model.model_id))


def parse_lines(answer: str, prompt: str) -> tuple[Primitive, ...]:
    """Primitives of a model's lines, those that ``prompt`` speaks of; other lines are left out."""
    said = set(content_words(prompt))
    out = []
    for line in answer.splitlines():
        kind, *values = (part.strip() for part in line.strip(" -*").split("|"))
        names = _FIELDS.get(kind.lower(), ())
        if not names or len(values) != len(names) or not all(values):
            continue
        item = Primitive(kind.lower(), **dict(zip(names, values, strict=True)))
        if item.kind == "count":
            found = numbers(item.value)
            if len(found) != 1:
                continue
            item = replace(item, value=f"{found[0]:g}")
        if _is_said(item, prompt, said):
            out.append(item)
    return tuple(sorted(dict.fromkeys(out), key=lambda p: KINDS.index(p.kind)))


def _is_said(item: Primitive, prompt: str, said: set[str]) -> bool:
    if item.kind == "text":
        return item.value in prompt
    if item.kind == "count" and float(item.value) not in numbers(prompt):
        return False
    told = [item.subject, item.other, item.value if item.kind in ("attribute", "style") else ""]
    wanted = set(content_words(re.sub(r"[-_]", " ", " ".join(told))))
    return wanted <= said
