"""Reads reasoning and prompt out of a completion: one parser for training, evaluation and use.

Accepts ``<think>/<answer>`` and ``<reason>/<prompt>`` (both are found in checkpoints of RePrompt,
arXiv 2505.17540), over several lines, with the opening of the reasoning in the prompt. A block that
is not closed is a failure, never a prompt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["TAGS", "Parsed", "parse_completion"]

TAGS = tuple(
    f"<{slash}{name}>" for name in ("think", "reason", "answer", "prompt") for slash in ("", "/")
)
_CLOSED_REASONING = re.compile(r"^.*</(?:think|reason)>", re.DOTALL)
_ANSWER = re.compile(r"<(answer|prompt)>(.*?)</\1>", re.DOTALL)
_LABEL = re.compile(
    r"^(?:(?:rewritten|improved|enhanced|final|new|image) )?prompt\s*:\s*", re.IGNORECASE
)
_WRAPS = (('"', '"'), ("\u201c", "\u201d"), ("`", "`"))


@dataclass(frozen=True)
class Parsed:
    """What a completion says: ``text`` is the prompt, or ``problem`` says why there is none."""

    text: str = ""
    reasoning: str = ""
    problem: str = ""


def parse_completion(
    completion: str, *, truncated: bool = False, require_answer: bool = False
) -> Parsed:
    """Parse ``completion``; ``truncated`` says that it ended for lack of room.

    With ``require_answer`` a completion without answer tags is a problem; without it, what follows
    the reasoning is the prompt. A truncated completion is only good if its answer block is closed.
    """
    head = _CLOSED_REASONING.match(completion)
    rest = completion[head.end() :] if head else completion
    reasoning = re.sub(r"</?(?:think|reason)>", "", head.group()).strip() if head else ""
    if not head and (opened := re.search(r"<(?:think|reason)>", rest)):
        cause = "cut off inside its reasoning" if truncated else "reasoning is not closed"
        return Parsed(reasoning=rest[opened.end() :].strip(), problem=cause)
    blocks = list(_ANSWER.finditer(rest))
    if blocks:
        text = blocks[-1].group(2)
        problem = "" if text.strip() else "the answer is empty"
        return Parsed(_unwrap(text), reasoning, problem)
    if truncated:
        return Parsed("", reasoning, "cut off before its end")
    if require_answer or re.search(r"</?(?:answer|prompt)>", rest):
        return Parsed("", reasoning, "no closed answer block")
    text = _unwrap(rest)
    return Parsed(text, reasoning, "" if text else "the answer is empty")


def _unwrap(text: str) -> str:
    """Drop a label before and a pair of quotes around the whole answer."""
    text = _LABEL.sub("", text.strip()).strip()
    for left, right in _WRAPS:
        inner = text[1:-1]
        if (
            len(text) > 1
            and text[0] == left
            and text[-1] == right
            and not {left, right} & set(inner)
        ):
            return inner.strip() if not re.fullmatch(r"TEXTX*\d+", inner) else text
    return text
