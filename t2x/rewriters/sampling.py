"""Sampling that belongs to the row, not to the batch.

``generate`` draws every row of a batch from one random stream, so that a prompt's text depends on
its neighbours. Here each row brings its own generator, and sampling is argmax of logits plus Gumbel
noise: the same row gives the same text anywhere. Rounding differs a little between batch shapes;
``margins`` records how close each decision was, so that a caller can do the close ones again
alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Generator, Tensor

_DOUBT = 1e-4  # of probability, and
_NEAR = 1e-3  # of logits: nearer to an edge, rounding may decide whether a token is sampled

__all__ = ["GumbelRows", "RowSampler", "row_generator", "row_seed"]


def row_seed(seed: int, prompt: str, *, generation: int) -> int:
    """Seed of one row from run seed, prompt and generation index; its place in the batch plays no
    part.
    """
    key = f"{seed}\0{generation}\0{prompt}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest()) >> 1


def row_generator(seed: int | None) -> Generator | None:
    """Random stream of one row; None for a greedy one."""
    import torch

    return None if seed is None else torch.Generator().manual_seed(seed)


class RowSampler:
    """Turns logits into scores whose argmax is each row's draw.

    Args:
        temperature: positive; what logits are divided by in sampled rows.
        top_p: only the likeliest tokens that together reach this probability are sampled; 1 keeps
            all.
        top_k: so many likeliest tokens are sampled; 0 keeps all.
        min_p: tokens with at least this share of the likeliest one's probability are sampled; 0
            keeps all. The three are looked at together, on the whole distribution.
        repetition_penalty: above 1, tokens that the row wrote before become less likely.
    """

    def __init__(
        self,
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
    ) -> None:
        self._temperature = temperature
        self._top_p = top_p
        self._top_k = top_k
        self._min_p = min_p
        self._penalty = repetition_penalty

    def __call__(
        self,
        logits: Tensor,
        written: Tensor,
        generators: Sequence[Generator | None],
        *,
        counts: Sequence[int] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Give scores (N, V) and how close each row's choice was (N,), in logits.

        logits: (N, V). written: (N, W) tokens that each row wrote, of which the first ``counts``
        are its own (None: all) and the rest repeat one of them. generators: one per row, None for
        greedy.
        """
        import torch

        scores = self.penalised(logits.float(), written, counts)
        doubt = torch.full((len(scores),), float("-inf"))
        sampled = [i for i, generator in enumerate(generators) if generator is not None]
        if sampled:
            noise = torch.stack([_gumbel(generators[i], scores.shape[1]) for i in sampled])
            noisy = scores[sampled] / self._temperature
            beyond, doubtful = self._left_out(noisy)
            noisy += noise.to(scores.device)
            doubt[sampled] = noisy.masked_fill(~doubtful, float("-inf")).amax(-1).cpu()
            noisy = noisy.masked_fill(beyond, float("-inf"))
            scores = scores.index_copy(0, torch.tensor(sampled, device=scores.device), noisy)
        best = scores.topk(2, dim=-1).values.cpu()
        # A token that rounding may let in or out matters if it would win, or has won.
        return scores, torch.minimum(best[:, 0] - best[:, 1], best[:, 0] - doubt)

    def penalised(
        self, scores: Tensor, written: Tensor, counts: Sequence[int] | None = None
    ) -> Tensor:
        """Weaken what the row has written itself; words of the prompt and padding keep theirs.

        scores (N, V); the rest is as in a call.
        """
        import torch

        if self._penalty == 1 or written.shape[1] == 0:
            return scores
        had = scores.gather(1, written)
        weaker = torch.where(had < 0, had * self._penalty, had / self._penalty)
        if counts is not None:
            some = torch.tensor([[count > 0] for count in counts], device=had.device)
            weaker = torch.where(some, weaker, had)
        return scores.scatter(1, written, weaker)

    def _left_out(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Tell which tokens are not sampled, and for which rounding decides that; both (N, V)."""
        import torch

        beyond = torch.zeros_like(logits, dtype=torch.bool)
        if self._top_p >= 1 and self._top_k <= 0 and self._min_p <= 0:
            return beyond, beyond
        ordered, index = logits.sort(dim=-1, descending=True, stable=True)
        chances = ordered.softmax(-1)
        doubtful = beyond.clone()
        if self._top_p < 1:
            before = chances.cumsum(-1) - chances  # what likelier tokens have together
            beyond |= before >= self._top_p
            doubtful |= (before - self._top_p).abs() < _DOUBT
        if 0 < self._top_k < logits.shape[-1]:
            beyond[:, self._top_k :] = True
            last = ordered[:, self._top_k - 1 : self._top_k]
            out = ordered[:, self._top_k : self._top_k + 1]
            doubtful |= ((ordered >= out) & (ordered <= last)) & (last - out < _NEAR)
        if self._min_p > 0:
            floor = self._min_p * chances[:, :1]
            beyond |= chances < floor
            doubtful |= (chances - floor).abs() < _NEAR * floor
        return beyond.scatter(-1, index, beyond), doubtful.scatter(-1, index, doubtful)


class GumbelRows:
    """Logits processor of ``generate`` that turns greedy search into per-row sampling.

    Args:
        seeds: one per row; None makes the row greedy.
        eos_ids: ends of a text; rows behind their end are ignored.
        settings: what ``RowSampler`` takes.

    After generation, ``margins`` (N,) holds each row's smallest gap between the best and the
    second-best score.
    """

    def __init__(
        self, seeds: Sequence[int | None], *, eos_ids: Sequence[int] = (), **settings: Any
    ) -> None:
        import torch

        self._generators = [row_generator(seed) for seed in seeds]
        self._sampler = RowSampler(**settings)
        self._start = 0
        self._eos = torch.tensor(list(eos_ids), dtype=torch.long)
        self._ended = torch.zeros(len(seeds), dtype=torch.bool)
        self._first = True
        self.margins = torch.full((len(seeds),), float("inf"))

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Give scores whose argmax is the draw; input_ids (N, T), scores (N, V) logits."""
        import torch

        if not self._first:
            self._ended |= torch.isin(input_ids[:, -1].cpu(), self._eos)
        else:
            self._start = input_ids.shape[1]
        self._first = False
        ended = self._ended.tolist()
        running = [None if e else g for e, g in zip(ended, self._generators, strict=True)]
        scores, margins = self._sampler(scores, input_ids[:, self._start :], running)
        self.margins = torch.where(self._ended, self.margins, torch.minimum(self.margins, margins))
        return scores


def _gumbel(generator: Generator | None, size: int) -> Tensor:
    import torch

    uniform = torch.rand(size, generator=generator).clamp_(1e-20, 1 - 1e-7)
    return -torch.log(-torch.log(uniform))
