"""How a prompt is put to a language model, and how its answer is read: the words around the prompt,
the settings of sampling, and whether tags are expected.

A checkpoint that was trained for rewriting says so in a ``t2x.json`` beside its weights or has a
preset (``t2x.rewriters.presets``); any other instruction model gets ``GENERAL``, a base model
without a chat template ``BASE``. What the text should look like is the ``style``, which a target
(``t2x.rewriters.targets``) replaces.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from t2x.config import build_config
from t2x.errors import T2XError
from t2x.prompts.constraints import script
from t2x.prompts.protect import protect
from t2x.settings import SETTINGS_FILE, read_settings

__all__ = [
    "BASE",
    "CONDITIONS",
    "GENERAL",
    "READERS",
    "SETTINGS_FILE",
    "SMALL",
    "STYLE",
    "Template",
    "is_chinese",
    "is_tag_list",
    "read_template",
]

# How ``t2x.rewriters.completion`` reads what a model wrote.
READERS = ("prompt", "items", "tipo-tags", "tipo-long", "edit")
STYLE = "as one paragraph of at most 60 words."
_SYSTEM = """\
You rewrite short requests into prompts for a text-to-image model.
Keep every object, number, colour, position, style, name and action of the request.
What the request rules out stays out.
Say plainly what is meant: resolve pronouns, name what is only described, make positions exact.
Then add a few concrete visual details that fit: surroundings, light, materials, viewpoint.
Invent no new main object.
Text in quotes and words such as ITEM1 or TEXT2 are copied exactly as they are.
Write in the language of the request, in present tense, {style}
Answer with the prompt alone: no introduction, no list, no heading, no explanation."""
_MIN_TAGS = 3
_TOKENS_PER_WORD = 3  # of any language, and some for a form around the words
_TAG_WORDS = 4


def is_chinese(prompt: str) -> bool:
    """Whether the prompt's own words are Chinese: quoted text and syntax don't count, and neither
    do the kanji of a Japanese text.
    """
    return script(" ".join(protect(prompt).sources)) == "han"


def is_tag_list(prompt: str) -> bool:
    """Whether the prompt is a list of tags ("1girl, solo, long hair"), not a sentence."""
    items = [item.strip() for item in prompt.strip(" ,\n").split(",")]
    told = re.compile(r"(?:an?|the|my|two|three|and|with)\s|.*[.!?](?:\s|$)", re.IGNORECASE)
    return len(items) >= _MIN_TAGS and all(
        0 < len(item.split()) <= _TAG_WORDS and not told.match(item) for item in items
    )


CONDITIONS: dict[str, Callable[[str], bool]] = {"zh": is_chinese, "tags": is_tag_list}


@dataclass(frozen=True)
class Template:
    """Words around a prompt.

    Args:
        system: system message; "" for none. ``{style}`` in it stands for ``style``.
        user: user message; ``{prompt}`` is where the user's text goes.
        style: what the text should look like; see ``for_target``.
        examples: pairs of a prompt and its rewrite, shown as earlier turns.
        prefill: beginning of the answer that the model has to continue, such as "<think>".
        require_answer: whether an answer without ``<answer>`` (or ``<prompt>``) tags counts as a
            failure.
        thinking: passed to chat templates that can switch reasoning on (``enable_thinking``).
        max_new_tokens: room for reasoning and answer together, at least 1.
        temperature: of sampled generations; 0 makes every generation greedy.
        top_p: nucleus of sampled generations, in (0, 1]; 1 keeps every token.
        top_k: so many likeliest tokens are sampled; 0 keeps every token.
        min_p: tokens are sampled that have this share of the likeliest one's probability, in
            [0, 1).
        repetition_penalty: positive; above 1, the model's own earlier tokens become less likely.
        num_beams: beams of what is not sampled; 1 is greedy search.
        length_penalty: exponent of the length that a beam's score is divided by.
        domain: small world whose words the model writes (``t2x.rewriters.domain``); "" for none.
        chat: whether the tokenizer's chat template is used; None is "if there is one".
        lead: in plain text, what stands between the user message and the answer.
        begin: in plain text, whether the tokenizer's token of beginning comes first.
        one_line: in plain text, whether a line break ends the answer.
        reader: how the answer is read, one of ``READERS``.
        suffix: words that follow every answer, after a comma of the text's own script.
        variants: pairs of a condition of ``CONDITIONS`` and the template for prompts that fulfil
            it, the first that does; its words and its reader count, settings of sampling stay
            those of this one.
    """

    system: str = ""
    user: str = "{prompt}"
    style: str = STYLE
    examples: tuple[tuple[str, str], ...] = ()
    prefill: str = ""
    require_answer: bool = False
    thinking: bool = False
    max_new_tokens: int = 256
    temperature: float = 0.8
    top_p: float = 0.95
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    num_beams: int = 1
    length_penalty: float = 1.0
    domain: str = ""
    chat: bool | None = None
    lead: str = "\nPrompt:"
    begin: bool = True
    one_line: bool = True
    reader: str = "prompt"
    suffix: str = ""
    variants: tuple[tuple[str, Template], ...] = ()

    def __post_init__(self) -> None:
        if self.user.count("{prompt}") != 1:
            raise T2XError(
                f"a template's user message must hold {{prompt}} once, given {self.user!r}"
            )
        names = {name for name, _ in self.variants}
        for name, allowed, good in (
            ("max_new_tokens", "at least 1", self.max_new_tokens >= 1),
            ("temperature", "0 for greedy, or positive", 0 <= self.temperature < math.inf),
            ("top_p", "above 0 and at most 1", 0 < self.top_p <= 1),
            ("top_k", "0 for all tokens, or positive", self.top_k >= 0),
            ("min_p", "at least 0 and below 1", 0 <= self.min_p < 1),
            ("repetition_penalty", "positive", 0 < self.repetition_penalty < math.inf),
            ("num_beams", "at least 1", self.num_beams >= 1),
            ("length_penalty", "a number", math.isfinite(self.length_penalty)),
            ("reader", f"one of {', '.join(READERS)}", self.reader in READERS),
            ("variants", f"for one of {', '.join(CONDITIONS)}", names <= set(CONDITIONS)),
        ):
            if not good:
                raise T2XError(
                    f"a template's {name} is {getattr(self, name)}; it must be {allowed}"
                )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Template:
        """Read a template from plain values; T2XError names an unknown key or a wrong value."""
        return build_config(cls, values)

    @property
    def instructions(self) -> str:
        """The system message with the style in its place."""
        return self.system.replace("{style}", self.style)

    @property
    def is_styled(self) -> bool:
        """Whether the style is asked for in words; formats that a checkpoint was trained on are
        not.
        """
        return "{style}" in self.system

    def for_prompt(self, prompt: str) -> Template:
        """The variant whose condition the prompt fulfils, or this one."""
        return next((t for name, t in self.variants if CONDITIONS[name](prompt)), self)

    def in_style(self, style: str, *, chinese: str = "", words: int = 0) -> Template:
        """The same with another style, and room for so many words in it; ``chinese`` is the style
        of the variant "zh". What a checkpoint was trained on stays as it is.
        """
        if not self.is_styled:
            return self
        other = {"zh": chinese or style}
        return replace(
            self,
            style=style,
            max_new_tokens=max(self.max_new_tokens, words * _TOKENS_PER_WORD),
            variants=tuple((n, t.in_style(other.get(n, style))) for n, t in self.variants),
        )


GENERAL = Template(system=_SYSTEM, user="Request: {prompt}")
_EXAMPLES = (
    (
        "an old rowing boat",
        "an old rowing boat with peeling green paint, pulled up on a pebble beach, calm grey sea "
        "behind it, soft morning light",
    ),
    (
        "pencil sketch of a heron",
        "pencil sketch of a heron standing in tall reeds, fine hatching, thin lines, pale paper",
    ),
    (
        'a bakery window that says "TEXT1"',
        'a small bakery window with "TEXT1" painted on the glass, loaves on wooden shelves, warm '
        "lamplight",
    ),
    (
        "an empty stadium, no crowd",
        "an empty stadium with rows of grey seats, green turf, long evening shadows, wide view",
    ),
    (
        "three blue kayaks under a bridge",
        "three blue kayaks side by side under a stone bridge, clear shallow water, bright summer "
        "afternoon",
    ),
)
# Models of a few hundred million parameters take the task from examples better than from words.
SMALL = Template(
    system="You turn short requests into vivid prompts for a text-to-image model.",
    examples=_EXAMPLES,
    max_new_tokens=96,
    repetition_penalty=1.2,
)
# A model that only continues text: examples show the task, and an answer ends with its line.
BASE = Template(
    system="Short requests, and each as a vivid prompt for a text-to-image model.",
    user="Request: {prompt}",
    examples=_EXAMPLES,
    max_new_tokens=96,
    repetition_penalty=1.2,  # without a turn to end, small models go round in circles
    chat=False,
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
