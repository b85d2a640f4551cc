"""Puts user text into a chat template so that no user can close it or forge a role.

The template is rendered around a marker, cut there, and the user's text is tokenised on its own
with every added token taken apart: ``<|im_end|>`` or ``</think>`` typed by a user is characters,
never the control token.
"""

from __future__ import annotations

import re
from functools import cached_property
from itertools import pairwise
from typing import Any

from t2x.errors import T2XError
from t2x.rewriters.templates import Template

__all__ = ["PromptEncoder", "encode_plain"]

_MARKER = "t2xUserTextGoesHere7f3a"


def encode_plain(tokenizer: Any, text: str) -> list[int]:
    """Tokenise ``text`` without matching one added token, special or not."""
    added = [token.content for token in tokenizer.added_tokens_decoder.values()]
    names = sorted((a for a in added if len(a) > 1), key=len, reverse=True)
    text = text.encode("utf-8", "replace").decode("utf-8")  # lone surrogates
    cuts = {0, len(text)}
    if names:
        # Cut behind the first character of every match; look-ahead finds overlapping ones as well.
        pattern = "(?=" + "|".join(map(re.escape, names)) + ")"
        cuts |= {m.start() + 1 for m in re.finditer(pattern, text, re.IGNORECASE)}
    edges = sorted(cuts)
    ids: list[int] = []
    for start, end in pairwise(edges):
        ids += tokenizer(text[start:end], add_special_tokens=False, verbose=False)["input_ids"]
    control = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    return [i for i in ids if i not in control]


class PromptEncoder:
    """Turns prompts into token ids for one tokenizer and template.

    Training and inference both go through here, so that a model meets in use what it met in
    training.
    """

    def __init__(self, tokenizer: Any, template: Template) -> None:
        self.tokenizer = tokenizer
        self.template = template

    def encode(self, prompt: str) -> list[int]:
        """Token ids of the whole input for ``prompt``, up to where the model's answer begins."""
        head, tail = self._frame
        return [*head, *encode_plain(self.tokenizer, prompt.strip()), *tail]

    @cached_property
    def _frame(self) -> tuple[list[int], list[int]]:
        before, after = self._render().split(_MARKER)
        return self._ids(before), self._ids(after)

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    def _render(self) -> str:
        user = self._ask(_MARKER)
        if not self.tokenizer.chat_template:
            start = self.tokenizer.bos_token or ""
            system = f"{self.template.system}\n\n" if self.template.system else ""
            shown = "".join(f"{self._ask(p)}\nPrompt: {r}\n\n" for p, r in self.template.examples)
            text = f"{start}{system}{shown}{user}\nPrompt: "
        else:
            text = self._chat(user)
        if text.count(_MARKER) != 1:
            raise T2XError(
                f"the chat template shows the user's message {text.count(_MARKER)} times; "
                "give a tokenizer with a template that shows it once"
            )
        return text + self.template.prefill

    def _ask(self, prompt: str) -> str:
        return self.template.user.replace("{prompt}", prompt)

    def _chat(self, user: str) -> str:
        from jinja2.exceptions import TemplateError

        system = self.template.system
        turns = []
        for prompt, rewrite in self.template.examples:
            turns.append({"role": "user", "content": self._ask(prompt)})
            turns.append({"role": "assistant", "content": rewrite})
        turns.append({"role": "user", "content": user})
        if system:
            try:
                return self._apply([{"role": "system", "content": system}, *turns])
            except TemplateError:  # templates that know no system role
                turns[0] = {"role": "user", "content": f"{system}\n\n{turns[0]['content']}"}
        return self._apply(turns)

    def _apply(self, messages: list[dict[str, str]]) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                messages,
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=self.template.thinking,
            )
        )
