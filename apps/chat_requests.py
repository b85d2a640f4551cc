"""Requests and answers in OpenAI's format (platform.openai.com/docs/api-reference, chat and
completions), as far as a rewriter has a meaning for them.

What a rewriter can't do (tools, log-probabilities, formats) is refused; what only bounds or shapes
the text (``max_tokens``, ``top_p``, ...) is not used, since the rewriter's template decides that,
and the answer lists it under ``t2x.ignored``.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from t2x.plain import plain
from t2x.types import Rewrite

from .request_batcher import Request

MAX_CHOICES = 16
_IGNORED = (
    "frequency_penalty", "logit_bias", "max_completion_tokens", "max_tokens", "presence_penalty",
    "reasoning_effort", "stop", "top_p",
)  # fmt: skip
_HARMLESS = ("metadata", "safety_identifier", "service_tier", "store", "stream_options", "user")
_KNOWN = ("messages", "model", "n", "prompt", "seed", "stream", "temperature")
# What would change the meaning of the answer, unless it says what is so anyway.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "best_of": (None, 1),
    "echo": (None, False),
    "logprobs": (None, False),
    "parallel_tool_calls": (None, True, False),
    "response_format": (None, {"type": "text"}),
    "suffix": (None, ""),
    "tool_choice": (None, "none"),
    "tools": (None, []),
    "top_logprobs": (None, 0),
}

__all__ = ["MAX_CHOICES", "Asked", "BadRequest", "answer_body", "answer_events", "read_request"]


class BadRequest(Exception):
    """A request that can't be served: HTTP status, what is wrong, and which field it is."""

    def __init__(
        self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param
        self.code = code


@dataclass(frozen=True)
class Asked:
    """A request that was understood; ``chat`` tells chat from completions."""

    requests: tuple[Request, ...]
    chat: bool
    stream: bool
    ignored: tuple[str, ...]


def read_request(
    body: bytes, *, model: str, chat: bool, takes_temperature: bool, max_prompt: int
) -> Asked:
    """Read a request's JSON, or raise ``BadRequest``; ``max_prompt`` in characters.

    Of a chat the last message is rewritten, which must be the user's; completions take one prompt
    or a list of them.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest("the body is not valid JSON") from error
    if not isinstance(value, dict):
        raise BadRequest("the body must be a JSON object")
    named = value.get("model", model)
    if named != model:
        raise BadRequest(
            f"there is no such model; this server has {model!r}", status=404, param="model",
            code="model_not_found",
        )  # fmt: skip
    _refuse_others(value)
    temperature = _temperature(value, takes_temperature)
    num = _integer(value, "n", 1, low=1, high=MAX_CHOICES)
    seed = _integer(value, "seed", 0, low=-(2**63), high=2**63 - 1)
    prompts = [_last_user_text(value.get("messages"))] if chat else _prompts(value.get("prompt"))
    if any(len(prompt) > max_prompt for prompt in prompts):
        raise BadRequest(f"a prompt may have {max_prompt} characters", param="messages")
    stream = value.get("stream")
    if stream not in (None, True, False):
        raise BadRequest("stream must be true or false", param="stream")
    ignored = tuple(name for name in _IGNORED if value.get(name) is not None)
    made = tuple(Request(prompt, num, seed, temperature) for prompt in prompts)
    return Asked(made, chat, bool(stream), ignored)


def _refuse_others(value: Mapping[str, Any]) -> None:
    for name, given in value.items():
        if name in _NEUTRAL and given not in _NEUTRAL[name]:
            raise BadRequest(f"a rewriter has no {name}; leave it out", param=name)
        if name not in (*_NEUTRAL, *_KNOWN, *_IGNORED, *_HARMLESS):
            shown = name[:60].encode("utf-8", "backslashreplace").decode()  # lone surrogates
            raise BadRequest("the request has a field that is not known here", param=shown)


def _temperature(value: Mapping[str, Any], allowed: bool) -> float | None:
    given = value.get("temperature")
    if given is None:
        return None
    if not allowed:
        raise BadRequest(
            "this rewriter does not sample, so it has no temperature; leave it out",
            param="temperature",
        )
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= 2:
        raise BadRequest("temperature must be a number from 0 to 2", param="temperature")
    return float(given)


def _integer(value: Mapping[str, Any], name: str, default: int, *, low: int, high: int) -> int:
    given = value.get(name)
    if given is None:
        return default
    if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
        raise BadRequest(f"{name} must be a whole number from {low} to {high}", param=name)
    return given


def _last_user_text(messages: Any) -> str:
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a list that is not empty", param="messages")
    last = messages[-1]
    if not isinstance(last, dict) or last.get("role") != "user":
        raise BadRequest(
            "the last message must be the user's: it is what is rewritten", param="messages"
        )
    content = last.get("content")
    if isinstance(content, list):
        if not all(isinstance(part, dict) and part.get("type") == "text" for part in content):
            raise BadRequest("only parts of type text can be rewritten", param="messages")
        parts = [part.get("text") for part in content]
        content = "\n".join(parts) if all(isinstance(text, str) for text in parts) else None
    return _text(content, "messages")


def _prompts(given: Any) -> list[str]:
    if isinstance(given, list) and given and all(isinstance(prompt, str) for prompt in given):
        return [_text(prompt, "prompt") for prompt in given]
    if isinstance(given, str):
        return [_text(given, "prompt")]
    raise BadRequest(
        "prompt must be a text or a list of texts; tokens are not taken", param="prompt"
    )


def _text(given: Any, param: str) -> str:
    if not isinstance(given, str):
        raise BadRequest("the content must be a text", param=param)
    if not given.strip():
        raise BadRequest("the text to rewrite is empty", param=param)
    try:
        given.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadRequest("the text is no valid Unicode", param=param) from error
    return given


def answer_body(asked: Asked, groups: Sequence[Sequence[Rewrite]], model: str) -> dict[str, Any]:
    """The whole answer; the outcome of each choice stands beside it under ``t2x``."""
    choices = []
    for index, item in enumerate(_flat(groups)):
        part = (
            {"message": {"role": "assistant", "content": item.text, "refusal": None}}
            if asked.chat
            else {"text": item.text}
        )
        choices.append(
            {"index": index, **part, "finish_reason": "stop", "logprobs": None, "t2x": _told(item)}
        )
    return {**_head(asked, model), "choices": choices, "t2x": {"ignored": list(asked.ignored)}}


def answer_events(
    asked: Asked, groups: Sequence[Sequence[Rewrite]], model: str
) -> Iterator[dict[str, Any]]:
    """The same as a stream of chunks: a rewrite is known whole, once it has passed the guard."""
    head = _head(asked, model, chunk=True) | {"t2x": {"ignored": list(asked.ignored)}}
    for index, item in enumerate(_flat(groups)):
        text = (
            {"delta": {"role": "assistant", "content": item.text}}
            if asked.chat
            else {"text": item.text}
        )
        end: dict[str, Any] = {"delta": {}} if asked.chat else {"text": ""}
        yield head | {"choices": [{"index": index, **text, "finish_reason": None}]}
        last = {"index": index, **end, "finish_reason": "stop", "t2x": _told(item)}
        yield head | {"choices": [last]}


def _flat(groups: Sequence[Sequence[Rewrite]]) -> Iterator[Rewrite]:
    for group in groups:
        yield from group


def _head(asked: Asked, model: str, *, chunk: bool = False) -> dict[str, Any]:
    kind = "chat.completion" if asked.chat else "text_completion"
    return {
        "id": f"{'chatcmpl' if asked.chat else 'cmpl'}-{uuid.uuid4().hex}",
        "object": f"{kind}.chunk" if chunk and asked.chat else kind,
        "created": int(time.time()),
        "model": model,
    }


def _told(item: Rewrite) -> dict[str, Any]:
    reasons = [check.reason or check.name for check in item.checks if not check.passed]
    told = {
        "status": item.status,
        "reasons": reasons,
        "negative": item.negative,
        "reasoning": item.reasoning,
        "scores": dict(item.scores),
        "seed": item.seed,
    }
    found: dict[str, Any] = plain(told)
    return found
