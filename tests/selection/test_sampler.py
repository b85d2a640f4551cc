"""The sampler of all methods: determinism, resuming, fairness, and its limits."""

from __future__ import annotations

import json
import math
import pickle
from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.selection import METHODS, GroupResult, PromptSampler, SelectionConfig
from t2x.selection.simulate import BanditWorld

PROMPTS, SIZE = 60, 6


def world(seed: int = 0) -> BanditWorld:
    logits = torch.linspace(-6, 6, PROMPTS)
    return BanditWorld(logits, group=4, gain=0.2, spill=0.01, seed=seed)


def entropies(prompts: list[int]) -> list[float]:
    return [math.sin(prompt) for prompt in prompts]


def sampler(method: str, **options: Any) -> PromptSampler:
    settings = {"prompts": PROMPTS, "size": SIZE, "seed": 3} | {
        key: options.pop(key) for key in ("prompts", "size", "seed") if key in options
    }
    features = world().features[: settings["prompts"]]
    config = SelectionConfig(method, **options)  # type: ignore[arg-type]
    return PromptSampler(config, features=features, probe=entropies, **settings)


def steps(draws: PromptSampler, bandit: BanditWorld, count: int) -> list[list[int]]:
    """Draw and learn; the epochs go on from one into the next."""
    seen = []
    numbers = (draw for _ in range(count) for draw in draws.epoch())
    for _, chosen in zip(range(count), numbers, strict=False):
        seen.append(chosen)
        draws.observe(bandit.roll(chosen, draws.temperatures(chosen, 1.0)))
    return seen


@pytest.mark.parametrize("method", METHODS)
def test_a_draw_holds_different_prompts_and_depends_on_seed_and_results_alone(method: str) -> None:
    seen = steps(sampler(method), world(), 25)
    assert all(len(set(draw)) == SIZE and set(draw) <= set(range(PROMPTS)) for draw in seen)
    assert seen == steps(sampler(method), world(), 25)
    assert seen != steps(sampler(method, seed=4), world(), 25)


@pytest.mark.parametrize("method", [m for m in METHODS if m not in ("uniform", "erpo")])
def test_results_change_what_is_drawn(method: str) -> None:
    assert steps(sampler(method), world(0), 15) != steps(sampler(method), world(1), 15)


def test_uniform_draws_each_prompt_once_an_epoch_in_another_order_each_time() -> None:
    draws = sampler("uniform")
    first, second = ([prompt for draw in draws.epoch() for prompt in draw] for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(PROMPTS))
    assert first != second


def test_what_does_not_fill_a_draw_is_left_for_another_epoch() -> None:
    draws = sampler("uniform", prompts=10, size=4)
    seen = [[prompt for draw in draws.epoch() for prompt in draw] for _ in range(8)]
    assert all(len(epoch) == 8 for epoch in seen)
    assert {prompt for epoch in seen for prompt in epoch} == set(range(10))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("killed", [4, 10, 13])  # inside an epoch, at its end, in the second
def test_a_resumed_sampler_goes_on_as_if_nothing_had_happened(method: str, killed: int) -> None:
    whole, bandit = sampler(method, margin="median"), world()
    expected = steps(whole, bandit, 20)

    broken, bandit = sampler(method, margin="median"), world()
    epoch = broken.epoch()
    seen: list[list[int]] = []
    for number in range(killed):
        if number == broken.draws_per_epoch:
            assert next(epoch, None) is None
            epoch = broken.epoch()
        seen.append(next(epoch))
        broken.observe(bandit.roll(seen[-1], broken.temperatures(seen[-1], 1.0)))
    if killed % broken.draws_per_epoch == 0:
        assert next(epoch, None) is None  # the loader looks ahead, and finds the end
    state = json.loads(json.dumps(broken.state_dict()))
    resumed = sampler(method, margin="median")
    resumed.load_state_dict(state)
    place = killed % resumed.draws_per_epoch
    for number, draw in enumerate(resumed.epoch()):
        if number >= place:
            seen.append(draw)
            resumed.observe(bandit.roll(draw, resumed.temperatures(draw, 1.0)))
        else:
            assert draw == seen[killed - place + number]  # skipped batches are the same again
    seen += steps(resumed, bandit, 20 - len(seen))
    assert seen == expected
    for key in ("learnt", "last", "pending", "streak", "leads"):
        assert resumed.state_dict()[key] == whole.state_dict()[key]


@pytest.mark.parametrize("method", METHODS)
def test_a_pickled_sampler_draws_the_same(method: str) -> None:
    draws, bandit = sampler(method), world()
    draws.method.__dict__.pop("probe", None)
    if method == "hive":
        draws.method.probe = None  # type: ignore[attr-defined]
    steps(draws, bandit, 7)
    copy = pickle.loads(pickle.dumps(draws))
    assert copy.draw(7) == draws.draw(7)


def test_a_pickle_leaves_out_a_probe_that_holds_a_model() -> None:
    draws = PromptSampler(
        SelectionConfig("hive"), prompts=9, size=2, probe=lambda prompts: [0.0] * len(prompts)
    )
    draws.observe([GroupResult(4, (0.0, 1.0), 0.5)])
    copy = pickle.loads(pickle.dumps(draws))
    assert copy.method.state_dict() == draws.method.state_dict()


@pytest.mark.parametrize("method", METHODS)
def test_with_a_fair_share_no_prompt_waits_longer_than_it_must(method: str) -> None:
    """Two of six places go to those that wait longest: each prompt is drawn at least once in
    60 / 2 draws."""
    seen = steps(sampler(method, fair_share=1 / 3), world(), 90)
    for start in range(0, 90 - 30):
        window = {prompt for draw in seen[start : start + 30] for prompt in draw}
        assert window == set(range(PROMPTS))


def test_without_a_fair_share_a_hopeless_prompt_is_left_alone() -> None:
    """The counterpart: p1 never looks again at what had no variance."""
    draws = sampler("p1", fair_share=0.0, pool=0)
    bandit = BanditWorld(torch.linspace(-9, 9, PROMPTS), group=4, noise=0.0)
    seen = steps(draws, bandit, 60)
    assert len({prompt for draw in seen[20:] for prompt in draw}) < PROMPTS / 2


def test_what_is_pending_is_not_drawn_again_while_others_are_there() -> None:
    draws = sampler("pcl", pool=0)  # without results it would rank all draws alike
    epoch = draws.epoch()
    first, second = next(epoch), next(epoch)
    assert not set(first) & set(second)


def test_the_order_of_results_does_not_matter() -> None:
    results = [GroupResult(p, (0.1 * p, 0.9), 0.5) for p in range(12)]
    for method in METHODS:
        a, b = sampler(method), sampler(method)
        a.observe(results)
        b.observe(results[::-1])
        assert a.state_dict() == b.state_dict()


def test_all_solved_none_solved_and_unmeasured_are_drawn_from_all_the_same() -> None:
    for rewards in ((1.0, 1.0), (0.0, 0.0), (math.nan, math.nan)):
        for method in METHODS:
            draws = sampler(method)
            for chosen in draws.epoch():
                assert len(set(chosen)) == SIZE
                draws.observe([GroupResult(p, rewards, 0.5) for p in chosen])


def test_erpo_lifts_the_temperature_of_spent_prompts_alone() -> None:
    draws = sampler("erpo", temperature_step=0.2, temperature_ceiling=1.5)
    spent, solved = GroupResult(1, (0.9, 0.9), 0.5), GroupResult(2, (0.9, 0.8), 0.5)
    failed, noisy = GroupResult(3, (0.1, 0.1), 0.5), GroupResult(4, (0.9, 0.8), 0.5, noise=0.1)
    draws.observe([spent, solved, failed, noisy])
    # Solved but still different, or hopeless: no lift. Differences within noise are none.
    assert draws.temperatures([0, 1, 2, 3, 4], 1.0) == pytest.approx([1, 1.2, 1, 1, 1.2])
    for _ in range(5):
        draws.observe([spent])
    assert draws.temperatures([1], 1.0) == [1.5]
    draws.observe([GroupResult(1, (0.9, 0.2), 0.5)])
    assert draws.temperatures([1], 1.0) == [1.0]
    uniform = sampler("uniform")
    uniform.observe([spent])
    assert uniform.temperatures([1], 0.7) == [0.7]


def test_errors_say_what_to_do() -> None:
    with pytest.raises(T2XError, match="a draw of 9 prompts out of 8"):
        PromptSampler(SelectionConfig(), prompts=8, size=9)
    with pytest.raises(T2XError, match=r"pcl needs features \(8, D\).*got none"):
        PromptSampler(SelectionConfig("pcl"), prompts=8, size=2)
    with pytest.raises(T2XError, match=r"got shape \(3, 4\)"):
        PromptSampler(SelectionConfig("pcl"), prompts=8, size=2, features=torch.ones(3, 4))
    draws = sampler("mopps")
    with pytest.raises(T2XError, match="prompt 60, out of 60"):
        draws.observe([GroupResult(60, (1.0,), 0.0)])
    with pytest.raises(T2XError, match="draw 5 was asked for, and the next is 0"):
        draws.draw(5)
    with pytest.raises(T2XError, match="saved by mopps with 60 prompts; this one is uniform"):
        sampler("uniform").load_state_dict(draws.state_dict())
    with pytest.raises(T2XError, match="this one is mopps with 12"):
        sampler("mopps", prompts=12).load_state_dict(draws.state_dict())
