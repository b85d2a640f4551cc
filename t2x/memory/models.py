"""Bytes of what writes and what scores: language models with their caches, and rewards."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from t2x.generators.loading import quiet
from t2x.memory.activations import without_data
from t2x.memory.counting import Footprint, Live, count_graph, peak_bytes
from t2x.memory.weights import module_bytes

if TYPE_CHECKING:
    from t2x.types import RewardModel

__all__ = ["held_tensors", "reward_activations", "reward_graph", "reward_weights", "writing_bytes"]

log = logging.getLogger(__name__)

LOGIT_COPIES = 5  # in float32: of the last token, while its choice is drawn
READ_TOGETHER = 512  # tokens, of several rows (t2x.rewriters.decoding)
_PLAIN = (str, bytes, int, float, bool, type(None), type)


def writing_bytes(
    model: Any,
    *,
    rows: int,
    prompt_tokens: int,
    new_tokens: int,
    shared_tokens: int = 0,
    fake: FakeTensorMode | None = None,
) -> dict[str, int]:
    """Give the bytes beside weights that a causal language model takes while it completes ``rows``
    prompts at a time: "cache" (keys and values at the end), "logits", and "read", the most at any
    moment while prompts are read or the last token is written, cache included. Of several rows
    what all begin with (``shared_tokens``) is read once.

    ``fake``: the mode in which its weights were made, if they have no data. Raises whatever the
    model raises for tensors without data.
    """
    mode = fake or FakeTensorMode(allow_non_fake_inputs=True)
    twin = without_data(model, mode)
    vocabulary = int(model.config.get_text_config().vocab_size)
    logits = LOGIT_COPIES * 4 * rows * vocabulary
    own = prompt_tokens - (shared_tokens if rows > 1 else 0)
    together = min(rows, max(1, READ_TOGETHER // own))

    def read(count: int, tokens: int, cache: Any = None, past: int = 0) -> Any:
        ids = torch.zeros(count, tokens, dtype=torch.long)
        mask = None  # one row has no gaps
        if rows > 1:
            mask = torch.ones(count, 1, tokens, past + tokens, dtype=torch.bool)
        return twin(
            input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True,
            logits_to_keep=1,
        )  # fmt: skip

    with quiet(), torch.no_grad(), mode:
        with Live(fake=True, mode=mode) as first:
            read(together, own)
        with Live(fake=True, mode=mode) as whole:
            last = prompt_tokens + new_tokens - 1
            found = read(rows, last)
            cache = found.past_key_values
            del found
            held = whole.now
            whole.peak = held
            read(rows, 1, cache, last)
    step = whole.peak - held
    alone = max(first.peak, held + max(step, logits))
    several = held + max(step, logits, first.peak)
    return {"cache": held, "logits": logits, "read": alone if rows == 1 else several}


def reward_graph(reward: RewardModel, *, size: tuple[int, int]) -> Footprint:
    """Bytes of going back from a reward to one grey picture of (height, width) pixels, which is run
    for real."""
    shape = (1, 3, *size) if reward.modality == "image" else (1, 1, 3, *size)
    media = torch.full(shape, 0.5, requires_grad=True)
    prompts = ["a red cat on the left of a small blue dog"]
    return count_graph(lambda: reward.score(prompts, media), [media], fake=False)


def held_tensors(thing: Any, depth: int = 8) -> Iterator[torch.nn.Module | Tensor]:
    """Give the modules and loose tensors that an object of this package holds, in fields,
    containers and what its functions close over."""
    seen: set[int] = set()

    def walk(value: Any, left: int) -> Iterator[torch.nn.Module | Tensor]:
        if isinstance(value, _PLAIN) or id(value) in seen or left < 0:
            return
        seen.add(id(value))
        if isinstance(value, (torch.nn.Module, Tensor)):
            yield value
            return
        for inner in _inside(value):
            yield from walk(inner, left - 1)

    yield from walk(thing, depth)


def _inside(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    cells = getattr(value, "__closure__", None) or ()
    found = [cell.cell_contents for cell in cells if _filled(cell)]
    found += [owner] if (owner := getattr(value, "__self__", None)) is not None else []
    fields = getattr(value, "__dict__", None)
    return found + (list(fields.values()) if isinstance(fields, dict) else [])


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def reward_weights(reward: RewardModel) -> int:
    """Bytes of the networks and tables that a loaded reward holds, each once."""
    weights: dict[int, int] = {}
    for found in held_tensors(reward):
        if isinstance(found, Tensor):
            weights[id(found)] = found.numel() * found.element_size()
            continue
        for tensor in (*found.parameters(), *found.buffers()):
            weights[id(tensor)] = 0
        weights[id(found)] = module_bytes(found)
    return sum(weights.values())


def reward_activations(
    reward: RewardModel, *, batch: int, size: tuple[int, int], frames: int | None = None
) -> int:
    """Bytes beside weights at the fullest moment of scoring ``batch`` grey pictures of (height,
    width) pixels, or clips of ``frames``; it is run for real, once, since rewards look at their
    data."""
    shape = (batch, 3, *size) if reward.modality == "image" else (batch, frames or 1, 3, *size)
    prompts = ["a red cat on the left of a small blue dog"] * batch

    def run() -> None:
        media = torch.full(shape, 0.5)
        with torch.no_grad():
            reward.score(prompts, media)

    return peak_bytes(run)
