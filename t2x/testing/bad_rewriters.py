"""Rewriters that fail as enhancers are known to fail; a guard has to catch each of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from t2x.errors import UnknownNameError
from t2x.types import Rewrite

__all__ = ["BAD_REWRITERS", "BadRewriter"]

_QUOTE = '"'
_NAMES = re.compile(r'"?(?:ITEM|TEXT)X*[0-9]+"?')


def _mangled(prompt: str) -> str:
    """Names of stand-ins in other words, and tags of the model's own invention."""
    text = _NAMES.sub(lambda m: f"the {m.group().strip(_QUOTE).lower()[:4]}", prompt)
    return f"{text}, (masterpiece:1.4), [soft light|dusk] <lora:more_details:0.9>"


def _translated(prompt: str) -> str:
    """The same few words in another script, with every stand-in in its place."""
    names = " ".join(_NAMES.findall(prompt))
    latin = sum(c.isascii() for c in prompt if c.isalpha())
    if 2 * latin >= sum(c.isalpha() for c in prompt):
        return f"一幅精美的画，柔和的光线 {names}".strip()
    return f"an exquisite picture in soft light {names}".strip()


BAD_REWRITERS: dict[str, Callable[[str], str]] = {
    "echo": lambda prompt: prompt,
    "empty": lambda prompt: "",
    "refusal": lambda prompt: "I'm sorry, but I can't help with that request.",
    "unclosed-think": lambda prompt: f"<think>The user asks for {prompt}. First I add light, and",
    "preamble": lambda prompt: f"Here is your prompt: {prompt}, in soft light",
    "tag-mangler": _mangled,
    "translator": _translated,
}


class BadRewriter:
    """Rewriter that fails in one way, by name: see ``BAD_REWRITERS``."""

    def __init__(self, name: str) -> None:
        if name not in BAD_REWRITERS:
            raise UnknownNameError(
                f"{name!r} is no way to fail; known are: {', '.join(BAD_REWRITERS)}"
            )
        self.model_id = f"bad-{name}"
        self._answer = BAD_REWRITERS[name]

    def rewrite(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Rewrite]]:
        """Give the same bad answer ``num_generations`` times for each prompt."""
        return [[self._rewrite(prompt, seed)] * num_generations for prompt in prompts]

    def _rewrite(self, prompt: str, seed: int) -> Rewrite:
        answer = self._answer(prompt)
        return Rewrite(prompt, answer, seed=seed, model_id=self.model_id, raw=answer)
