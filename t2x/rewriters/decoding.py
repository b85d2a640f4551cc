"""Many completions at once: rows that end make room for the next ones while the others go on.

``generate`` decodes a batch until its slowest row ends and reads the words around the prompt again
for every row. Here a row leaves its slot at its end token and a waiting one takes it (continuous
batching, as in Orca, OSDI 2022), and what all rows begin with is read once. Every row sits in its
slot of one cache at its own length, so that nothing is padded on the left and nothing moves but the
last slot, into a gap.

This takes models with ordinary attention in every layer. ``fits`` tries a few tokens against the
model's plain forward pass, so that any other (sliding windows, state-space layers, positions read
off the mask) is left to ``generate``.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from t2x.rewriters.sampling import RowSampler, row_generator

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from t2x.rewriters.slot_cache import SlotCache

log = logging.getLogger(__name__)

_PREFILL = 512  # tokens that are read in one pass, padding included
_PROBE = (7, 4)  # tokens of the rows that ``fits`` tries
_TOLERANCE = {"torch.float32": 1e-3, "torch.float64": 1e-3}  # of the spread of logits
_HALF = 0.1

__all__ = ["Decoded", "Settings", "decode_rows", "fits"]


@dataclass(frozen=True)
class Settings:
    """How rows are decoded: ``stops`` end a text; ``slots`` rows at a time; ``sampling`` is what
    ``RowSampler`` takes."""

    stops: frozenset[int]
    max_new_tokens: int
    slots: int
    sampling: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Decoded:
    """What row ``index`` wrote, its end token included, and its closest choice in logits."""

    index: int
    ids: list[int]
    margin: float


@dataclass
class _Slot:
    index: int
    length: int  # tokens of the row that the cache holds
    token: int  # what it reads next
    generator: Generator | None
    written: list[int] = field(default_factory=list)
    margin: float = float("inf")


def decode_rows(
    model: Any,
    rows: Sequence[Sequence[int]],
    seeds: Sequence[int | None],
    settings: Settings,
) -> Iterator[Decoded]:
    """Complete rows of token ids; each is given as soon as it ends, in any order.

    A row with a seed is sampled from its own random stream; None makes it greedy. Rows should be in
    an order of their length: neighbours are read together.
    """
    import torch

    from t2x.rewriters.slot_cache import SlotCache

    if not rows:
        return
    prefix = _shared(rows)
    cache = SlotCache(min(settings.slots, len(rows)))
    sampler = RowSampler(**settings.sampling)
    waiting = iter(range(len(rows)))
    active: list[_Slot] = []
    left = len(rows)
    with torch.inference_mode():
        _read_prefix(model, cache, prefix)
    while left:
        with torch.inference_mode():  # never over a yield: it would hold for the caller as well
            free = cache.slots - len(active)
            if free and len(active) < left and (not active or free * 8 >= cache.slots):
                for index in islice(waiting, free):
                    ids = rows[index]
                    active.append(_Slot(index, len(ids) - 1, ids[-1], row_generator(seeds[index])))
                _read_rows(model, cache, rows, active, len(prefix))
            _step(model, cache, active, sampler)
            ended = _leave(cache, active, settings)
        left -= len(ended)
        yield from ended


def _shared(rows: Sequence[Sequence[int]]) -> list[int]:
    """What all rows begin with; each keeps one token of its own at least."""
    whole = [tuple(row) for row in rows]
    first, last = min(whole), max(whole)  # in the order of words: what these share, all share
    same, most = 0, min(map(len, rows)) - 1
    while same < most and first[same] == last[same]:
        same += 1
    return list(first[:same])


def _read_prefix(model: Any, cache: SlotCache, prefix: Sequence[int]) -> None:
    if not prefix:
        return
    ids = _tensor(model, [list(prefix)])
    cache.aim(slice(0, 1), 0, len(prefix))
    _forward(model, cache, ids, _tensor(model, [range(len(prefix))]), _causal(1, 0, ids.shape[1]))
    cache.spread()


def _read_rows(
    model: Any, cache: SlotCache, rows: Sequence[Sequence[int]], active: list[_Slot], begin: int
) -> None:
    """Put what new rows hold between the shared beginning and their last token into the cache."""
    new = [i for i, slot in enumerate(active) if not slot.written]
    while new:
        count, longest = 0, 0
        for i in new:
            longest_now = max(longest, active[i].length - begin)
            if count and (count + 1) * longest_now > _PREFILL:
                break
            count, longest = count + 1, longest_now
        chunk, new = new[:count], new[count:]
        if longest == 0:
            continue
        own = [list(rows[active[i].index][begin:-1]) for i in chunk]
        ids = _tensor(model, [row + [0] * (longest - len(row)) for row in own])
        places = _tensor(model, [range(begin, begin + longest)] * len(chunk))
        cache.aim(slice(chunk[0], chunk[-1] + 1), begin, begin + longest)
        _forward(model, cache, ids, places, _causal(len(chunk), begin, longest))


def _step(model: Any, cache: SlotCache, active: list[_Slot], sampler: RowSampler) -> None:
    """Let every active row read its token and choose the next one."""
    logits = _read_tokens(model, cache, active)
    longest = max(len(slot.written) for slot in active)
    written = [s.written + s.written[-1:] * (longest - len(s.written)) for s in active]
    scores, margins = sampler(
        logits,
        _tensor(model, [row or [0] * longest for row in written]).reshape(len(active), longest),
        [slot.generator for slot in active],
        counts=[len(slot.written) for slot in active],
    )
    chosen = zip(active, scores.argmax(-1).tolist(), margins.tolist(), strict=True)
    for slot, token, margin in chosen:
        slot.length += 1
        slot.token = token
        slot.written.append(token)
        slot.margin = min(slot.margin, margin)


def _read_tokens(model: Any, cache: SlotCache, active: Sequence[_Slot]) -> Tensor:
    """Logits (N, V) after the next token of each slot, which the cache holds from now on."""
    import torch

    lengths = torch.tensor([slot.length for slot in active])
    end = int(lengths.max()) + 1
    cache.aim(slice(0, len(active)), lengths, end)
    ids = _tensor(model, [[slot.token] for slot in active])
    mask = torch.arange(end) <= lengths[:, None]
    places = lengths[:, None].to(ids.device)
    return _forward(model, cache, ids, places, mask[:, None, None])[:, -1]


def _leave(cache: SlotCache, active: list[_Slot], settings: Settings) -> list[Decoded]:
    """Take out rows that have ended; the last slot moves into each gap."""
    done = []
    for i in reversed(range(len(active))):
        slot = active[i]
        if slot.token in settings.stops or len(slot.written) >= settings.max_new_tokens:
            done.append(Decoded(slot.index, slot.written, slot.margin))
            last = active.pop()
            if last is not slot:
                active[i] = last
                cache.move(len(active), i, last.length)
    return done


def _forward(model: Any, cache: SlotCache, ids: Tensor, places: Tensor, mask: Tensor) -> Tensor:
    """Logits of the last position, (N, 1, V); ``mask`` (N, 1, Q, K) is true where a query looks."""
    import torch

    mask = mask.to(ids.device)
    if model.config._attn_implementation != "sdpa":  # eager adds it to the scores
        mask = torch.zeros(mask.shape, dtype=model.dtype, device=ids.device).masked_fill(
            ~mask, torch.finfo(model.dtype).min
        )
    output = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=places,
        use_cache=True,
        logits_to_keep=1,
        **{_cache_name(model): cache},
    )
    logits: Tensor = output.logits
    return logits


def _cache_name(model: Any) -> str:
    """Newer versions of transformers call it ``cache``."""
    names = inspect.signature(model.forward).parameters
    return "cache" if "cache" in names else "past_key_values"


def _causal(rows: int, before: int, length: int) -> Tensor:
    """Mask (rows, 1, length, before + length) of rows that follow ``before`` tokens."""
    import torch

    places = torch.arange(before + length)
    return (places <= places[before:, None]).expand(rows, 1, -1, -1)


def _tensor(model: Any, values: Sequence[Sequence[int]]) -> Tensor:
    import torch

    return torch.tensor([list(row) for row in values], dtype=torch.long, device=model.device)


def fits(model: Any) -> bool:
    """Whether ``decode_rows`` computes what the model's own forward pass computes, tried on two
    short rows; False also for whatever raises an error. What is slower for it is said as a warning;
    a rewriter asks once for each model.
    """
    import torch

    reason = ""
    try:
        with torch.inference_mode():
            reason = _misfit(model)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        log.debug("%s raised", type(model).__name__, exc_info=True)
        reason = f"{type(error).__name__}: {error}"
    if reason:
        log.warning(
            "%s is decoded by generate, in whole batches, which is slower: %s",
            type(model).__name__,
            " ".join(reason.split())[:200],
        )
    return not reason


def _misfit(model: Any) -> str:
    """What keeps ``decode_rows`` from this model, "" if nothing does."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    from t2x.rewriters.slot_cache import SlotCache

    layers = DynamicCache(config=model.config).layers
    if model.config._attn_implementation not in ("sdpa", "eager") or any(
        type(layer) is not DynamicLayer for layer in layers
    ):
        return "its attention is not of the ordinary kind in every layer"
    size = model.get_input_embeddings().num_embeddings
    rows = [[(7 * i + 13 * n + 3) % size for i in range(n)] for n in _PROBE]
    cache = SlotCache(len(rows))
    rows = [[1 % size, *row] for row in rows]
    _read_prefix(model, cache, rows[0][:1])
    active = [_Slot(i, len(row) - 1, row[-1], None) for i, row in enumerate(rows)]
    _read_rows(model, cache, rows, active, 1)
    ours = _read_tokens(model, cache, active)
    for i, row in enumerate(rows):
        plain = model(input_ids=_tensor(model, [row])).logits[0, -1].float()
        worst = (ours[i].float() - plain).abs().max() / plain.std().clamp(min=1e-12)
        if not worst <= _TOLERANCE.get(str(model.dtype), _HALF):
            return f"on a short row it differs by {float(worst):.2g} of its spread"
    return ""
