"""What the placement of a pipeline's parts makes of its weights and activations.

Sums, not runs: offloading needs an accelerator (accelerate's hooks move parts between two devices,
and a CPU alone has one), and so does loading in 4 bits. Quantised in 8 bits is measured on a CPU in
``tests/memory/test_plan.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from t2x.generators.placement import BITS, DENOISER_PARTS, TEXT_PARTS
from t2x.memory.activations import phases_of_part
from t2x.memory.weights import module_bytes

__all__ = ["largest_layer", "peaks_by_placement", "quantised_bytes"]

_SCALES = 1.03  # quantised weights with their scales


def peaks_by_placement(
    parts: Mapping[str, torch.nn.Module], acts: Mapping[str, int | None], *, beside: int = 0
) -> dict[str, int | None]:
    """Give the most bytes of a pipeline's call by placement (``t2x.memory.plan.PLACEMENTS``), from
    its networks by name and what each phase of the call holds beside them; None is unknown.
    ``beside``: bytes of what is added to the networks."""
    acts = {k: None if size is None else size + beside for k, size in acts.items()}
    whole = {name: module_bytes(part) for name, part in parts.items()}
    leaves = {name: _largest_leaf(part) for name, part in parts.items()}
    small: dict[str, dict[str, int]] = {"": whole}
    for bits, width in BITS.items():
        small[bits] = {name: quantised_bytes(name, part, width) for name, part in parts.items()}
    found: dict[str, int | None] = {}
    most = None if None in acts.values() else max((a or 0 for a in acts.values()), default=0)
    for bits, sizes in small.items():
        extra = largest_layer(parts) if bits else 0
        name = bits or "resident"
        found[name] = None if most is None else sum(sizes.values()) + most + extra
        offloaded = "model offload" + (f", {bits}" if bits else "")
        found[offloaded] = _by_step(sizes, acts, extra)
    found["sequential offload"] = _by_step(leaves, acts, 0)
    return found


def _by_step(sizes: Mapping[str, int], acts: Mapping[str, int | None], extra: int) -> int | None:
    """The fullest step with only the largest of its parts there."""
    totals = []
    for step, act in acts.items():
        if act is None:
            return None
        there = "decode" if step == "guide" else step
        own = [size for name, size in sizes.items() if there in phases_of_part(name).values()]
        totals.append(act + max(own, default=0) + extra)
    return max(totals, default=None)


def _largest_leaf(module: torch.nn.Module) -> int:
    own = (
        sum(t.numel() * t.element_size() for t in (*part._parameters.values(),) if t is not None)
        for part in module.modules()
    )
    return max(own, default=0)


def _linear(module: torch.nn.Module) -> list[torch.Tensor]:
    """Weights that quantising shortens: of linear layers, but not the one that gives the logits,
    which transformers keeps whole (``get_keys_to_not_convert``) and often ties to the embedding."""
    find = getattr(module, "get_output_embeddings", None)
    head = find() if find is not None else None
    return [m.weight for m in module.modules() if isinstance(m, torch.nn.Linear) and m is not head]


def quantised_bytes(name: str, module: torch.nn.Module, bits: float) -> int:
    """Give the bytes of the part ``name`` in ``bits`` bits; those that are not quantised stay."""
    whole = module_bytes(module)
    if name not in (*DENOISER_PARTS, *TEXT_PARTS):
        return whole
    dense = sum(w.numel() * w.element_size() for w in _linear(module))
    numbers = sum(w.numel() for w in _linear(module))
    return min(whole, whole - dense + int(numbers * bits / 8 * _SCALES))


def largest_layer(parts: Mapping[str, torch.nn.Module]) -> int:
    """Give the bytes of the largest layer in full, which is there while it acts."""
    sizes = (w.numel() * w.element_size() for part in parts.values() for w in _linear(part))
    return max(sizes, default=0)
