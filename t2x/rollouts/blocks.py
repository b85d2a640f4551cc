"""What one process measured in one rollout, and how all processes put theirs together: statistics
and advantages are of the whole batch, so that any number of processes gives the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import Tensor

from t2x.errors import T2XError

if TYPE_CHECKING:
    from t2x.rollouts.records import Kind

__all__ = ["Block", "Exchange", "of_all_processes", "put_together"]


@dataclass(frozen=True)
class Block:
    """N rows: ``scores`` and ``original`` (of the same prompt left as it is) are (N, S, K) float64,
    NaN where nothing was drawn or measured. ``sets`` (N,): see ``t2x.rollouts.sets``, None without.
    ``groups`` (N,) count from 0. ``noise``: products (K, K) and degrees of freedom of
    ``t2x.functional.advantages.seed_noise``. ``used`` and ``drawn`` count pictures, see
    ``t2x.rollouts.measuring.Measurer``.
    """

    scores: Tensor
    original: Tensor
    groups: Tensor
    kinds: tuple[Kind, ...]
    noise: tuple[Tensor, Tensor]
    sets: Tensor | None = None
    used: int = 0
    drawn: int = 0


# Gives the blocks of all processes for that of this one, and the place of this one among them.
Exchange: TypeAlias = "Callable[[Block], tuple[list[Block], int]]"


def of_all_processes(block: Block) -> tuple[list[Block], int]:
    """Exchange through ``torch.distributed`` where it runs, else give the block alone."""
    import torch.distributed as processes

    if not (processes.is_available() and processes.is_initialized()):
        return [block], 0
    blocks: list[Block] = [block] * processes.get_world_size()
    processes.all_gather_object(blocks, block)
    return blocks, processes.get_rank()


def put_together(blocks: Sequence[Block], place: int) -> tuple[Block, slice]:
    """Make one block of all, groups numbered on, and say which rows are those of ``place``."""
    if len({b.scores.shape[1:] for b in blocks}) > 1:
        raise T2XError("processes drew different numbers of pictures; give all one configuration")
    offset, groups = 0, []
    for block in blocks:
        groups.append(block.groups + offset)
        offset += int(block.groups.max()) + 1 if len(block.groups) else 0
    start = sum(len(b.kinds) for b in blocks[:place])
    sets = [b.sets for b in blocks if b.sets is not None]
    whole = Block(
        torch.cat([b.scores for b in blocks]),
        torch.cat([b.original for b in blocks]),
        torch.cat(groups),
        tuple(kind for b in blocks for kind in b.kinds),
        (
            torch.stack([b.noise[0] for b in blocks]).sum(0),
            torch.stack([b.noise[1] for b in blocks]).sum(0),
        ),
        torch.cat(sets) if sets else None,
        sum(b.used for b in blocks),
        sum(b.drawn for b in blocks),
    )
    return whole, slice(start, start + len(blocks[place].kinds))
