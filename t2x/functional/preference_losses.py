"""Losses that move a policy by pairs of its completions: DPO, Sem-DPO and REBEL, per pair.

Log ratios are sums over the tokens of a completion, log pi(y|x) - log pi_ref(y|x). Training with
DPO is TRL's; ``dpo_loss`` is what the tests compare TRL with.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from t2x.functional.scores import cosine

__all__ = ["dpo_loss", "rebel_loss", "sem_dpo_loss", "sem_dpo_weight"]


def dpo_loss(chosen_logratios: Tensor, rejected_logratios: Tensor, *, beta: float) -> Tensor:
    """-log sigmoid(beta (chosen - rejected)) of log ratios (DPO, Rafailov et al. 2023, arXiv
    2305.18290, eq. 7): (N,), (N,) -> (N,), positive; log 2 at equal ratios.
    """
    return -F.logsigmoid(beta * (chosen_logratios - rejected_logratios))


def sem_dpo_weight(prompt: Tensor, chosen: Tensor, *, alpha: float) -> Tensor:
    """exp(-alpha (1 - cos(e(x), e(y_w)))), how near the winner is to the user's own prompt in
    meaning (Sem-DPO, arXiv 2507.20133): embeddings (N, D), (N, D) -> (N,) in [exp(-2 alpha), 1].

    1 for the same direction, exp(-alpha) for an orthogonal one, 1 everywhere at alpha = 0. The
    loser's text has no part in it. The first version of the paper's abstract calls the weight
    proportional to the distance; down-weighting what drifted needs the minus.
    """
    return (-alpha * (1 - cosine(prompt, chosen).clamp(-1, 1))).exp()


def sem_dpo_loss(
    chosen_logratios: Tensor, rejected_logratios: Tensor, weight: Tensor, *, beta: float
) -> Tensor:
    """The DPO loss of each pair times its weight (Sem-DPO, arXiv 2507.20133): (N,), (N,), (N,) ->
    (N,). The paper's objective is the mean of this, not divided by the mean weight.
    """
    return weight * dpo_loss(chosen_logratios, rejected_logratios, beta=beta)


def rebel_loss(
    first_logratios: Tensor,
    second_logratios: Tensor,
    first_rewards: Tensor,
    second_rewards: Tensor,
    *,
    eta: float,
) -> Tensor:
    """((l_1 - l_2) / eta - (r_1 - r_2))^2, the difference of two rewards regressed on that of the
    log ratios to the policy that wrote both (REBEL, Gao et al. 2024, arXiv 2404.16767, algorithm
    1): four of (N,) -> (N,), 0 where l = eta r + a constant of the prompt.

    Which completion is the first doesn't matter. A reward that is NaN makes the pair's loss NaN:
    leave such pairs out. Differs from the released code, which multiplies the rewards by eta in
    place of dividing the ratios: the same up to the factor eta^2, and at its default eta = 1.
    """
    return ((first_logratios - second_logratios) / eta - (first_rewards - second_rewards)).square()
