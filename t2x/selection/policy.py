"""What the methods read off the policy: prompt features, prompt entropies, and a temperature for
each row. Plain transformers; no trainer is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.selection import prompt_entropy

__all__ = ["prompt_entropies", "prompt_features", "row_temperatures"]


def prompt_features(
    model: Any, rows: Sequence[Sequence[int]], *, size: int = 64, batch: int = 16
) -> Tensor:
    """What a language model makes of prompts: its last hidden states, averaged over the tokens and
    projected to ``size`` numbers at random, always the same way: N lists of token ids -> (N, D),
    D at most ``size``, on the CPU.
    """
    found = []
    for ids, mask in _batches(rows, batch, model):
        hidden = _forward(model, ids, mask, output_hidden_states=True).hidden_states[-1].float()
        kept = mask[..., None].to(hidden.dtype)
        found.append(((hidden * kept).sum(1) / kept.sum(1)).cpu())
    features = torch.cat(found)
    width = features.shape[1]
    if width <= size:
        return features
    generator = torch.Generator().manual_seed(0)
    projected: Tensor = features @ torch.randn(width, size, generator=generator) / width**0.5
    return projected


def prompt_entropies(model: Any, rows: Sequence[Sequence[int]], *, batch: int = 16) -> list[float]:
    """Mean next-token entropy along each prompt under the model, in nats: N lists of ids -> N."""
    found: list[float] = []
    for ids, mask in _batches(rows, batch, model):
        found += prompt_entropy(_forward(model, ids, mask).logits, mask).tolist()
    return found


@contextmanager
def row_temperatures(model: Any, temperatures: Sequence[float], base: float) -> Iterator[None]:
    """While this is open, ``model.generate`` at temperature ``base`` samples each row at its own:
    a hook multiplies the row's logits by base / temperature.

    ``model`` is the causal language model itself, without adapters around it. Rows whose
    temperature is ``base`` are not changed in any bit.
    """
    scale = torch.tensor([base / temperature for temperature in temperatures])

    def lift(module: Any, args: Any, output: Any) -> Any:
        logits = output.logits
        if len(logits) != len(scale):
            raise T2XError(
                f"{len(scale)} temperatures for {len(logits)} rows; one per row is needed, and "
                "beams have none"
            )
        output.logits = logits * scale.to(logits)[:, None, None]
        return output

    handle = model.register_forward_hook(lift)
    try:
        yield
    finally:
        handle.remove()


def _batches(
    rows: Sequence[Sequence[int]], batch: int, model: Any
) -> Iterator[tuple[Tensor, Tensor]]:
    """Token ids and masks, padded on the right: causal models need no positions for that."""
    device = next(model.parameters()).device
    for start in range(0, len(rows), batch):
        part = [torch.tensor(row) for row in rows[start : start + batch]]
        ids = torch.nn.utils.rnn.pad_sequence(part, batch_first=True)
        lengths = torch.tensor([len(row) for row in part])
        mask = torch.arange(ids.shape[1]) < lengths[:, None]
        yield ids.to(device), mask.long().to(device)


def _forward(model: Any, ids: Tensor, mask: Tensor, **options: Any) -> Any:
    """One pass without dropout and gradient; the model is left in the mode that it was in."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return model(input_ids=ids, attention_mask=mask, use_cache=False, **options)
    finally:
        model.train(training)
