"""How a prompt is put to a language model: the words around it, and whether tags are expected in
the answer.

A checkpoint that was trained for rewriting says so in a ``t2x.json`` beside its weights; any other
instruction model gets ``GENERAL``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2x.config import build_config
from t2x.errors import T2XError
from t2x.settings import SETTINGS_FILE, read_settings

__all__ = ["GENERAL", "SETTINGS_FILE", "SMALL", "Template", "read_template"]

_SYSTEM = """\
You rewrite short requests into prompts for a text-to-image model.
Keep every object, number, colour, position, style, name and action of the request.
What the request rules out stays out.
Say plainly what is meant: resolve pronouns, name what is only described, make positions exact.
Then add a few concrete visual details that fit: surroundings, light, materials, viewpoint.
Invent no new main object.
Text in quotes and words such as ITEM1 or TEXT2 are copied exactly as they are.
Write in the language of the request, in present tense, as one paragraph of at most 60 words.
Answer with the prompt alone: no introduction, no list, no heading, no explanation."""


@dataclass(frozen=True)
class Template:
    """Words around a prompt.

    Args:
        system: system message; "" for none.
        user: user message; ``{prompt}`` is where the user's text goes.
        examples: pairs of a prompt and its rewrite, shown as earlier turns.
        prefill: beginning of the answer that the model has to continue, such as "<think>".
        require_answer: whether an answer without ``<answer>`` (or ``<prompt>``) tags counts as a
            failure.
        thinking: passed to chat templates that can switch reasoning on (``enable_thinking``).
        max_new_tokens: room for reasoning and answer together, at least 1.
        temperature: of sampled generations; 0 makes every generation greedy.
        top_p: nucleus of sampled generations, in (0, 1]; 1 keeps every token.
        repetition_penalty: positive; above 1, the model's own earlier tokens become less likely.
        domain: small world whose words the model writes (``t2x.rewriters.domain``); "" for none.
    """

    system: str = ""
    user: str = "{prompt}"
    examples: tuple[tuple[str, str], ...] = ()
    prefill: str = ""
    require_answer: bool = False
    thinking: bool = False
    max_new_tokens: int = 256
    temperature: float = 0.8
    top_p: float = 0.95
    repetition_penalty: float = 1.0
    domain: str = ""

    def __post_init__(self) -> None:
        if self.user.count("{prompt}") != 1:
            raise T2XError(
                f"a template's user message must hold {{prompt}} once, given {self.user!r}"
            )
        for name, allowed, good in (
            ("max_new_tokens", "at least 1", self.max_new_tokens >= 1),
            ("temperature", "0 for greedy, or positive", 0 <= self.temperature < math.inf),
            ("top_p", "above 0 and at most 1", 0 < self.top_p <= 1),
            ("repetition_penalty", "positive", 0 < self.repetition_penalty < math.inf),
        ):
            if not good:
                raise T2XError(
                    f"a template's {name} is {getattr(self, name)}; it must be {allowed}"
                )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Template:
        """Read a template from plain values; T2XError names an unknown key or a wrong value."""
        return build_config(cls, values)


GENERAL = Template(system=_SYSTEM, user="Request: {prompt}")
# Models of a few hundred million parameters take the task from examples better than from words.
SMALL = Template(
    system="You turn short requests into vivid prompts for a text-to-image model.",
    examples=(
        (
            "an old rowing boat",
            "an old rowing boat with peeling green paint, pulled up on a pebble beach, calm grey "
            "sea behind it, soft morning light",
        ),
        (
            'a bakery window that says "TEXT1"',
            'a small bakery window with "TEXT1" painted on the glass in white letters, loaves on '
            "wooden shelves, warm lamplight, rainy street",
        ),
        (
            "three blue kayaks under a bridge",
            "three blue kayaks floating side by side under a stone bridge, clear shallow water, "
            "shadows of the arch, summer afternoon",
        ),
    ),
    max_new_tokens=96,
    repetition_penalty=1.2,
)


def read_template(folder: str | Path) -> Template | None:
    """Read the ``"rewriter"`` section of a checkpoint's ``t2x.json``; None if there is none.

    T2XError names the file, and what in it is wrong.
    """
    section = read_settings(folder).get("rewriter")
    if section is None:
        return None
    try:
        return Template.from_dict(section)
    except T2XError as error:
        raise T2XError(f'{Path(folder) / SETTINGS_FILE}, "rewriter": {error}') from error
