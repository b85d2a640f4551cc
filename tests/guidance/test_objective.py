"""Values and gradients of several rewards on media that are being drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.guidance.objective import Objective


class Channel:
    """Mean of one colour, times ``scale``: its gradient is scale / pixels there and 0 elsewhere."""

    modality = "image"
    differentiable = True

    def __init__(self, channel: int, scale: float = 1.0, *, name: str = "") -> None:
        self.channel, self.factor = channel, scale
        self.name = name or "rgb"[channel]
        self.scale = "mean"
        self.range = (0.0, scale)

    def score(self, prompts: Sequence[str], media: Tensor, *, context: object = None) -> Tensor:
        return self.factor * media[:, self.channel].mean((1, 2))


class Glow(Channel):
    """Mean square of one colour: its gradient is larger where the picture is brighter."""

    def score(self, prompts: Sequence[str], media: Tensor, *, context: object = None) -> Tensor:
        return (media[:, self.channel] ** 2).mean((1, 2))


class Quarrel:
    """NaN for the first picture."""

    name, modality, differentiable, scale, range = "nan", "image", True, "-", (0.0, 1.0)

    def score(self, prompts: Sequence[str], media: Tensor, *, context: object = None) -> Tensor:
        found = media.mean((1, 2, 3))
        return torch.where(torch.tensor(["bad" in p for p in prompts]), torch.nan, found)


class EightBits(Quarrel):
    """Loses the gradient on the way."""

    name = "eight"

    def score(self, prompts: Sequence[str], media: Tensor, *, context: object = None) -> Tensor:
        return ((media * 255).round() / 255 + 0 * media).mean((1, 2, 3))


MEDIA = torch.linspace(0.1, 0.9, 2 * 3 * 4 * 4).reshape(2, 3, 4, 4)


def test_weights_hold_whatever_the_scale() -> None:
    """Each gradient has size 1 after division by its running size, so that two rewards whose scales
    differ a thousandfold move their channels by their weights."""
    objective = Objective([Channel(0, 1000.0), Channel(1)], {"r": 1.0, "g": 0.5})
    found = objective.evaluate(["a", "b"], MEDIA)
    red, green, blue = found.gradient.abs().mean((0, 2, 3)).tolist()
    assert red == pytest.approx(2 * green) and blue == 0
    assert torch.allclose(found.values[:, 0], 1000 * MEDIA[:, 0].mean((1, 2)))
    assert found.weights.tolist() == [[1.0, 0.5]] * 2


def test_without_normalising_it_is_the_gradient_of_the_sum() -> None:
    objective = Objective([Channel(0, 3.0), Channel(1)], {"g": -2.0}, normalise=False)
    gradient = objective.evaluate(["a", "b"], MEDIA).gradient
    assert torch.allclose(gradient[:, 0], torch.tensor(3.0 / 16))
    assert torch.allclose(gradient[:, 1], torch.tensor(-2.0 / 16))


def test_a_weight_of_0_asks_for_no_gradient_and_leaves_the_bits_of_others() -> None:
    """A policy could raise the weight: then the gradient is taken, and 0 times it is still 0."""

    class Fixed:
        def weights(
            self, prompts: object, index: int, total: int, values: Tensor, given: Tensor
        ) -> Tensor:
            return given.expand_as(values)

    for normalise in (True, False):
        plain = Objective([Glow(0), Glow(1)], normalise=normalise).evaluate(["a", "b"], MEDIA)
        for extra, policy in ((EightBits(), None), (Glow(2), None), (Glow(2), Fixed())):
            rewards = [Glow(0), extra, Glow(1)]
            objective = Objective(rewards, {extra.name: 0.0}, policy=policy, normalise=normalise)
            found = objective.evaluate(["a", "b"], MEDIA)
            assert torch.equal(found.gradient, plain.gradient)
            assert found.values[:, 1].isfinite().all()
            assert bool(found.sizes[:, 1].any()) == (policy is not None)


def test_a_batch_of_two_is_two_singles() -> None:
    def run(rows: slice) -> Tensor:
        objective = Objective([Glow(0), Channel(2, 5.0)])
        for factor in (1.0, 0.5):  # the running size has a memory
            found = objective.evaluate(["a", "b"][rows], factor * MEDIA[rows] ** 2)
        return found.gradient

    assert torch.equal(run(slice(2)), torch.cat([run(slice(0, 1)), run(slice(1, 2))]))


def test_what_cant_be_measured_moves_nothing_and_stays_nan() -> None:
    objective = Objective([Quarrel(), Channel(0)])
    found = objective.evaluate(["bad", "good"], MEDIA)
    assert found.values[:, 0].isnan().tolist() == [True, False]
    assert found.weights.tolist() == [[0.0, 1.0], [1.0, 1.0]]
    assert found.gradient.isfinite().all()
    assert not found.gradient[0, 1:].any() and found.gradient[1, 1:].all()


def test_the_running_size_is_of_what_was_measured() -> None:
    """A picture that could not be measured for a while weighs then as if it had just come."""
    late = Objective([Quarrel()])
    for _ in range(8):
        late.evaluate(["bad"], MEDIA[:1])
    found = late.evaluate(["good"], MEDIA[:1])
    assert torch.equal(
        found.gradient, Objective([Quarrel()]).evaluate(["good"], MEDIA[:1]).gradient
    )
    assert found.gradient.abs().mean() == pytest.approx(1.0, rel=1e-5)


def test_a_lost_gradient_is_an_error_not_a_run_without_guidance() -> None:
    class Detached(Quarrel):
        def score(self, prompts: Sequence[str], media: Tensor, *, context: object = None) -> Tensor:
            return media.detach().mean((1, 2, 3))

    with pytest.raises(T2XError, match="eight is 0 for all pictures"):
        Objective([EightBits(), Channel(0)]).evaluate(["a", "b"], MEDIA)
    with pytest.raises(T2XError, match="gives no gradient"):
        Objective([Detached()]).evaluate(["a", "b"], MEDIA)


def test_rewards_without_gradients_are_refused_at_once() -> None:
    class Counts(Quarrel):
        differentiable = False

    with pytest.raises(T2XError, match="no gradient comes from nan"):
        Objective([Counts()])


def test_pixels_out_of_range_are_scored_clamped_and_still_pulled_back() -> None:
    objective = Objective([Channel(0)], normalise=False)
    found = objective.evaluate(["a"], torch.full((1, 3, 2, 2), 1.5))
    assert found.values.item() == 1.0
    assert torch.allclose(found.gradient[:, 0], torch.tensor(0.25))


def test_satisfaction_is_the_mean_place_in_the_ranges() -> None:
    objective = Objective([Channel(0, 2.0), Channel(1)])
    values = torch.tensor([[1.0, 1.0], [torch.nan, 0.25]])
    assert objective.satisfaction(values).tolist() == [0.75, 0.25]


def test_satisfaction_of_ranges_without_ends() -> None:
    """What can be no better is satisfied: log-probabilities at 0, whose probability is 1."""

    def place(low: float, high: float, *values: float) -> list[float]:
        reward = Channel(0)
        reward.range = (low, high)
        return Objective([reward]).satisfaction(torch.tensor(values)[:, None]).tolist()

    assert place(-math.inf, 0.0, 0.0, math.log(0.25)) == pytest.approx([1.0, 0.25])
    assert place(2.0, math.inf, 2.0, 2 + math.log(4)) == pytest.approx([0.0, 0.75])
    assert place(-math.inf, math.inf, 0.0) == [0.5]


def test_satisfaction_asks_what_weighs_and_which_way() -> None:
    """One pushed away is satisfied at the low end; one of weight 0 is only looked at."""
    values = torch.tensor([[0.2, 0.9]])
    for weights, expected in (({"g": -1.0}, 0.15), ({"g": 0.0}, 0.2), ({}, 0.55)):
        found = Objective([Channel(0), Channel(1)], weights).satisfaction(values)
        assert found.tolist() == pytest.approx([expected])


def test_a_gradient_that_is_not_finite_is_no_zero() -> None:
    """The root at 0: infinity, which would have been taken for no wish to change the pixel."""

    class Root(Quarrel):
        name = "root"

        def score(self, prompts: Sequence[str], media: Tensor, *, context: object = None) -> Tensor:
            return media.sqrt().mean((1, 2, 3))

    objective = Objective([Root()])
    with pytest.raises(T2XError, match="gradient of root is not finite"):
        objective.evaluate(["a"], torch.zeros(1, 3, 2, 2))


def test_a_policy_moves_weights() -> None:
    class Doubt:
        def weights(
            self, prompts: Sequence[str], index: int, total: int, values: Tensor, given: Tensor
        ) -> Tensor:
            assert (index, total) == (3, 8) and given.tolist() == [1.0, 0.5]
            return torch.stack([given.flip(0), given])

    objective = Objective([Channel(0), Channel(1)], {"g": 0.5}, policy=Doubt())
    found = objective.evaluate(["a", "b"], MEDIA, index=3, total=8)
    assert found.weights.tolist() == [[0.5, 1.0], [1.0, 0.5]]


def test_memory_follows_its_sample() -> None:
    """After rows are taken in another order, each keeps the running size of its own gradients."""
    first = Objective([Glow(0)])
    first.evaluate(["a", "b"], MEDIA)
    second = Objective([Glow(0)])
    second.evaluate(["b", "a"], MEDIA.flip(0))
    first.reorder(torch.tensor([1, 0]))
    later = MEDIA.flip(0) * 0.3
    assert torch.equal(
        first.evaluate(["b", "a"], later).gradient, second.evaluate(["b", "a"], later).gradient
    )
