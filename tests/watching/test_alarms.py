"""Each rule on curves of which it is known what to say, and how often it is wrong on noise.

    python tests/watching/test_alarms.py

prints the rates that ``t2x.watching.alarms`` gives, of 2,000 simulated runs each (half a minute).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from t2x.errors import T2XError
from t2x.watching.alarms import AlarmConfig, curves_of, find_alarms, over_optimised
from t2x.watching.trends import Curve, trend

NOW = AlarmConfig(min_steps=0)
EVERY = 3  # logged steps between two held-out measurements


def noise(rng: random.Random, n: int, correlation: float) -> list[float]:
    """White noise of deviation 1, or one whose neighbours correlate."""
    value, found = rng.gauss(0, 1), []
    for _ in range(n):
        value = correlation * value + rng.gauss(0, (1 - correlation**2) ** 0.5)
        found.append(value)
    return found


def stopped_at(
    seed: int,
    held_out: Callable[[int], float],
    *,
    reward: Callable[[int], float] = lambda i: float(i),
    correlation: float = 0.0,
    measured: int = 40,
) -> int | None:
    """After how many held-out measurements a run with white noise on its reward is stopped."""
    rng = random.Random(seed)
    held = [held_out(i) + e for i, e in enumerate(noise(rng, measured, correlation))]
    gained = [reward(i) + rng.gauss(0, 1) for i in range(EVERY * measured)]
    for k in range(NOW.window, measured + 1):
        curves = {
            "reward": Curve(tuple(range(1, EVERY * k + 1)), tuple(gained[: EVERY * k])),
            "heldout/reward": Curve(tuple(EVERY * (i + 1) for i in range(k)), tuple(held[:k])),
        }
        if over_optimised(curves, NOW):
            return k
    return None


def share_stopped(runs: int, held_out: Callable[[int], float], **options: float) -> float:
    found = [stopped_at(seed, held_out, **options) for seed in range(runs)]  # type: ignore[arg-type]
    return sum(k is not None for k in found) / runs


def test_flat_noise_seldom_stops_a_run_whose_reward_rises() -> None:
    """2,000 runs give 0.15 % and 4 %; three standard errors of 200 runs are added to that."""
    assert share_stopped(200, lambda i: 0.0) <= 0.01
    assert share_stopped(200, lambda i: 0.0, correlation=0.5) <= 0.085


def test_a_fall_stops_the_run() -> None:
    found = [stopped_at(seed, lambda i: -1.0 * max(0, i - 15)) for seed in range(60)]
    assert all(k is not None and k > 15 for k in found)
    assert sum(k - 15 for k in found if k) / 60 <= 11


def test_a_fall_without_a_rising_reward_is_no_over_optimisation() -> None:
    options = {"reward": lambda i: 0.0}
    found = [stopped_at(seed, lambda i: -1.0 * max(0, i - 15), **options) for seed in range(30)]
    assert sum(k is not None for k in found) <= 2
    falling = {"reward": lambda i: -float(i)}
    assert stopped_at(0, lambda i: -1.0 * i, **falling) is None


def curves_with(length: int, /, **values: Callable[[int], float]) -> dict[str, Curve]:
    steps = tuple(float(i + 1) for i in range(length))
    return {
        key.replace("_at_", "/"): Curve(steps, tuple(f(i) for i in range(length)))
        for key, f in values.items()
    }


def test_over_optimisation_waits_for_patience_and_least_steps() -> None:
    """Straight lines: infinitely many standard errors from flat as soon as a window is full."""
    for length, limits, expected in (
        (12, AlarmConfig(min_steps=0), True),
        (11, AlarmConfig(min_steps=0), False),  # window 10 at the last 3 measurements needs 12
        (10, AlarmConfig(min_steps=0, patience=1), True),
        (12, AlarmConfig(min_steps=11), False),
        (13, AlarmConfig(min_steps=11), True),
    ):
        curves = curves_with(length, reward=float, heldout_at_reward=lambda i: -float(i))
        assert bool(over_optimised(curves, limits)) == expected, (length, limits)


def test_a_fall_smaller_than_its_own_error_is_none() -> None:
    """Over the window the line falls by 9 * 0.01."""
    for error, expected in ((0.08, True), (0.1, False)):
        curves = curves_with(
            20,
            reward=float,
            heldout_at_reward=lambda i: -0.01 * i,
            heldout_at_gain_error=lambda i, error=error: error,
        )
        assert bool(over_optimised(curves, NOW)) == expected


def test_without_a_reward_a_falling_loss_counts() -> None:
    falling = curves_with(12, loss=lambda i: -float(i), heldout_at_reward=lambda i: -float(i))
    assert "training loss falls" in over_optimised(falling, NOW)
    rising = curves_with(12, loss=float, heldout_at_reward=lambda i: -float(i))
    assert over_optimised(rising, NOW) == ""


LEVELS = [
    ("entropy", {"entropy": lambda i: 1.0 if i < 20 else 0.1}, "collapsed to 0.1 "),
    ("entropy", {"entropy": lambda i: 1.0 if i < 20 else 3.0}, "grew to 3 times"),
    ("kl", {"kl": lambda i: 0.05 if i < 20 else 1.5}, "1.5 nats"),
    ("length", {"length": lambda i: 20.0 if i < 20 else 60.0}, "3 times"),
    ("length", {"length": lambda i: 20.0 if i < 20 else 6.0}, "0.3 times"),
    ("truncated", {"truncated": lambda i: 0.4}, "40% of the completions are cut off"),
    ("missing", {"missing": lambda i: 0.3}, "30%"),
    ("failed", {"failed": lambda i: 0.3, "broken": lambda i: 0.3}, "60%"),
    ("dead_reward", {"zero_variance": lambda i: 1.0}, "nothing to learn"),
]


@pytest.mark.parametrize(("name", "values", "text"), LEVELS)
def test_a_level_beyond_its_limit_is_an_alarm(
    name: str, values: dict[str, Callable[[int], float]], text: str
) -> None:
    [alarm] = find_alarms(curves_with(40, **values), 40, AlarmConfig())
    assert (alarm.name, alarm.step) == (name, 40)
    assert text in alarm.text
    assert alarm.stop == (name == "dead_reward")


def test_healthy_noise_raises_no_alarm() -> None:
    rng = random.Random(0)
    for _ in range(50):
        curves = curves_with(
            60,
            entropy=lambda i: 1.0 + rng.gauss(0, 0.15),
            kl=lambda i: 0.1 + rng.gauss(0, 0.2),
            length=lambda i: 25 + rng.gauss(0, 3),
            truncated=lambda i: abs(rng.gauss(0, 0.1)),
            zero_variance=lambda i: rng.uniform(0, 1),
            failed=lambda i: rng.uniform(0, 0.4),
        )
        assert find_alarms(curves, 60, AlarmConfig()) == []


def test_one_odd_value_is_no_alarm_and_few_values_are_none() -> None:
    odd = curves_with(40, entropy=lambda i: 0.0 if i == 39 else 1.0)
    assert find_alarms(odd, 40, AlarmConfig()) == []
    few = curves_with(9, zero_variance=lambda i: 1.0, entropy=lambda i: 0.0)
    assert find_alarms(few, 9, AlarmConfig()) == []


def test_a_loss_that_is_no_number_stops_the_run_until_it_is_one_again() -> None:
    records = [{"step": 1, "loss": 0.1, "grad_norm": None}]
    [alarm] = find_alarms(curves_of(records), 1, AlarmConfig())
    assert alarm.name == "not_finite" and alarm.stop
    mended = curves_of([{"step": 2, "loss": 0.1, "grad_norm": 1.0}], curves_of(records))
    assert find_alarms(mended, 2, AlarmConfig()) == []
    only_measured = curves_of([{"step": 2, "heldout/reward": math.nan}])
    assert find_alarms(only_measured, 2, AlarmConfig()) == []


def test_curves_leave_out_what_is_missing() -> None:
    curves = curves_of([{"step": 1, "kl": 0.5}, {"step": 2, "kl": None}, {"step": 3, "kl": 0.7}])
    assert curves["kl"] == Curve((1.0, 3.0), (0.5, 0.7))
    more = curves_of([{"step": 4, "kl": 0.9}], curves)
    assert more["kl"].values == (0.5, 0.7, 0.9)


def test_rules_are_named() -> None:
    with pytest.raises(T2XError, match=r"names \['kll'\]; the rules are: over_optimised"):
        AlarmConfig(stop=("kll",))
    with pytest.raises(T2XError, match="window is 3; give at least 4"):
        AlarmConfig(window=3)
    with pytest.raises(T2XError, match="entropy is"):
        AlarmConfig(entropy=(1.5, 2.0))
    curves = curves_with(40, kl=lambda i: 5.0)
    [alarm] = find_alarms(curves, 40, AlarmConfig(stop=("kl",)))
    assert alarm.stop


def test_trend_closed_form() -> None:
    """Through (0, 0), (1, 2), (2, 1), (3, 3): means 1.5 and 1.5, Sxx = 5, Sxy = 4, so the slope is
    0.8, residuals -0.3, 0.9, -0.9, 0.3, SSE = 1.8 and the plain error sqrt(0.9 / 5). Neighbours
    give r = (-0.27 - 0.81 - 0.27) / 1.8 = -0.75, plus 2 / 4: below 0, so no widening.
    """
    found = trend(Curve((0, 1, 2, 3), (0, 2, 1, 3)))
    assert found.slope == pytest.approx(0.8)
    assert found.error == pytest.approx(math.sqrt(0.18))
    assert found.errors == pytest.approx(0.8 / math.sqrt(0.18))


def test_trend_is_widened_where_neighbours_are_alike() -> None:
    """A bow 1, 0, 0, 1 is flat; residuals 0.5, -0.5, -0.5, 0.5 have r = (-0.25 + 0.25 - 0.25) / 1 =
    -0.25, plus 2 / 4 = 0.25: the error sqrt(1 / 2 / 5) grows by sqrt(1.25 / 0.75)."""
    found = trend(Curve((0, 1, 2, 3), (1, 0, 0, 1)))
    assert found.slope == 0
    assert found.error == pytest.approx(math.sqrt(0.1 * 1.25 / 0.75))


def test_trend_of_straight_and_of_few() -> None:
    assert trend(Curve((0, 1, 2), (0.1, 0.2, 0.3))).errors == math.inf
    assert trend(Curve((0, 1, 2), (0.3, 0.2, 0.1))).errors == -math.inf
    assert trend(Curve((0, 1, 2), (0.3, 0.3, 0.3))).errors == 0
    assert math.isnan(trend(Curve((0, 1), (0.1, 0.2))).slope)
    assert trend(Curve((0, 1), (0.1, 0.2))).errors == 0


def rates(runs: int) -> list[str]:
    """The rates of the module's head: false alarms, then falls found and how soon."""
    said = [
        f"flat, neighbours correlate by {near}: "
        f"{share_stopped(runs, lambda i: 0.0, correlation=near):.2%}"
        for near in (0.0, 0.5, 0.8)
    ]
    for fall in (1.0, 0.5):
        ends = [stopped_at(s, lambda i, f=fall: -f * max(0, i - 15)) for s in range(runs)]  # type: ignore[misc]
        found = [k - 15 for k in ends if k is not None and k > 15]
        said.append(
            f"a fall of {fall} per measurement: {len(found) / runs:.1%}, "
            f"after {sum(found) / len(found):.1f}"
        )
    return said


if __name__ == "__main__":
    print("\n".join(rates(2000)))
