"""Between what a diffusion network puts out, the clean sample and the noise.

A sample is x = alpha * x0 + sigma * eps. Rectified flow has alpha = 1 - sigma and the network's
output v = eps - x0; variance preserving ("VP") samples have alpha^2 + sigma^2 = 1 and
v = alpha * eps - sigma * x0 (Salimans and Ho 2022, arXiv 2202.00512, appendix D). TrigFlow has
alpha = cos t and sigma = sin t s for data and noise of deviation s, and the network's output
cos t s eps - sin t x0 (Lu and Song 2024, arXiv 2410.11081).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from torch import Tensor

__all__ = [
    "PREDICTIONS",
    "Prediction",
    "clean_from_output",
    "output_from_clean",
    "score_from_clean",
]

Prediction: TypeAlias = Literal["epsilon", "sample", "v_prediction", "flow", "trigflow"]
PREDICTIONS: tuple[Prediction, ...] = ("epsilon", "sample", "v_prediction", "flow", "trigflow")


def clean_from_output(
    sample: Tensor, output: Tensor, alpha: float, sigma: float, prediction: Prediction
) -> Tensor:
    """x0_hat = E[x0 | x] of a network's output, any shape.

    epsilon: (x - sigma eps) / alpha. v: with x and v of a VP process, alpha x - sigma v; a process
    of another scale is brought there first, r = sqrt(alpha^2 + sigma^2):
    x0 = (alpha x / r - sigma v) / r. flow: x - sigma v, for alpha = 1 - sigma. trigflow:
    cos t x - sin t F, for alpha = cos t, whatever the deviation of the data.
    """
    if prediction == "sample":
        return output
    if prediction == "epsilon":
        return (sample - sigma * output) / alpha
    if prediction == "v_prediction":
        size = float((alpha**2 + sigma**2) ** 0.5)
        return (alpha / size**2) * sample - (sigma / size) * output
    if prediction == "trigflow":
        return alpha * sample - _sine(alpha) * output
    return sample - sigma * output


def output_from_clean(
    sample: Tensor, clean: Tensor, alpha: float, sigma: float, prediction: Prediction
) -> Tensor:
    """The inverse of ``clean_from_output`` for sigma > 0: the output that says ``clean``.

    Raises ZeroDivisionError at sigma = 0, where every output but *sample* says the same.
    """
    if prediction == "sample":
        return clean
    if prediction == "epsilon":
        return (sample - alpha * clean) / sigma
    if prediction == "v_prediction":
        size = float((alpha**2 + sigma**2) ** 0.5)
        return ((alpha / size**2) * sample - clean) * (size / sigma)
    if prediction == "trigflow":
        return (alpha * sample - clean) / _sine(alpha)
    return (sample - clean) / sigma


def score_from_clean(sample: Tensor, clean: Tensor, alpha: float, sigma: float) -> Tensor:
    """Score of the noisy marginal, grad log p_t(x) = (alpha x0_hat - x) / sigma^2 (Tweedie)."""
    return (alpha * clean - sample) / sigma**2


def _sine(cosine: float) -> float:
    """Of an angle in [0, pi]."""
    return float(max(0.0, 1.0 - cosine**2) ** 0.5)
