"""The synthetic world of prompts with known difficulty: every method finds those that teach, also
when difficulty drifts, and saves pictures.
"""

from __future__ import annotations

import json

import pytest
import torch

from t2x.errors import T2XError
from t2x.functional.selection import informative_probability
from t2x.selection import METHODS, SelectionConfig
from t2x.selection.simulate import BanditWorld, compare, simulate

CHOOSING = ("mopps", "pcl", "p1", "hive")
N = 240


def three_kinds(**settings: float) -> BanditWorld:
    """A third hopeless, a third that teaches, a third solved."""
    logits = torch.cat([torch.full((N // 3,), value) for value in (-5.0, 0.0, 5.0)])
    return BanditWorld(logits, group=4, **settings)  # type: ignore[arg-type]


def share_of_middle(counts: torch.Tensor) -> float:
    return (counts[N // 3 : 2 * N // 3].sum() / counts.sum()).item()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_uniform_takes_a_third_of_each(seed: int) -> None:
    trace = simulate(SelectionConfig(), three_kinds(), draws=150, seed=seed)
    assert share_of_middle(trace.counts) == pytest.approx(1 / 3, abs=0.01)
    # Of the middle third 1 - 2 / 2^4 of the groups teach, of the others 1.3 % each way.
    middle, ends = informative_probability(torch.tensor([0.0, 5.0]).sigmoid(), 4).tolist()
    assert trace.informative == pytest.approx((middle + 2 * ends) / 3, abs=0.04)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("method", CHOOSING)
def test_every_method_prefers_the_prompts_that_teach(method: str, seed: int) -> None:
    """Twice uniform's share or nearly so; a sign that is turned round would be below a third."""
    config = SelectionConfig(method)  # type: ignore[arg-type]
    trace = simulate(config, three_kinds(), draws=150, seed=seed)
    assert share_of_middle(trace.counts) > 0.55, trace.counts
    assert trace.informative > 0.55


@pytest.mark.parametrize("method", ["mopps", "pcl", "hive"])
def test_where_every_rewrite_leads_the_median_lead_is_the_bar(method: str) -> None:
    """An arm far below: to be ahead of it tells nothing, and the prompts that teach look solved."""
    shares = []
    for margin in (0.0, "median"):
        config = SelectionConfig(method, margin=margin)  # type: ignore[arg-type]
        world = three_kinds(arm=-3.0)
        world.probe = lambda prompts: [0.0] * len(prompts)  # type: ignore[method-assign]
        trace = simulate(config, world, draws=150, seed=0)
        shares.append(share_of_middle(trace.counts))
    assert shares[0] < 0.42 and shares[1] > 0.5, shares


@pytest.mark.parametrize("method", CHOOSING)
def test_fresh_prompts_are_tried(method: str) -> None:
    """Nothing is held against what was never drawn: of the prompts that teach nearly all come, and
    none of the methods settles on a few."""
    config = SelectionConfig(method)  # type: ignore[arg-type]
    trace = simulate(config, three_kinds(), draws=150, seed=0)
    tried = (trace.counts[N // 3 : 2 * N // 3] > 0).float().mean()
    assert tried > 0.85


@pytest.mark.parametrize("method", CHOOSING)
def test_difficulty_that_drifts_is_followed(method: str) -> None:
    """All become easier: what was hopeless begins to teach, what taught is solved. After a while
    the new prompts are drawn most. A fair share is what lets p1 and history see it."""
    from t2x.selection.sampler import PromptSampler

    world = three_kinds()
    config = SelectionConfig(method, fair_share=0.25)  # type: ignore[arg-type]
    sampler = PromptSampler(
        config, prompts=N, size=8, seed=0, features=world.features, probe=world.probe
    )
    counts = torch.zeros(N)
    numbers = (draw for _ in range(20) for draw in sampler.epoch())
    for number, chosen in zip(range(400), numbers, strict=False):
        if number == 100:
            world.logits += 5  # the first third teaches now
        if number >= 250:
            counts[torch.tensor(chosen)] += 1
        sampler.observe(world.roll(chosen, [1.0] * 8))
    shares = [(part.sum() / counts.sum()).item() for part in counts.split(N // 3)]
    assert shares[0] > 0.42 and shares[0] > 1.3 * shares[1], shares


@pytest.mark.parametrize("value", [-9.0, 9.0])
@pytest.mark.parametrize("method", METHODS)
def test_where_nothing_teaches_all_methods_draw_on(method: str, value: float) -> None:
    world = BanditWorld(torch.full((60,), value), group=4)
    config = SelectionConfig(method)  # type: ignore[arg-type]
    trace = simulate(config, world, draws=40, seed=0)
    assert trace.informative < 0.05 and trace.counts.sum() == 40 * 8


def test_lifted_temperature_revives_prompts_that_are_spent() -> None:
    """All prompts are solved: at the run's temperature 1 in 14 groups has a failure. That rewards
    differ by the noise of seeds does not hide it."""
    solved = torch.full((64,), 4.0)
    config = SelectionConfig("erpo", temperature_step=0.25, temperature_ceiling=3.0)
    lifted, plain = (
        simulate(c, BanditWorld(solved, group=4), draws=400, seed=0)
        for c in (config, SelectionConfig())
    )
    assert plain.informative == pytest.approx(1 - 0.982**4, abs=0.02)
    assert lifted.informative > 2 * plain.informative


def test_pictures_to_the_same_score() -> None:
    """Choosing pays: fewer than 85 % of uniform's pictures, each of them on its own."""
    found = compare(CHOOSING, prompts=128, score=0.7, draws=600, seeds=(0,))
    for name in CHOOSING:
        ratio = found[name]["to_uniform"]
        assert ratio is not None and ratio < 0.85, found
        assert found[name]["informative"] > found["uniform"]["informative"]  # type: ignore[operator]


def test_a_score_that_is_not_reached_is_none_and_unknown_methods_are_errors() -> None:
    found = compare(("mopps",), prompts=64, score=0.999, draws=5, seeds=(0,))
    assert found["mopps"]["pictures"] is None and found["mopps"]["to_uniform"] is None
    with pytest.raises(T2XError, match="no method of selection 'mops'"):
        compare(("mops",))


def test_the_command_prints_every_method_beside_uniform(capsys: pytest.CaptureFixture[str]) -> None:
    from t2x.cli import run

    arguments = ["bench", "selection", "--methods", "mopps", "--prompts", "64"]
    arguments += ["--score", "0.55", "--seeds", "1"]
    assert run([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["methods"]
    assert list(found) == ["uniform", "mopps"] and found["uniform"]["to_uniform"] == 1
    assert run(arguments) == 0
    assert "mopps" in capsys.readouterr().out
