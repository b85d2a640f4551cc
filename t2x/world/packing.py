"""Many questions about one picture in one pass of a LLaVA, each as if it stood alone.

The picture goes through the decoder once; its keys and values are handed to rows that hold several
questions. A question sees the picture and itself, at the positions that it would have alone, so
that training equals single-question inference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from t2x.world.questions import Turn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

__all__ = ["KINDS", "PATCHES", "Packed", "answer_states", "look", "pack", "turn_text"]

PATCHES = 64
ROW = 64  # places for questions in one row
KINDS = ("verify", "fault", "atomic", "caption", "text")  # fault: what follows yes or no


def turn_text(turn: Turn) -> str:
    """A turn as the chat template puts it behind the picture."""
    return f"{turn.question}<|assistant|>{turn.answer}<|end|>"


@dataclass(frozen=True)
class Packed:
    """Questions in R rows of S places, each row about one picture; it may hold several questions.

    ``ids`` (R, S) int64; ``owner`` (R,): the picture's number in the batch; ``segment`` (R, S)
    numbers the question among the picture's, -1 padding; ``place`` (R, S) counts inside it;
    ``labels`` (R, S): the next token where it is part of an answer, else -100; ``kinds`` (R, S)
    indexes ``KINDS`` there.
    """

    ids: Tensor
    owner: Tensor
    segment: Tensor
    place: Tensor
    labels: Tensor
    kinds: Tensor


Columns = tuple[list[int], list[int], list[int], list[int], list[int]]


def _columns(ids: list[int], number: int, turn: Turn, answer: int) -> Columns:
    """One question as the five columns of a row."""
    start = len(ids) - 1 - ids[::-1].index(answer)
    kind = KINDS.index(turn.kind)
    rest = KINDS.index("fault") if turn.kind == "verify" else kind  # what follows yes or no
    kinds = [0] * start + [kind] + [rest] * (len(ids) - start - 2) + [0]
    labels = [-100] * start + ids[start + 1 :] + [-100]
    return ids, [number] * len(ids), list(range(len(ids))), labels, kinds


def pack(tokenizer: PreTrainedTokenizerFast, turns: Sequence[Sequence[Turn]]) -> Packed:
    """Lay the turns of each picture into rows of ``ROW`` places, longest first."""
    texts = [turn_text(turn) for row in turns for turn in row]
    encoded = iter(tokenizer(texts, add_special_tokens=False)["input_ids"])
    answer = tokenizer.convert_tokens_to_ids("<|assistant|>")
    rows: list[Columns] = []
    owner: list[int] = []
    for picture, row in enumerate(turns):
        parts = [_columns(next(encoded), number, turn, answer) for number, turn in enumerate(row)]
        own: list[Columns] = []
        for part in sorted(parts, key=lambda p: -len(p[0])):
            fit = next((r for r in own if len(r[0]) + len(part[0]) <= ROW), None)
            if fit is None:
                own.append(part)
            else:
                for column, more in zip(fit, part, strict=True):
                    column.extend(more)
        rows += own
        owner += [picture] * len(own)
    length = max(len(columns[0]) for columns in rows)
    fills = (tokenizer.pad_token_id, -1, 0, -100, 0)
    ids, *others = (
        torch.tensor([columns[i] + [fill] * (length - len(columns[i])) for columns in rows])
        for i, fill in enumerate(fills)
    )
    return Packed(ids, torch.tensor(owner), *others)


def packed_mask(segment: Tensor) -> Tensor:
    """What may see what: (R, 1, S, P + S), 0 or -inf, P the user token and the picture, which
    every place sees.
    """
    rows, length = segment.shape
    same = segment.unsqueeze(1) == segment.unsqueeze(2)  # (R, query, key)
    own = same & torch.ones(length, length, dtype=torch.bool).tril()
    seen = torch.cat([torch.ones(rows, length, PATCHES + 1, dtype=torch.bool), own], 2)
    return torch.zeros(seen.shape).masked_fill_(~seen, -torch.inf).unsqueeze(1)


def look(model: Any, pixels: Tensor) -> Tensor:
    """What the vision tower says of each patch: pictures (N, 3, 64, 64) in [0, 1] to (N, 64, D)."""
    hidden: Tensor = model.model.vision_tower(pixels * 2 - 1).last_hidden_state[:, 1:]
    return hidden


def answer_states(model: Any, seen: Tensor, packed: Packed, user: int) -> Tensor:
    """Last hidden states of the decoder at the places of ``packed``: (R, S, D).

    ``seen`` (N, 64, D): what the vision tower says; ``user``: the token that opens the user's turn.
    """
    from transformers import DynamicCache

    core = model.model
    decoder = core.language_model
    n = len(seen)
    start = decoder.embed_tokens(torch.full((n, 1), user))
    picture = torch.cat([start, core.multi_modal_projector(seen)], 1)
    ahead = torch.arange(PATCHES + 1).unsqueeze(0)
    cache = DynamicCache(config=decoder.config)
    # Positional: the fourth argument is the cache, whose name changed between releases.
    decoder(None, None, ahead, cache, inputs_embeds=picture, use_cache=True)
    cache.batch_select_indices(packed.owner)
    mask = {"full_attention": packed_mask(packed.segment)}
    inputs = decoder.embed_tokens(packed.ids)
    positions = packed.place + PATCHES + 1
    hidden: Tensor = decoder(
        None, mask, positions, cache, inputs_embeds=inputs, use_cache=True
    ).last_hidden_state
    return hidden
