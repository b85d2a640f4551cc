"""The ensemble's rules: each is the equation that it names, over scores whose encoders ran once."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import pytest
import torch

from t2x.errors import T2XError
from t2x.functional.composition import cmo, dominance, gdpo, non_dominated
from t2x.functional.moments import Moments, moments, standardise
from t2x.scoring.combine import COMBINERS, prompt_groups
from t2x.scoring.ensemble import RewardEnsemble
from t2x.testing import FakeReward
from t2x.types import RewardModel

from .test_ensemble import CountingEncoder, _reward

PROMPTS = ["a cat", "a dog", "a cat", "a dog", "a cat", "a dog"]


def channel(index: int, **options: object) -> FakeReward:
    reward = FakeReward(index, **options)  # type: ignore[arg-type]
    reward.name = f"channel-{index}"
    return reward


def rewards() -> list[RewardModel]:
    return [channel(0), channel(1)]


@pytest.fixture
def media() -> torch.Tensor:
    return torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(3))


def matrix(media: torch.Tensor) -> torch.Tensor:
    return media[:, :2].mean((2, 3))


WEIGHTS = {"channel-0": 2.0, "channel-1": -1.0}
VECTOR = torch.tensor([2.0, -1.0])


def test_groups_are_equal_prompts() -> None:
    assert prompt_groups(["b", "a", "b"]).tolist() == [0, 1, 0]
    assert prompt_groups([]).shape == (0,)


def test_each_rule_is_its_equation(media: torch.Tensor) -> None:
    scores, groups = matrix(media), torch.tensor([0, 1] * 3)
    running = moments(torch.rand(20, 2))
    expected = {
        "sum": scores @ VECTOR,
        "standardised": standardise(scores, running) @ VECTOR,
        "gdpo": gdpo(scores, VECTOR, groups),
        "correlation": cmo(scores, VECTOR, groups, temperature=0.3),
        "dominance": dominance(scores, VECTOR, groups),
        "pareto": non_dominated(scores).float(),
    }
    assert set(expected) == set(COMBINERS)
    for rule, value in expected.items():
        ensemble = RewardEnsemble(
            rewards(), WEIGHTS, combine=rule, running=running, temperature=0.3
        )
        assert isinstance(ensemble, RewardModel)
        got = ensemble.score(PROMPTS, media)
        assert got.shape == (6,) and got.dtype == torch.float32
        assert torch.allclose(got, value, atol=1e-5), rule
        low, high = ensemble.range
        assert low <= got.min() and got.max() <= high
        given = groups if COMBINERS[rule].grouped else None
        assert torch.allclose(ensemble.combine(scores, groups=given), got, atol=1e-5)


@pytest.mark.parametrize("rule", COMBINERS)
def test_encoders_run_once_whatever_the_rule(rule: str) -> None:
    encoder = CountingEncoder()
    pair = [_reward("a", encoder, 0, text=True), _reward("b", encoder, 1, text=False)]
    ensemble = RewardEnsemble(pair, combine=rule, running=moments(torch.rand(9, 2)))
    ensemble.score(["x", "yy", "x"], torch.rand(3, 3, 4, 4))
    assert len(encoder.calls) == 1


@pytest.mark.parametrize("rule", COMBINERS)
def test_batchwise_says_whether_a_batch_is_its_singles(rule: str, media: torch.Tensor) -> None:
    ensemble = RewardEnsemble(rewards(), combine=rule, running=moments(torch.rand(9, 2)))
    whole = ensemble.score(PROMPTS, media)
    pairs = zip(PROMPTS, media, strict=True)
    singles = torch.cat([ensemble.score([p], picture[None]) for p, picture in pairs])
    assert torch.allclose(whole, singles, atol=1e-5) == (not ensemble.batchwise)


@pytest.mark.parametrize("rule", COMBINERS)
def test_missing_is_nan_logged_and_leaves_the_others_alone(
    rule: str, media: torch.Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    prompts = ["a cat", "a cat", "no", "a cat", "a cat", "no"]
    some = [channel(0, fails_on="no"), channel(1)]
    ensemble = RewardEnsemble(some, combine=rule, running=moments(torch.rand(9, 2)))
    with caplog.at_level(logging.WARNING):
        got = ensemble.score(prompts, media)
    assert got.isnan().tolist() == [p == "no" for p in prompts]
    assert "2 of 6 rows miss a score" in caplog.text
    kept = [0, 1, 3, 4]
    alone = ensemble.score([prompts[i] for i in kept], media[kept])
    assert torch.allclose(got[kept], alone, atol=1e-5)
    without = RewardEnsemble(
        some, {"channel-0": 0.0}, combine=rule, running=moments(torch.rand(9, 2))
    )
    assert not without.score(prompts, media).isnan().any()


def test_observing_changes_the_scores_and_nothing_else_does(media: torch.Tensor) -> None:
    ensemble = RewardEnsemble(rewards(), combine="standardised")
    with pytest.raises(T2XError, match="call observe"):
        ensemble.score(PROMPTS, media)
    scores = matrix(media)
    scores[0, 1] = math.nan
    first = ensemble.observe(scores)
    assert first.measured.tolist() == [6, 5] and first.missing.tolist() == [0, 1]
    before = ensemble.score(PROMPTS, media)
    assert torch.equal(before, ensemble.score(PROMPTS, media))
    saved = {name: value.clone() for name, value in ensemble.running._asdict().items()}
    ensemble.observe(matrix(media) + 1)
    assert not torch.allclose(ensemble.score(PROMPTS, media), before, atol=0.01)
    again = RewardEnsemble(rewards(), combine="standardised", running=Moments(**saved))
    assert torch.equal(again.score(PROMPTS, media), before)


def test_gradients_pass_where_the_rule_has_one(media: torch.Tensor) -> None:
    for rule, combiner in COMBINERS.items():
        ensemble = RewardEnsemble(rewards(), combine=rule, running=moments(torch.rand(9, 2)))
        assert ensemble.differentiable == combiner.differentiable
        pixels = media.clone().requires_grad_()
        if not combiner.differentiable:
            with pytest.raises(T2XError, match="no gradient"):
                ensemble.score(PROMPTS, pixels)
            with torch.no_grad():
                ensemble.score(PROMPTS, pixels)
            continue
        score = ensemble.score(PROMPTS, pixels)
        gradient = torch.autograd.grad(score.square().sum(), pixels)[0]
        assert torch.isfinite(gradient).all() and gradient.abs().sum() > 0, rule


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"combine": "gdop"}, "allowed: sum, standardised"),
        ({"running": moments(torch.zeros(0, 3))}, r"shape \(3,\) for 2 rewards"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(T2XError, match=message):
        RewardEnsemble(rewards(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(3,), (3, 1), (3, 2, 1)])
def test_scores_of_another_shape_are_refused(shape: Sequence[int]) -> None:
    with pytest.raises(ValueError, match=r"must be \(N, 2\)"):
        RewardEnsemble(rewards()).combine(torch.zeros(*shape))
