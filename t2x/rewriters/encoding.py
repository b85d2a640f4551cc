"""Puts user text into a chat template so that no user can close it or forge a role.

The template is rendered around a marker, cut there, and the user's text is tokenised on its own
with every added token taken apart: ``<|im_end|>`` or ``</think>`` typed by a user is characters,
never the control token.
"""

from __future__ import annotations

import re
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
        self.is_plain = not (tokenizer.chat_template if template.chat is None else template.chat)
        if not self.is_plain and not tokenizer.chat_template:
            raise T2XError("the template needs a chat template and the tokenizer has none")
        self._frames: dict[Template, tuple[list[int], list[int]]] = {}

    def encode(self, prompt: str) -> list[int]:
        """Token ids of the whole input for ``prompt``, up to where the model's answer begins.

        In plain text a line break would look like the end of the prompt, so that it becomes a
        blank; a chat template keeps it.
        """
        head, tail = self._frame(self.template.for_prompt(prompt))
        text = re.sub(r"\s*\n\s*", " ", prompt.strip()) if self.is_plain else prompt.strip()
        return [*head, *encode_plain(self.tokenizer, text), *tail]

    def answer(self, text: str) -> list[dict[str, str]] | str:
        """What stands behind ``conversation`` for the same trainers: one assistant message, or
        plain text for a model without a chat template."""
        return text if self.is_plain else [{"role": "assistant", "content": text}]

    def conversation(self, prompt: str) -> list[dict[str, str]] | str:
        """The same input for trainers that apply the chat template themselves: messages, or plain
        text for a model without one.

        Raises T2XError for a template that opens the answer itself: trainers have no place for
        that.
        """
        template = self.template.for_prompt(prompt)
        if template.prefill:
            raise T2XError(
                f"the template begins the answer with {template.prefill!r}, which trainers don't; "
                "put that into the chat template, or leave it out (policy.template={prefill: ''})"
            )
        if self.is_plain:
            return self._plain(template, _ask(template, re.sub(r"\s*\n\s*", " ", prompt.strip())))
        turns = self._turns(template, _ask(template, prompt.strip()))
        try:
            self._apply(turns)
        except _template_error():  # no system role
            return _without_system(turns)
        return turns

    def reads_alike(self, prompt: str) -> bool:
        """Whether a trainer, which tokenises the whole text at once, reads ``prompt`` as ``encode``
        does: not if it holds control tokens of the chat template."""
        turns = self.conversation(prompt)
        text = turns if isinstance(turns, str) else self._apply(turns)
        return self._ids(text) == self.encode(prompt)

    def _frame(self, template: Template) -> tuple[list[int], list[int]]:
        if template not in self._frames:
            before, after = self._render(template).split(_MARKER)
            self._frames[template] = self._ids(before), self._ids(after)
        return self._frames[template]

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    def _render(self, template: Template) -> str:
        user = _ask(template, _MARKER)
        text = self._plain(template, user) if self.is_plain else self._chat(template, user)
        if text.count(_MARKER) != 1:
            raise T2XError(
                f"the chat template shows the user's message {text.count(_MARKER)} times; "
                "give a tokenizer with a template that shows it once"
            )
        return text + template.prefill

    def _plain(self, template: Template, user: str) -> str:
        start = (self.tokenizer.bos_token or "") if template.begin else ""
        system = f"{template.instructions}\n\n" if template.system else ""
        shown = "".join(f"{_ask(template, p)}{template.lead} {r}\n\n" for p, r in template.examples)
        return f"{start}{system}{shown}{user}{template.lead}"

    def _turns(self, template: Template, user: str) -> list[dict[str, str]]:
        turns = []
        if template.instructions:
            turns.append({"role": "system", "content": template.instructions})
        for prompt, rewrite in template.examples:
            turns.append({"role": "user", "content": _ask(template, prompt)})
            turns.append({"role": "assistant", "content": rewrite})
        turns.append({"role": "user", "content": user})
        return turns

    def _chat(self, template: Template, user: str) -> str:
        turns = self._turns(template, user)
        try:
            return self._apply(turns)
        except _template_error():  # templates that know no system role
            if not template.instructions:
                raise
            return self._apply(_without_system(turns))

    def _apply(self, messages: list[dict[str, str]]) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                messages,
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=self.template.thinking,
            )
        )


def _ask(template: Template, prompt: str) -> str:
    return template.user.replace("{prompt}", prompt)


def _without_system(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    """The system message as the beginning of the first user's."""
    system, first, *rest = turns
    return [{"role": "user", "content": f"{system['content']}\n\n{first['content']}"}, *rest]


def _template_error() -> type[Exception]:
    from jinja2.exceptions import TemplateError

    return TemplateError
