"""x = alpha x0 + sigma eps: what a network's output says of x0, and back."""

from __future__ import annotations

import math

import pytest
import torch

from t2x.functional.parameterisation import (
    PREDICTIONS,
    clean_from_output,
    output_from_clean,
    score_from_clean,
)

X0 = torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64)
EPS = torch.tensor([[0.3, 0.7, -1.1]], dtype=torch.float64)


def level(prediction: str, sigma: float = 0.6) -> tuple[float, float]:
    """Flow has alpha = 1 - sigma, all others alpha^2 = 1 - sigma^2: at 0.6 that is 0.4 and 0.8."""
    return (1 - sigma if prediction == "flow" else math.sqrt(1 - sigma**2)), sigma


def true_output(prediction: str, alpha: float, sigma: float) -> torch.Tensor:
    """What a network that knows both parts puts out."""
    return {
        "epsilon": EPS,
        "sample": X0,
        "v_prediction": alpha * EPS - sigma * X0,
        "flow": EPS - X0,
        "trigflow": alpha * EPS - sigma * X0,  # of data with deviation 1, sigma is sin t
    }[prediction]


@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_a_perfect_network_gives_the_clean_sample(prediction):
    alpha, sigma = level(prediction)
    x = alpha * X0 + sigma * EPS
    output = true_output(prediction, alpha, sigma)
    found = clean_from_output(x, output, alpha, sigma, prediction)
    torch.testing.assert_close(found, X0)
    torch.testing.assert_close(output_from_clean(x, X0, alpha, sigma, prediction), output)


@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_both_ways_are_inverse_for_any_estimate(prediction):
    alpha, sigma = level(prediction, 0.28)
    x = alpha * X0 + sigma * EPS
    guess = torch.tensor([[0.1, 5.0, -3.0]], dtype=torch.float64)
    output = output_from_clean(x, guess, alpha, sigma, prediction)
    torch.testing.assert_close(clean_from_output(x, output, alpha, sigma, prediction), guess)


def test_score_of_a_gaussian_in_closed_form():
    """Data N(0, 1): x ~ N(0, alpha^2 + sigma^2), so the score is -x / (alpha^2 + sigma^2), and
    E[x0 | x] = alpha x / (alpha^2 + sigma^2)."""
    alpha, sigma = 0.4, 0.6
    total = alpha**2 + sigma**2
    clean = alpha * X0 / total
    torch.testing.assert_close(score_from_clean(X0, clean, alpha, sigma), -X0 / total)
