"""Reads reasoning and prompt out of a completion: one parser for training, evaluation and use.

Accepts ``<think>/<answer>`` and ``<reason>/<prompt>`` (both are found in checkpoints of RePrompt,
arXiv 2505.17540), over several lines, with the opening of the reasoning in the prompt; one JSON
object with a prompt in it; one code fence around the whole answer; a label before it in English,
Chinese, Spanish or German; and a negative prompt on a line of its own behind it. A block that is
not closed is a failure, never a prompt, and so is a list of several prompts. Letters, line breaks
and apostrophes of the prompt itself stay as they are.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["TAGS", "Parsed", "parse_completion", "replace_answer", "write_completion"]

TAGS = tuple(
    f"<{slash}{name}>" for name in ("think", "reason", "answer", "prompt") for slash in ("", "/")
)
_CLOSED_REASONING = re.compile(r"^.*</(?:think|reason)>", re.DOTALL)
_ANSWER = re.compile(r"<(answer|prompt)>(.*?)</\1>", re.DOTALL)
_COLON = r"\**[ \t]*[:：]\**\s*"
_LABEL = re.compile(
    r"^\**(?:(?:the )?(?:(?:rewritten|improved|enhanced|final|new|image|revised|optimi[sz]ed) )*"
    r"prompt"
    r"|(?:改写|优化|增强|最终|新)?(?:后)?(?:的)?"
    r"提示词"
    r"|(?:el )?prompt(?: (?:mejorado|reescrito|final|nuevo))?|descripci[oó]n(?: de la imagen)?"
    r"|(?:(?:verbesserter|überarbeiteter|umgeschriebener|neuer) )?prompt|bildbeschreibung)"
    + _COLON,
    re.IGNORECASE,
)
_NEGATIVE = re.compile(
    r"\n\s*\**(?:negative(?:[ _-]prompt)?|(?:负面|反向|负向)提示词"
    r"|prompt negativo|negativer prompt)" + _COLON + r"(?P<text>[^\n]*)\s*$",
    re.IGNORECASE,
)
_NOTHING = frozenset(("", "none", "n/a", "-", "null", "无", "ninguno", "keine", "nichts"))
_FENCE = re.compile(r"```(?:[\w-]*[ \t]*\n)?(?P<text>.*?)\n?[ \t]*```", re.DOTALL)
_ITEM = re.compile(
    r"^[ \t]*(?:\d{1,2}[.)、]|(?:prompt|option|version|提示词) ?\d{1,2}\s*[:：.)])"
    r"[ \t]*\S",
    re.MULTILINE | re.IGNORECASE,
)
_PROMPT_KEYS = (
    "prompt",
    "rewritten_prompt",
    "rewritten",
    "enhanced_prompt",
    "improved_prompt",
    "positive_prompt",
    "answer",
)
_NEGATIVE_KEYS = ("negative_prompt", "negative")
_REASON_KEYS = ("reasoning", "thinking", "thought", "analysis")
_WRAPS = (
    ('"', '"'),
    ("\u201c", "\u201d"),
    ("`", "`"),
    ("\u300c", "\u300d"),
    ("\u00ab", "\u00bb"),
    ("'", "'"),
)


@dataclass(frozen=True)
class Parsed:
    """What a completion says: ``text`` is the prompt, or ``problem`` says why there is none;
    ``negative`` is the negative prompt beside it.
    """

    text: str = ""
    reasoning: str = ""
    problem: str = ""
    negative: str = ""


def parse_completion(
    completion: str, *, truncated: bool = False, require_answer: bool = False, source: str = ""
) -> Parsed:
    """Parse ``completion``; ``truncated`` says that it ended for lack of room.

    With ``require_answer`` a completion without answer tags is a problem; without it, what follows
    the reasoning is the prompt. A truncated completion is only good if its answer block is closed.
    ``source`` is the user's prompt: a list is an answer only to a prompt that holds one.
    """
    head = _CLOSED_REASONING.match(completion)
    rest = completion[head.end() :] if head else completion
    reasoning = re.sub(r"</?(?:think|reason)>", "", head.group()).strip() if head else ""
    if not head and (opened := re.search(r"<(?:think|reason)>", rest)):
        cause = "cut off inside its reasoning" if truncated else "reasoning is not closed"
        return Parsed(reasoning=rest[opened.end() :].strip(), problem=cause)
    blocks = list(_ANSWER.finditer(rest))
    if blocks:
        return _read(blocks[-1].group(2), reasoning, source)
    if truncated:
        return Parsed("", reasoning, "cut off before its end")
    if require_answer or re.search(r"</?(?:answer|prompt)>", rest):
        return Parsed("", reasoning, "no closed answer block")
    return _read(rest, reasoning, source)


def write_completion(text: str, reasoning: str = "", negative: str = "") -> str:
    """Write what ``parse_completion`` reads: the completion that a model is to learn."""
    thought = f"<think>{reasoning}</think>" if reasoning else ""
    without = f"\nNegative prompt: {negative}" if negative else ""
    return f"{thought}<answer>{text}{without}</answer>"


def replace_answer(completion: str, text: str) -> str:
    """The same completion with another prompt in its answer: reasoning and tags stay."""
    head = _CLOSED_REASONING.match(completion)
    begin = head.end() if head else 0
    blocks = list(_ANSWER.finditer(completion, begin))
    if not blocks:
        return completion[:begin] + text
    start, end = blocks[-1].span(2)
    return completion[:start] + text + completion[end:]


def _read(answer: str, reasoning: str, source: str) -> Parsed:
    """Read what stands where the prompt should be."""
    text = answer.strip()
    if fence := _FENCE.fullmatch(text):
        text = fence["text"].strip()
    if _is_json(text):
        parsed = _read_json(text)
        return replace(parsed, reasoning=reasoning or parsed.reasoning)
    negative = ""
    if found := _NEGATIVE.search(text):
        text, negative = text[: found.start()], _some(found["text"])
    text = _unwrap(text)
    if "```" in text and "```" not in source:
        return Parsed("", reasoning, "a code fence around a part of the answer")
    if len(_ITEM.findall(text)) > 1 and not _ITEM.search(source):
        return Parsed("", reasoning, "several prompts in a list in place of one")
    problem = "" if text else "the answer is empty"
    return Parsed(text, reasoning, problem, negative)


def _is_json(text: str) -> bool:
    """Whether ``text`` is meant as JSON: braces around a quoted key, or brackets around texts."""
    return bool(re.match(r"\{\s*[\"'}]|\[\s*[\"{\]]", text))


def _read_json(text: str) -> Parsed:
    try:
        value: Any = json.loads(text, strict=False)  # models write line breaks as they are
    except (ValueError, RecursionError):
        return Parsed(problem="broken JSON")
    if not isinstance(value, dict):
        return Parsed(problem="several prompts in a list in place of one")
    keys = {str(key).lower().replace(" ", "_"): item for key, item in value.items()}
    prompt = next((keys[k] for k in _PROMPT_KEYS if k in keys), None)
    if not isinstance(prompt, str):
        return Parsed(problem="JSON without a text under 'prompt'")
    negative = next((keys[k] for k in _NEGATIVE_KEYS if k in keys), "")
    if isinstance(negative, list):
        negative = ", ".join(str(item) for item in negative)
    why = next((keys[k] for k in _REASON_KEYS if isinstance(keys.get(k), str)), "")
    problem = "" if prompt.strip() else "the answer is empty"
    return Parsed(prompt.strip(), why, problem, _some(negative if negative else ""))


def _some(negative: object) -> str:
    """A negative prompt, or "" for a word that says there is none."""
    text = _unwrap(str(negative)).rstrip(".。 ")
    return "" if text.casefold() in _NOTHING else text


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
