"""Layers of a pipeline that hold adapters of peft, whoever loaded them."""

from __future__ import annotations

import hashlib
from typing import Any

__all__ = [
    "adapter_layers",
    "adapter_scales",
    "components_of",
    "held_names",
    "parameter_counts",
    "taken_names",
    "tuned_layers",
]


def adapter_scales(pipeline: Any, *, without: set[str] | None = None) -> list[dict[str, Any]]:
    """Tell the adapters of peft that act in a pipeline, whoever loaded them: name, digest of their
    tensors, and their scale (one number, or a digest where layers differ)."""
    import torch

    digests: dict[str, Any] = {}
    scales: dict[str, list[float]] = {}
    for component, layer in adapter_layers(pipeline):
        for name in () if layer.disable_adapters else layer.active_adapters:
            if name in (without or ()) or name not in held_names(layer):
                continue
            digest = digests.setdefault(name, hashlib.sha256(component.encode()))
            for part in layer.adapter_layer_names:
                held = getattr(layer, part)
                if name in held:
                    value = held[name]
                    tensors = [value] if isinstance(value, torch.Tensor) else value.parameters()
                    for tensor in tensors:
                        flat = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
                        digest.update(flat.numpy())
            scales.setdefault(name, []).append(float(layer.scaling[name]))
    return [
        {
            "name": name,
            "digest": digest.hexdigest()[:16],
            "scale": scales[name][0]
            if len(set(scales[name])) == 1
            else hashlib.sha256(str(scales[name]).encode()).hexdigest()[:16],
        }
        for name, digest in digests.items()
    ]


def components_of(pipeline: Any) -> dict[str, Any]:
    """Components that LoRAs may act on, by name."""
    names = getattr(pipeline, "_lora_loadable_modules", ())
    found = {name: getattr(pipeline, name, None) for name in names}
    return {name: part for name, part in found.items() if part is not None}


def tuned_layers(component: Any) -> list[Any]:
    """Layers of a component that peft has wrapped; none without peft."""
    try:
        from peft.tuners.tuners_utils import BaseTunerLayer
    except ModuleNotFoundError:
        return []
    return [module for module in component.modules() if isinstance(module, BaseTunerLayer)]


def adapter_layers(pipeline: Any) -> list[tuple[str, Any]]:
    """Layers that hold adapters, each with the component's name."""
    parts = components_of(pipeline).items()
    return [(name, layer) for name, component in parts for layer in tuned_layers(component)]


def held_names(layer: Any) -> set[str]:
    """Names of the adapters in a layer, whether they act or not."""
    return {name for part in layer.adapter_layer_names for name in getattr(layer, part)}


def parameter_counts(pipeline: Any, peft_name: str) -> dict[str, int]:
    """How many parameters the adapter layers of each component hold under a name."""
    found: dict[str, int] = {}
    for component, layer in adapter_layers(pipeline):
        for part in layer.adapter_layer_names:
            held = getattr(layer, part)
            if peft_name in held:
                value = held[peft_name]
                count = len(list(value.parameters())) if hasattr(value, "parameters") else 1
                found[component] = found.get(component, 0) + count
    return found


def taken_names(pipeline: Any) -> set[str]:
    """Names under which adapters are held already, whether they act or not."""
    components = components_of(pipeline).values()
    configured = {name for part in components for name in getattr(part, "peft_config", {})}
    return configured.union(*(held_names(layer) for _, layer in adapter_layers(pipeline)))
