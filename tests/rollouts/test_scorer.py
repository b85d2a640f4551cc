"""The traps of training a rewriter with rewards on pictures, in a world of closed forms."""

from __future__ import annotations

import math
import pickle
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.functional.advantages import seed_noise
from t2x.rewriters.completion import Completion
from t2x.rollouts import RolloutScorer
from t2x.rollouts.blocks import Block, put_together
from t2x.rollouts.comparing import Comparison
from t2x.rollouts.config import RolloutConfig, SetSection
from t2x.scoring.combine import COMBINERS
from t2x.store import Store

from .worlds import PROMPT, FourMore, Painter, answer, make_scorer, score

GOOD = answer("two cats on a red sofa")  # four words more than the prompt
SHORT = answer("two cats outdoors")
NO_TAG = Completion("<think>plan</think><answer>two cats on a red sofa")
COUNTED = ("pareto", "dominance")  # who is ahead of whom
CUT = Completion("<think>plan</think><answer>two cats on", truncated=True)


def test_scores_are_against_the_users_own_prompt() -> None:
    """Trap 1: the drawn text has six words, which is four more than the prompt's two."""
    good, short = score(make_scorer(), [GOOD, SHORT])
    assert good.scores == {"four-more": (0.0, 0.0)}
    assert short.scores == {"four-more": (-3.0, -3.0)}
    assert good.original_scores == {"four-more": (-4.0, -4.0)}
    assert (good.reward, good.original_reward, good.gain) == pytest.approx(
        (0.0, -4.0, 4.0), abs=1e-5
    )
    assert good.advantage == pytest.approx(1 / math.sqrt(2))
    assert short.advantage == pytest.approx(-1 / math.sqrt(2))


def test_all_members_and_the_prompt_share_their_seeds_and_nothing_is_drawn_twice() -> None:
    painter = Painter()
    score(make_scorer(painter=painter), [GOOD, SHORT, GOOD], seeds=(7, 8))
    texts = ("two cats on a red sofa", "two cats outdoors", PROMPT)
    assert sorted(painter.calls) == sorted((t, "", s) for t in texts for s in (7, 8))


def test_cost_is_of_all_calls_and_a_store_saves_drawing_alone(tmp_path: Path) -> None:
    """Three texts on two seeds; then the same again, and one text more."""
    scorer = make_scorer(store=Store(tmp_path))
    score(scorer, [GOOD, SHORT, GOOD])
    assert scorer.cost == {"pictures": 6.0, "pictures/drawn": 6.0}
    score(scorer, [GOOD, answer("two cats in snow")])
    assert scorer.cost == {"pictures": 12.0, "pictures/drawn": 8.0}
    assert scorer.cost.items() <= scorer.metrics.items()
    again = make_scorer(store=Store(tmp_path))
    again.load_state_dict(scorer.state_dict())
    score(again, [GOOD])
    assert again.cost == {"pictures": 16.0, "pictures/drawn": 8.0}


def test_logged_gain_is_the_logged_reward_less_that_of_the_users_own_words() -> None:
    """A rewrite, a failure with its fixed score below, what was cut off, and a prompt of which
    nothing could be measured."""
    lost = "lost dogs"
    scorer = make_scorer(FourMore(fails_on=lost), max_missing=1.0)
    rows = [(PROMPT, GOOD), (PROMPT, NO_TAG), (PROMPT, CUT), (lost, GOOD)]
    rows += [("a red bus", answer(f"a red bus {end}")) for end in ("outdoors", "on a sofa")]
    found = scorer.score([p for p, _ in rows], [c for _, c in rows], seeds=[(0, 1)] * len(rows))
    known = [o for o in found if not math.isnan(o.reward)]
    assert [o.kind for o in known] == ["rewrite", "failed", "rewrite", "rewrite"]
    logged = [scorer.metrics[f"rollout/{name}"] for name in ("reward", "original", "gain")]
    rewards = [o.reward for o in known]
    assert logged[0] == pytest.approx(statistics.fmean(rewards))
    assert logged[0] - logged[1] == pytest.approx(logged[2])
    assert logged[2] == pytest.approx(statistics.fmean(o.gain for o in known))
    assert scorer.metrics["rollout/reward_std"] == pytest.approx(statistics.pstdev(rewards))


def test_one_seed_per_rewrite_draws_the_prompt_once_more_for_the_noise() -> None:
    painter = Painter()
    scorer = make_scorer(FourMore(noise=1.0), painter=painter)
    found = score(scorer, [GOOD, SHORT], seeds=(1,))
    assert len(painter.calls) == 4
    assert found[0].scores == {"four-more": (pytest.approx(-1.0),)}
    # Luck 1 and 0 of seeds 1 and 0: deviation of a single picture 1 / sqrt(2).
    assert scorer.metrics["rollout/floor"] == pytest.approx(1 / math.sqrt(2), rel=1e-4)


def test_equal_rewrites_have_no_advantage_at_all() -> None:
    """Trap 2: seeds in common leave nothing for noise to do; different seeds are refused."""
    scorer = make_scorer(FourMore(noise=1.0))
    found = score(scorer, [GOOD] * 4, seeds=(1, 2, 3))
    assert [o.advantage for o in found] == [0.0] * 4
    assert scorer.metrics["share/zero_variance"] == 1.0
    with pytest.raises(T2XError, match="one prompt and the same seeds"):
        scorer.score([PROMPT] * 2, [GOOD] * 2, seeds=[(1, 2), (3, 4)])


@pytest.mark.parametrize("bad", [NO_TAG, answer(""), answer("two dogs"), Completion("")])
def test_failures_of_the_policy_lose(bad: Completion) -> None:
    """Trap 3 and 7: below the prompt as it is and below the group, never the reverted text."""
    painter = Painter()
    good, short, failed = score(make_scorer(painter=painter), [GOOD, SHORT, bad])
    assert failed.kind in ("failed", "broken")
    assert failed.scores == {}
    assert failed.reward < min(failed.original_reward, good.reward, short.reward)
    assert failed.advantage < short.advantage < good.advantage
    drawn = {text for text, *_ in painter.calls}
    assert drawn == {"two cats on a red sofa", "two cats outdoors", PROMPT}


def test_failing_is_worse_than_rewrites_that_are_worse_than_the_prompt() -> None:
    far = answer(
        "two cats on a red sofa beside an old wooden table with a lamp in warm evening light"
    )  # eleven words too many: -11, the prompt -4
    poor, failed = score(make_scorer(), [far, NO_TAG])
    assert poor.reward < poor.original_reward
    assert failed.reward < poor.reward


def test_margin_says_how_far_below() -> None:
    for margin in (0.5, 3.0):
        scorer = make_scorer(margin=margin)
        _, failed = score(scorer, [GOOD, NO_TAG])
        deviation = float(scorer.comparison.deviation()[0])
        assert failed.reward == pytest.approx(-4.0 - margin * deviation, abs=1e-4)


def test_truncated_completions_are_no_one() -> None:
    good, short, cut = score(make_scorer(), [GOOD, SHORT, CUT])
    assert (cut.kind, math.isnan(cut.reward), math.isnan(cut.advantage)) == (
        "truncated",
        True,
        True,
    )
    without = score(make_scorer(), [GOOD, SHORT])
    assert [good.advantage, short.advantage] == [o.advantage for o in without]
    assert not cut.missing


def test_a_constant_prompt_for_everything_loses() -> None:
    """A policy that writes "a photo of a cat" about everything never gains."""
    scorer = make_scorer()
    prompts = ["two dogs", "a red bus", "three cups"]
    rows = [
        (p, c)
        for p in prompts
        for c in (answer("a photo of a cat"), answer(f"{p} in bright light"))
    ]
    found = scorer.score([p for p, _ in rows], [c for _, c in rows], seeds=[(0, 1)] * len(rows))
    for constant, own in zip(found[::2], found[1::2], strict=True):
        assert constant.reward < constant.original_reward
        assert constant.advantage < 0 < own.advantage


def test_failed_measurements_leave_the_baseline() -> None:
    scorer = make_scorer(FourMore(), FourMore("other", fails_on="dogs"), max_missing=0.9)
    found = scorer.score(
        ["two cats"] * 2 + ["two dogs"] * 2,
        [GOOD, SHORT, answer("two dogs on a red sofa"), answer("two dogs outdoors")],
        seeds=[(0, 1)] * 4,
    )
    assert [o.missing for o in found] == [False, False, True, True]
    assert found[0].advantage > 0
    assert all(math.isnan(o.advantage) for o in found[2:])
    assert found[2].scores["four-more"] == (0.0, 0.0)  # what was measured is kept
    assert scorer.metrics["share/missing"] == 0.5


def test_a_dead_reward_stops_the_run() -> None:
    scorer = make_scorer(FourMore("dead", fails_on="cats"))
    with pytest.raises(T2XError, match="dead reward: dead could not score"):
        for _ in range(4):
            score(scorer, [GOOD, SHORT])


def test_a_reward_that_is_always_the_same_stops_the_run() -> None:
    scorer = make_scorer(FourMore(), FourMore("flat", scale_by=0.0), constant_after=12)
    score(scorer, [GOOD, SHORT])
    with pytest.raises(T2XError, match=r"dead reward: flat gave .* to each of 12 pictures"):
        score(scorer, [GOOD, SHORT])


def test_a_reward_without_weight_stops_nothing() -> None:
    scorer = make_scorer(
        FourMore(), FourMore("dead", fails_on="cats"), weights={"four-more": 1.0, "dead": 0.0}
    )
    for _ in range(4):
        good, _ = score(scorer, [GOOD, SHORT])
    assert good.advantage > 0


@pytest.mark.parametrize("combine", ["standardised", "gdpo", "correlation"])
def test_the_scale_of_a_reward_does_not_matter(combine: str) -> None:
    """Trap 4."""

    def advantages(scale_by: float) -> list[float]:
        scorer = make_scorer(
            FourMore(noise=0.3), FourMore("b", scale_by=scale_by, noise=0.1), combine=combine
        )
        rows = [GOOD, SHORT, answer("two cats in the snow"), NO_TAG]
        for _ in range(2):
            found = score(scorer, rows, seeds=(1, 2, 4))
        return [o.advantage for o in found]

    assert advantages(10.0) == pytest.approx(advantages(1.0), rel=1e-4)
    assert advantages(1.0)[0] > 0 > advantages(1.0)[3]


def test_a_plain_sum_is_ruled_by_the_widest_scale() -> None:
    """The control of the test above: without standardising, scale does matter."""

    def reward(scale_by: float) -> float:
        scorer = make_scorer(FourMore(), FourMore("b", scale_by=scale_by))
        return score(scorer, [GOOD, SHORT])[1].reward

    assert reward(10.0) == pytest.approx(-33.0, abs=1e-3)
    assert reward(1.0) == pytest.approx(-6.0, abs=1e-3)


def test_pareto_compares_inside_the_group() -> None:
    scorer = make_scorer(FourMore(), FourMore("b"), combine="pareto")
    good, short = score(scorer, [GOOD, SHORT])
    assert good.advantage > 0 > short.advantage


@pytest.mark.parametrize("combine", list(COMBINERS))
def test_noise_holds_advantages_down(combine: str) -> None:
    """A difference that seeds could make gets less than a deviation of advantage."""
    near = answer("two cats on a sofa")  # one word off

    class Moody(FourMore):
        """Likes one text with one seed and the other with the other."""

        def score(self, prompts: Any, media: Any, **options: Any) -> Any:
            plain = super().score(prompts, media, **options)
            words = torch.stack([m[0].mean() for m in media]) / (8 / 255)
            luck = torch.stack([m[2].mean() for m in media]) * 255
            return plain + 5.0 * torch.where(words.round() % 2 == luck.round() % 2, 1.0, -1.0)

    scorer = make_scorer(Moody(), combine=combine)
    found = score(scorer, [GOOD, near], seeds=(0, 1))
    noise = 5.0 * math.sqrt(2)
    floors = {"sum": noise, "standardised": noise / float(scorer.comparison.deviation()[0])}
    floors |= dict.fromkeys(COUNTED, math.sqrt(8))
    assert scorer.metrics["rollout/floor"] == pytest.approx(floors.get(combine, 1.0), rel=0.01)
    expected = 0.0 if combine in COUNTED else 0.5 / noise
    assert found[0].advantage == pytest.approx(expected, rel=0.02)
    given = score(make_scorer(Moody(), combine=combine, floor=0.0), [GOOD, near], seeds=(0, 1))
    assert given[0].advantage == pytest.approx(1 / math.sqrt(2), rel=1e-4)


@pytest.mark.parametrize("combine", list(COMBINERS))
def test_what_seeds_alone_make_is_smaller_the_higher_the_floor(combine: str) -> None:
    """Two rewards that are nothing but noise, of one deviation."""

    def mean_advantage(floor: float | None) -> float:
        draw = torch.Generator().manual_seed(0)
        config = RolloutConfig(floor=floor, constant_after=0)
        comparison = Comparison({"a": 1.0, "b": 1.0}, combine=combine, config=config)
        groups = torch.arange(16) // 4
        sizes = []
        for _ in range(10):
            scores = torch.randn(16, 2, 2, generator=draw, dtype=torch.float64)
            block = Block(
                scores, scores[::4][groups], groups, ("rewrite",) * 16, seed_noise(scores, groups)
            )
            comparison.observe(block)
            sizes.append(float(comparison.compare(block).advantage.abs().mean()))
        return sum(sizes) / len(sizes)

    plain, measured, high = (mean_advantage(floor) for floor in (0.0, None, 10.0))
    assert plain > 0.6
    assert measured < (0.4 if combine in COUNTED else 0.75)  # of a normal variable: 0.8
    assert high < 0.15


def test_a_scorer_goes_into_another_process_and_on_after_a_stop() -> None:
    makes = partial(_world, 1.0)
    scorer = makes()
    score(scorer, [GOOD, SHORT, NO_TAG])
    state = scorer.state_dict()
    copied: RolloutScorer = pickle.loads(pickle.dumps(scorer))
    fresh = makes()
    fresh.load_state_dict(pickle.loads(pickle.dumps(state)))
    expected = [o.advantage for o in score(scorer, [SHORT, GOOD, NO_TAG], seeds=(3, 4))]
    for other in (copied, fresh):
        assert [o.advantage for o in score(other, [SHORT, GOOD, NO_TAG], seeds=(3, 4))] == expected
        assert other.state_dict() == scorer.state_dict()
    with pytest.raises(T2XError, match="holds statistics of four-more, and the rewards are b"):
        make_scorer(FourMore("b")).load_state_dict(state)


def _world(noise: float) -> RolloutScorer:
    return make_scorer(FourMore(noise=noise), combine="standardised")


def test_statistics_stay_once_calibrated() -> None:
    scorer = make_scorer(combine="standardised", calibrate=3)
    score(scorer, [GOOD, SHORT])
    before = scorer.comparison.running
    score(scorer, [SHORT, SHORT])
    assert scorer.comparison.running == before
    assert before.measured.tolist() == [3.0]  # two rewrites and the prompt


def test_several_processes_are_one_batch() -> None:
    """Two processes with two groups each give what one with four gives."""
    prompts = ["two cats", "three cups", "a red bus", "two dogs"]
    rows = [(p, answer(f"{p} {end}")) for p in prompts for end in ("outdoors", "on a red sofa")]

    def run(scorer: RolloutScorer, some: list[tuple[str, Completion]]) -> list[float]:
        found = scorer.score([p for p, _ in some], [c for _, c in some], seeds=[(0, 1)] * len(some))
        return [o.advantage for o in found]

    def make() -> RolloutScorer:
        return make_scorer(FourMore(noise=0.5), FourMore("b", noise=0.2), combine="gdpo")

    one = make()
    whole = run(one, rows)
    blocks: list[Block] = []
    for part in (rows[:4], rows[4:]):
        first = make()
        first._exchange = lambda block: (blocks.append(block) or [block], 0)
        run(first, part)
    found = []
    for place, part in enumerate((rows[:4], rows[4:])):
        own = make()
        own._exchange = lambda block, place=place: (blocks, place)
        found += run(own, part)
        assert own.cost == one.cost  # of all processes
        assert own.state_dict()["pictures"] == 24
    assert found == pytest.approx(whole, abs=1e-9)
    together, rows_of_second = put_together(blocks, 1)
    assert together.groups.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert rows_of_second == slice(4, 8)


def test_lists_must_fit() -> None:
    scorer = make_scorer()
    assert scorer.score([], [], seeds=[]) == []
    with pytest.raises(T2XError, match="one of each per row"):
        scorer.score([PROMPT], [GOOD, GOOD], seeds=[(0,)])
    with pytest.raises(T2XError, match="same number of seeds"):
        scorer.score([PROMPT, "a dog"], [GOOD, GOOD], seeds=[(0,), (0, 1)])
    with pytest.raises(T2XError, match="unknown combine"):
        make_scorer(combine="best")


@pytest.mark.parametrize("combine", ["sum", "gdpo"])
def test_what_is_new_in_its_set_is_worth_more(
    combine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DPP-GRPO: equal pictures, but one text is unlike the others; what failed is in no set."""

    def embedder(name: str) -> Any:
        assert name == "words"
        return lambda texts: torch.stack([_place("sofa" in t, "snow" in t) for t in texts])

    monkeypatch.setattr("t2x.rollouts.scorer.load_embedder", embedder)
    snow = answer("two cats in deep white snow")
    scorer = make_scorer(combine=combine, sets=SetSection("words", weight=2.0, gain=1.0))
    copy, other_copy, new, failed = score(scorer, [GOOD, GOOD, snow, NO_TAG])
    assert copy.reward == new.reward  # the pictures alone
    assert copy.advantage == other_copy.advantage
    assert failed.advantage < copy.advantage < new.advantage
    assert scorer.metrics["reward/sets"] == pytest.approx(
        (2 * math.log(1.5) + math.log(2)) / 3, abs=1e-6
    )
    plain = score(make_scorer(combine=combine), [GOOD, GOOD, snow, NO_TAG])
    assert plain[0].advantage == plain[2].advantage


def _place(sofa: bool, snow: bool) -> torch.Tensor:
    both = torch.tensor([float(sofa), float(snow)]) + (0.0 if sofa or snow else 0.5)
    return both / both.norm()


def test_dominance_inside_the_group() -> None:
    scorer = make_scorer(FourMore(), FourMore("b"), combine="dominance", floor=0.5)
    good, short, near = score(scorer, [GOOD, SHORT, answer("two cats on a sofa")])
    assert good.advantage > near.advantage > short.advantage
    assert good.advantage == pytest.approx(1.0, abs=1e-6)  # 1, 0 and -1: deviation 1
