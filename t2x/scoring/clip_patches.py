"""Patch embeddings of a CLIP that can be compared with texts.

The last attention's values, projected as the class token's are (MaskCLIP, Zhou et al. 2022, arXiv
2112.01071, section 3.2). The patches that the tower gives itself say little: on renders of the
emoji world their best one lies in the right object in 31 % of pictures, that of the values in 85 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from t2x.errors import T2XError
from t2x.scoring.clip_encoder import ClipEncoder, load_clip
from t2x.scoring.frozen import frozen

__all__ = ["ClipPatches"]


class ClipPatches:
    """``source`` as in :func:`t2x.scoring.clip_encoder.load_clip`, or an encoder.

    Raises T2XError for a tower that is no plain vision transformer of open_clip or transformers'
    CLIP.
    """

    def __init__(self, source: Any) -> None:
        self.encoder = source if isinstance(source, ClipEncoder) else load_clip(source)
        # Pictures of any shape are seen whole.
        self._preprocess = replace(self.encoder.preprocess, mode="squash", shorter=None)
        self._block, self._values = _last_block(self.encoder)

    def embed(self, pictures: Sequence[Tensor]) -> tuple[Tensor, tuple[int, int]]:
        """Embeddings (N, h * w, D) of pictures (3, H, W), row by row, and (h, w)."""
        media = [p.reshape(1, *p.shape[-3:]) for p in pictures]
        encoder = self.encoder
        weight = encoder.model.logit_scale
        pixels = self._preprocess(media, dtype=weight.dtype).to(weight.device)
        seen: list[Tensor] = []

        def keep(module: Any, inputs: Any, named: Any) -> None:
            seen.append(inputs[0] if inputs else named["hidden_states"])

        handle = self._block.register_forward_pre_hook(keep, with_kwargs=True)
        try:
            with frozen(encoder.model):
                encoder.model.encode_image(pixels)
                embedded: Tensor = self._values(seen[0])[:, 1:]
        finally:
            handle.remove()
        height, width = self._preprocess.size
        rows = round((embedded.shape[1] * height / width) ** 0.5)
        return embedded, (rows, embedded.shape[1] // rows)


def _last_block(encoder: ClipEncoder) -> tuple[Any, Any]:
    """The last block of the image tower, and the function from its input to embeddings."""
    model = encoder.model
    inner = getattr(model, "clip", None)
    if inner is not None and hasattr(inner, "visual_projection"):
        tower = getattr(inner.vision_model, "vision_model", inner.vision_model)
        block = tower.encoder.layers[-1]

        def values(states: Tensor) -> Tensor:
            attention = block.self_attn
            told = attention.out_proj(attention.v_proj(block.layer_norm1(states)))
            projected: Tensor = inner.visual_projection(tower.post_layernorm(told))
            return projected

        return block, values
    visual = getattr(model, "visual", None)
    blocks = getattr(getattr(visual, "transformer", None), "resblocks", None)
    if visual is None or blocks is None or getattr(visual, "attn_pool", None) is not None:
        raise T2XError(
            f"{encoder.key}: patches are read of plain vision transformers of CLIP only; give one, "
            "or a detector (ZeroShotFinder)"
        )
    block = blocks[-1]

    def open_values(states: Tensor) -> Tensor:
        attention, width = block.attn, states.shape[-1]
        weight, bias = attention.in_proj_weight, attention.in_proj_bias
        told = F.linear(block.ln_1(states), weight[2 * width :], bias[2 * width :])
        told = visual.ln_post(attention.out_proj(told))
        projected: Tensor = told if visual.proj is None else told @ visual.proj
        return projected

    return block, open_values
