"""Answer probabilities in closed form."""

from __future__ import annotations

import math

import torch

from t2x.functional.answers import (
    answer_likelihood,
    answer_log_odds,
    answer_probability,
    answer_terms,
    grouped_mean,
    margin_reward,
    prompt_echo,
    token_log_probabilities,
)


def test_share_of_the_vocabulary() -> None:
    """Logits log(1), log(2), log(5): probabilities 1/8, 2/8, 5/8."""
    logits = torch.tensor([[0.0, math.log(2), math.log(5)], [0.0, 0.0, 0.0]], dtype=torch.float64)
    got = answer_probability(logits, [1])
    assert torch.allclose(got, torch.tensor([2 / 8, 1 / 3], dtype=torch.float64), atol=1e-12)


def test_spellings_are_added() -> None:
    logits = torch.tensor([[0.0, math.log(2), math.log(5)]], dtype=torch.float64)
    assert abs(float(answer_probability(logits, [0, 1])) - 3 / 8) < 1e-12
    assert abs(float(answer_probability(logits, [0, 1, 2])) - 1) < 1e-12


def test_against_leaves_the_rest_out() -> None:
    """P(1) / (P(1) + P(2)) = 2 / 7; the third logit has no say."""
    logits = torch.tensor([[9.0, math.log(2), math.log(5)]], dtype=torch.float64)
    assert abs(float(answer_probability(logits, [1], [2])) - 2 / 7) < 1e-12
    assert answer_probability(torch.tensor([[0.0, 900.0, -900.0]]), [1], [2]) == 1  # no overflow


def test_half_precision_is_reduced_in_single() -> None:
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(0)).half()
    got = answer_probability(logits, [3])
    assert got.dtype == torch.float32
    assert torch.allclose(got, logits.float().softmax(-1)[:, 3], atol=1e-7)


def test_gradient() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(2, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: answer_probability(x, [1, 2]), (logits,))
    assert torch.autograd.gradcheck(lambda x: answer_probability(x, [1], [0, 4]), (logits,))


def test_log_odds_are_the_logit_of_the_share_and_do_not_overflow() -> None:
    """Spellings 1 and 2 have odds 1 + 3 against 2 of spelling 0: log 2. Far apart: 1800."""
    logits = torch.tensor([[math.log(2), 0.0, math.log(3)]], dtype=torch.float64)
    assert abs(float(answer_log_odds(logits, [1, 2], [0])) - math.log(2)) < 1e-12
    assert answer_log_odds(torch.tensor([[900.0, -900.0]]), [0], [1]) == 1800


def test_token_log_probabilities_leave_padding_at_0() -> None:
    """Places with probabilities (1/4, 3/4) and (1/2, 1/2)."""
    logits = torch.tensor([[[0.0, math.log(3)], [1.0, 1.0], [5.0, 6.0]]], dtype=torch.float64)
    got = token_log_probabilities(logits, torch.tensor([[0, 1, -100]]))
    expected = torch.tensor([[math.log(1 / 4), math.log(1 / 2), 0.0]], dtype=torch.float64)
    assert torch.allclose(got, expected, atol=1e-12)


def test_clip_flant5_is_the_geometric_mean_of_yes_and_the_end() -> None:
    """P(Yes) = 1/4, P(end) = 1/9: exp(-(log 4 + log 9) / 2) = 1/6; the end alone left out, 1/4."""
    values = torch.tensor([[1 / 4, 1 / 9], [1 / 4, 1 / 9]], dtype=torch.float64).log()
    counted = torch.tensor([[True, True], [True, False]])
    got = answer_likelihood(values, counted)
    assert torch.allclose(got, torch.tensor([1 / 6, 1 / 4], dtype=torch.float64), atol=1e-12)


def test_clip_flant5_is_exp_of_minus_the_stock_cross_entropy() -> None:
    logits = torch.randn(3, 2, 11, generator=torch.Generator().manual_seed(2))
    labels = torch.tensor([[4, 1], [4, 1], [7, 1]])
    got = answer_likelihood(token_log_probabilities(logits, labels), labels >= 0)
    expected = [
        (-torch.nn.functional.cross_entropy(x, y)).exp()
        for x, y in zip(logits, labels, strict=True)
    ]
    assert torch.allclose(got, torch.stack(expected), atol=1e-6)


def test_prompt_echo_mean_sum_and_prior() -> None:
    """Tokens -1, -3 (a third is padding) have mean -2 and sum -4; less a prior of -2, -5: 1.5."""
    values = torch.tensor([[-1.0, -3.0, -9.0]], dtype=torch.float64)
    prior = torch.tensor([[-2.0, -5.0, -1.0]], dtype=torch.float64)
    counted = torch.tensor([[True, True, False]])
    assert prompt_echo(values, counted) == -2
    assert prompt_echo(values, counted, reduction="sum") == -4
    assert prompt_echo(values, counted, prior) == 1.5
    assert prompt_echo(values, counted, prior, reduction="sum") == 3
    assert prompt_echo(values, torch.zeros(1, 3, dtype=torch.bool)).isnan().all()


def test_grouped_mean_is_not_the_mean_of_all() -> None:
    """Groups (0.2, 0.4) and (1.0): (0.3 + 1.0) / 2; all alike would give 0.533. What is NaN is left
    out, a group without any other too.
    """
    values = torch.tensor([[0.2, 0.4, 1.0], [0.2, math.nan, math.nan], [math.nan] * 3])
    got = grouped_mean(values, torch.tensor([0, 0, 1]))
    assert torch.allclose(got, torch.tensor([0.65, 0.2, math.nan]), equal_nan=True)


def test_gradients_of_answers() -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[1, 2, -100], [0, 4, 3]])

    def echo(x: torch.Tensor) -> torch.Tensor:
        return prompt_echo(token_log_probabilities(x, labels), labels >= 0)

    assert torch.autograd.gradcheck(echo, (logits,))
    assert torch.autograd.gradcheck(lambda x: answer_log_odds(x[:, 0], [1, 2], [0]), (logits,))
    values = torch.tensor([[0.2, 0.4, math.nan]], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(grouped_mean(values, torch.tensor([0, 0, 1])).sum(), values)
    assert slope[0, :2].tolist() == [0.5, 0.5]


def test_terms_of_an_answer() -> None:
    """Logits log(1), log(2), log(5): with the right answer 1, p = 1/4 and it lags log(5) by
    log(5/2); with both spellings 1 and 2, p = 7/8, and the best leads log(1) by log(5).
    """
    row = torch.tensor([0.0, math.log(2), math.log(5)], dtype=torch.float64)
    logits = row.expand(1, 3, 3)
    log_probs, leads = answer_terms(logits, torch.tensor([[[1, -1], [1, 2], [-1, -1]]]))
    expected = torch.tensor([[math.log(2 / 8), math.log(7 / 8), 0.0]], dtype=torch.float64)
    assert torch.allclose(log_probs, expected, atol=1e-12)
    expected = torch.tensor([[-math.log(5 / 2), math.log(5), math.inf]], dtype=torch.float64)
    assert torch.allclose(leads, expected, atol=1e-12)


def test_a_sure_answer_keeps_its_digits() -> None:
    """Odds of e^15: log p = -log(1 + e^-15), which is no difference of float32 numbers near 40."""
    log_probs, _ = answer_terms(torch.tensor([[[40.0, 25.0]]]), torch.tensor([[[0]]]))
    assert abs(float(log_probs) / -math.log1p(math.exp(-15)) - 1) < 1e-5


def test_margin_reward_by_hand() -> None:
    """Questions (log p, lead) of (-1, 3) and (-2, 0.5), margin 1, weight 2: the first is beyond the
    margin and gives -1; the second is short by 0.5 and gives -2 - 2 * 0.5 = -3; the mean is -2.
    A third that was not asked has no say.
    """
    log_probs = torch.tensor([[-1.0, -2.0, math.nan], [math.nan] * 3], dtype=torch.float64)
    leads = torch.tensor([[3.0, 0.5, math.nan], [math.nan] * 3], dtype=torch.float64)
    got = margin_reward(log_probs, leads, margin=1.0, weight=2.0)
    assert got[0] == -2
    assert got[1].isnan()


def test_margin_reward_rises_with_the_right_answer() -> None:
    """The sign: one step along the gradient of the logits raises log p and the lead."""
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(1, 2, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    right = torch.tensor([[[2], [5]]])

    def reward(x: torch.Tensor) -> torch.Tensor:
        return margin_reward(*answer_terms(x, right), margin=9.0, weight=0.3)

    (slope,) = torch.autograd.grad(reward(logits).sum(), logits)
    before = answer_terms(logits, right)
    after = answer_terms(logits + 0.1 * slope, right)
    assert all(bool((b < a).all()) for b, a in zip(before, after, strict=True))
    assert bool((slope.gather(-1, right) > 0).all())
    assert torch.autograd.gradcheck(reward, (logits,))
