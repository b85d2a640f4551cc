"""Score scales and preference losses of the reward models, per sample."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = [
    "aesthetic_score",
    "affine_chain",
    "bradley_terry_loss",
    "clip_s",
    "cosine",
    "goal_baseline_score",
    "hps_preference_loss",
    "match_probability",
    "scaled_cosine",
    "sigmoid_pair_loss",
]


def cosine(image: Tensor, text: Tensor) -> Tensor:
    """Cosine of matching rows: image (N, D), text (N, D) -> (N,) in [-1, 1]. Reduced in float32 or
    wider.
    """
    wide = torch.promote_types(image.dtype, torch.float32)
    a, b = F.normalize(image.to(wide), dim=-1), F.normalize(text.to(wide), dim=-1)
    return (a * b).sum(-1)


def clip_s(cos: Tensor, *, weight: float = 2.5) -> Tensor:
    """CLIPScore, w * max(cos, 0), per item (Hessel et al. 2021, arXiv 2104.08718, section 3): (N,)
    -> (N,) in [0, w].
    """
    return weight * cos.clamp(min=0)


def scaled_cosine(cos: Tensor, logit_scale: Tensor | float) -> Tensor:
    """PickScore, exp(logit_scale) * cos, and with log(100) the x100 scale (Kirstain et al. 2023,
    arXiv 2305.01569, eq. 1).

    cos (N,), logit_scale: scalar, the *logarithm* of the temperature as CLIP stores it.
    """
    return torch.as_tensor(logit_scale, dtype=cos.dtype, device=cos.device).exp() * cos


def match_probability(
    cos: Tensor, logit_scale: Tensor | float, logit_bias: Tensor | float
) -> Tensor:
    """SigLIP, sigmoid(exp(logit_scale) cos + logit_bias): the probability that picture and text
    belong together (Zhai et al. 2023, arXiv 2303.15343, algorithm 1): (N,) in [0, 1].

    cos (N,), logit_scale and logit_bias: scalars or (N,), as the model stores them. The bias,
    -10 before training, makes the values of unrelated pairs tiny; they compare with no cosine.
    """
    bias = torch.as_tensor(logit_bias, dtype=cos.dtype, device=cos.device)
    return torch.sigmoid(scaled_cosine(cos, logit_scale) + bias)


def goal_baseline_score(image: Tensor, goal: Tensor, baseline: Tensor, *, alpha: float) -> Tensor:
    """VLM-RM, 1 - ||alpha proj_L s + (1 - alpha) s - g||^2 / 2, where L is the line through the
    baseline b and the goal g (Rocamonde et al. 2023, arXiv 2310.12921, definition 1): (N,), at
    most 1.

    s: image (N, D), normalised here; g: goal (N, D) or (D,), b: baseline, the same; both are unit
    vectors, or means of unit vectors, as they are given. alpha in [0, 1]: 0 is the cosine if g is a
    unit vector, 1 keeps of the picture only where it lies between baseline and goal. NaN where
    b = g, which is no line, unless alpha is 0.
    """
    wide = torch.promote_types(image.dtype, torch.float32)
    s, g, b = F.normalize(image.to(wide), dim=-1), goal.to(wide), baseline.to(wide)
    off = s - g
    if alpha:
        d = g - b
        along = (off * d).sum(-1, keepdim=True) / (d * d).sum(-1, keepdim=True) * d
        off = alpha * along + (1 - alpha) * off
    return 1 - (off * off).sum(-1) / 2


def bradley_terry_loss(chosen: Tensor, rejected: Tensor) -> Tensor:
    """-log sigmoid(chosen - rejected), per pair (ImageReward, Xu et al. 2023, arXiv 2304.05977, eq.
    1): (N,), (N,) -> (N,).
    """
    return -F.logsigmoid(chosen - rejected)


def hps_preference_loss(scores: Tensor, preference: Tensor) -> Tensor:
    """Cross-entropy of softmax(scores) over two pictures with the preference (HPSv2, Wu et al.
    2023, arXiv 2306.09341, eq. 2).

    scores (N, 2) are logits of one prompt's pictures, preference (N, 2) sums to 1 per row: (N,).
    With a certain preference it equals :func:`bradley_terry_loss`.
    """
    return -(preference * F.log_softmax(scores, dim=-1)).sum(-1)


def sigmoid_pair_loss(logits: Tensor, match: Tensor) -> Tensor:
    """-log sigmoid(z * logits), z = 1 for a match and -1 else, per pair (SigLIP, Zhai et al. 2023,
    arXiv 2303.15343, section 3.2).

    logits of any shape, match: bool of the same shape. Differs from the paper: not summed over the
    batch.
    """
    sign = match.to(logits.dtype) * 2 - 1
    return -F.logsigmoid(sign * logits)


def aesthetic_score(
    embedding: Tensor, layers: Sequence[tuple[Tensor, Tensor]], *, relu: bool = False
) -> Tensor:
    """LAION aesthetic predictors: affine layers (weight, bias) on the L2-normalised CLIP embedding;
    about 1 to 10.

    embedding (N, D) -> (N,). The published predictors v1 (one layer) and v2 (five) have no
    activation between layers, so they are affine; ``relu`` puts ReLU there, as the published relu
    variant does. Dropout is left out: scoring is deterministic. Computed in the wider precision of
    embedding and layers.
    """
    wide = torch.promote_types(embedding.dtype, layers[0][0].dtype)
    wide_layers = [(weight.to(wide), bias.to(wide)) for weight, bias in layers]
    return affine_chain(F.normalize(embedding.to(wide), dim=-1), wide_layers, relu=relu)


def affine_chain(
    x: Tensor, layers: Sequence[tuple[Tensor, Tensor]], *, relu: bool = False
) -> Tensor:
    """Layers (weight, bias) one after the other, the last of width 1: (N, D) -> (N,).

    Without ``relu`` (ReLU between layers, not behind the last) the whole is affine.
    """
    for index, (weight, bias) in enumerate(layers):
        x = F.linear(x, weight, bias)
        if relu and index < len(layers) - 1:
            x = F.relu(x)
    return x.squeeze(-1)
