"""LoRAs and textual inversions for pipelines of any size, with random weights from a fixed seed, in
the formats that people pass on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from t2x.testing.models import fixed_weights

__all__ = ["write_embedding", "write_lora"]


def write_lora(
    pipeline: Any,
    path: str | Path,
    *,
    seed: int = 0,
    rank: int = 2,
    alpha: float | None = None,
    layers: Sequence[str] = ("to_q", "to_v"),
    components: Sequence[str] | None = None,
    form: Literal["diffusers", "kohya"] = "diffusers",
) -> Path:
    """Write a LoRA for linear layers of ``pipeline`` whose name ends in one of ``layers``; the
    pipeline stays as it is.

    ``components``: of which parts, its denoiser without. ``alpha``: strength alpha / rank, 1
    without; diffusers' own format holds none, so there it is multiplied in. "kohya" is the format
    of kohya-ss/sd-scripts, which most shared files have.
    """
    import torch
    from safetensors.torch import save_file

    denoiser = "unet" if hasattr(pipeline, "unet") else "transformer"
    scale = 1.0 if alpha is None else alpha / rank
    state: dict[str, Any] = {}
    with fixed_weights(seed):
        for component in components or (denoiser,):
            for name, layer in getattr(pipeline, component).named_modules():
                if not isinstance(layer, torch.nn.Linear) or not name.endswith(tuple(layers)):
                    continue
                down = torch.randn(rank, layer.in_features) / layer.in_features**0.5
                up = torch.randn(layer.out_features, rank)
                if form == "kohya":
                    stem = f"{_KOHYA.get(component, component)}_{name.replace('.', '_')}"
                    state[f"{stem}.lora_down.weight"], state[f"{stem}.lora_up.weight"] = down, up
                    state[f"{stem}.alpha"] = torch.tensor(rank * scale)
                else:
                    state[f"{component}.{name}.lora_A.weight"] = down
                    state[f"{component}.{name}.lora_B.weight"] = up * scale
    save_file(state, path, metadata={"format": "pt"})
    return Path(path)


_KOHYA = {"unet": "lora_unet", "transformer": "lora_unet", "text_encoder": "lora_te"}


def write_embedding(
    pipeline: Any,
    path: str | Path,
    *,
    token: str = "<thing>",
    vectors: int = 1,
    seed: int = 0,
    form: Literal["diffusers", "webui", "sdxl"] = "diffusers",
) -> Path:
    """Write a textual inversion of ``vectors`` tokens for the text encoders of ``pipeline``.

    "diffusers" holds one tensor under the token, "webui" a pickle of its tensors and name as
    Stable Diffusion web UIs write, "sdxl" one tensor for each of two encoders ("clip_l", "clip_g").
    """
    import torch
    from safetensors.torch import save_file

    def drawn(encoder: Any) -> Any:
        width = encoder.get_input_embeddings().weight.shape[1]
        return torch.randn(vectors, width)

    with fixed_weights(seed):
        first = drawn(pipeline.text_encoder)
        if form == "sdxl":
            save_file({"clip_l": first, "clip_g": drawn(pipeline.text_encoder_2)}, path)
        elif form == "webui":
            torch.save({"string_to_param": {"*": first}, "name": token, "step": 1}, path)
        else:
            save_file({token: first[0] if vectors == 1 else first}, path)
    return Path(path)
