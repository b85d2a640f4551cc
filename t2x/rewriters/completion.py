"""From what a model wrote to a ``Rewrite``: the one path for local models, vLLM, endpoints and
vision-language models.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from t2x.prompts.checks import says_the_same
from t2x.rewriters import tipo
from t2x.rewriters.parsing import TAGS, Parsed, parse_completion
from t2x.rewriters.templates import Template
from t2x.types import Check, Rewrite

__all__ = ["Completion", "answer", "decode", "line_ends", "read"]

_HAN = re.compile(r"[\u3400-\u9fff。，；]")
_CHANGE = r"(?:change|edit|修改|更改|cambio|cambiar|änderung|ändern)"
_KEEP = r"(?:keep|保持|保留|mantener|conservar|behalten|beibehalten)"
_EDIT = re.compile(
    rf"\s*\**{_CHANGE}\**\s*[:：]\**\s*(?P<change>\S.*?)\s*\n\s*"
    rf"\**(?P<verb>{_KEEP})\**\s*[:：]\**\s*(?P<keep>\S.*?)\s*",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class Completion:
    """What the model wrote for one row: ``text`` with its tags, whether it was ``truncated``, or
    the ``problem`` before it. ``ids`` are the tokens that were sampled, with the one that ended it,
    where they are known: a text can be that of several sequences of tokens.
    """

    text: str = ""
    truncated: bool = False
    problem: str = ""
    ids: tuple[int, ...] = field(default=(), compare=False, repr=False)


def line_ends(tokenizer: Any) -> frozenset[int]:
    """Tokens that hold a line break: those end an answer of one line."""
    marks = ("\n", "\u010a", "<0x0A>")  # as it is, in byte-level vocabularies, as a byte token
    found = (i for t, i in tokenizer.get_vocab().items() if any(m in str(t) for m in marks))
    return frozenset(i for i in found if "\n" in tokenizer.decode([i]))


def decode(
    tokenizer: Any,
    ids: Sequence[int],
    *,
    ends: Collection[int],
    lines: Collection[int] = (),
    prefill: str = "",
) -> Completion:
    """Make the text of new tokens: cut at one of ``ends``, at any other control token (a model
    can't open a new turn), or at the line break inside one of ``lines``.
    """
    tokens = tokenizer.convert_ids_to_tokens(list(ids))
    control = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    stops = set(ends) | control | set(lines)
    end = next((i for i, t in enumerate(ids) if t in stops and tokens[i] not in TAGS), len(ids))
    broken = end < len(ids) and ids[end] in lines
    text = str(
        tokenizer.decode(
            list(ids[: end + broken]), skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
    )
    return Completion(
        prefill + (text.split("\n")[0] if broken else text),
        truncated=end == len(ids),
        ids=tuple(ids[: end + 1]),
    )


def read(prompt: str, completion: Completion, template: Template) -> Parsed:
    """Read reasoning, prompt and negative prompt out of a completion, as its template says."""
    chosen = template.for_prompt(prompt)
    text, cut = completion.text, completion.truncated
    if completion.problem:
        return Parsed(problem=completion.problem)
    if chosen.reader == "items":
        return _items(prompt, text, cut)
    if chosen.reader == "tipo-tags":
        return tipo.read_tags(prompt, text, truncated=cut)
    if chosen.reader == "tipo-long":
        return tipo.read_long(text, truncated=cut)
    parsed = parse_completion(
        text, truncated=cut, require_answer=chosen.require_answer, source=prompt
    )
    if chosen.reader == "edit" and not parsed.problem:
        parsed = _edit(parsed)
    if chosen.suffix and not parsed.problem:
        parsed = replace(parsed, text=_joined(parsed.text, chosen.suffix))
    return parsed


def answer(
    prompt: str, completion: Completion, template: Template, *, seed: int, model_id: str
) -> Rewrite:
    """Make the record of one completion: accepted, unchanged, or failed with the reason."""
    parsed = read(prompt, completion, template)
    base = Rewrite(
        prompt,
        prompt,
        reasoning=parsed.reasoning,
        seed=seed,
        model_id=model_id,
        raw=completion.text,
    )
    if parsed.problem:
        return replace(base, status="failed", checks=(Check("completion", False, parsed.problem),))
    checks = (Check("completion", True),)
    if says_the_same(prompt, parsed.text) and not parsed.negative:
        return replace(base, status="unchanged", checks=checks)
    return replace(base, text=parsed.text, negative=parsed.negative, checks=checks)


def _items(prompt: str, text: str, truncated: bool) -> Parsed:
    """A list of phrases between commas: of one that is cut off, all but the last phrase."""
    if re.search(r"\brephrase:", text, re.IGNORECASE) and "rephrase:" not in prompt.lower():
        return Parsed(problem="the answer repeats the words of the template")
    text = text.strip()
    if truncated:
        if "," not in text:
            return Parsed(problem="cut off before its end")
        text = text.rpartition(",")[0].rstrip(" ,")
    return Parsed(text, problem="" if text else "the answer is empty")


def _edit(parsed: Parsed) -> Parsed:
    """An instruction that says what to change and what to keep, each on a line of its own."""
    found = _EDIT.fullmatch(parsed.text)
    if found is None:
        return replace(
            parsed, text="", problem="the answer does not say what to change and what to keep"
        )
    change, keep = found["change"], found["keep"]
    if not re.match(_KEEP, keep, re.IGNORECASE):
        keep = f"{found['verb'].capitalize()}{'' if _HAN.search(keep) else ' '}{keep}"
    end = "" if change[-1] in ".!?。！？" else ("。" if _HAN.search(change) else ".")
    blank = "" if _HAN.search(change) else " "
    return replace(parsed, text=f"{change}{end}{blank}{keep}")


def _joined(text: str, suffix: str) -> str:
    """Put a suffix behind a text, with a comma of its script and never without one."""
    if suffix.casefold() in text.casefold():
        return text
    comma = "，" if _HAN.search(suffix) else ", "
    return text.rstrip(" .,;。，；") + comma + suffix
