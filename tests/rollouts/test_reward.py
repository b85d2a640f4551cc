"""The reward as TRL calls it."""

from __future__ import annotations

import json
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.rollouts import RolloutReward, rollout_seeds
from t2x.rollouts.checkpoints import STATE_FILE, load_state
from t2x.testing import tiny_word_tokenizer

from .worlds import TEMPLATE, FourMore, Painter, make_scorer

WORDS = ("two", "cats", "dogs", "on", "a", "red", "sofa", "outdoors", "plan", "in", "the", "snow")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return tiny_word_tokenizer(WORDS)


def make_reward(tokenizer: Any, **options: Any) -> RolloutReward:
    scorer = options.pop("scorer", None) or make_scorer(FourMore(noise=0.5))
    options = {"num_generations": 2, "pictures": 2} | options
    return RolloutReward(scorer, tokenizer=tokenizer, template=TEMPLATE, **options)


def ids(tokenizer: Any, text: str, *, end: bool = True) -> list[int]:
    found = tokenizer(f"<answer> {text} </answer>", add_special_tokens=False)["input_ids"]
    return [*found, *([tokenizer.eos_token_id] if end else [])]


def call(reward: RolloutReward, tokenizer: Any, texts: list[str], **options: Any) -> Any:
    prompts = options.pop("originals", ["two cats"] * len(texts))
    return reward(
        [[{"role": "user", "content": p}] for p in prompts],
        [[{"role": "assistant", "content": t}] for t in texts],
        completion_ids=[ids(tokenizer, t) for t in texts],
        original_prompt=prompts,
        **options,
    )


def test_the_contract(tokenizer: Any) -> None:
    reward = make_reward(tokenizer)
    metrics: dict[str, float] = {}
    extra: dict[str, list[Any]] = {}
    found = call(
        reward,
        tokenizer,
        ["two cats on a red sofa", "two cats outdoors"],
        log_metric=metrics.__setitem__,
        log_extra=extra.__setitem__,
        trainer_state=SimpleNamespace(global_step=3),
        kind=["plain"] * 2,
    )
    assert found[0] > 0 > found[1]
    assert sum(found) == pytest.approx(0, abs=1e-6)
    assert reward.__name__ == "rollout"
    assert not isinstance(reward, torch.nn.Module)
    assert extra["rewrite"] == ["two cats on a red sofa", "two cats outdoors"]
    assert extra["kind"] == ["rewrite"] * 2
    assert {"reward/four-more", "gain/four-more", "share/failed", "rollout/gain"} <= metrics.keys()
    assert reward.outcomes[0].seeds == rollout_seeds(0, 3, "two cats", 2)


def test_seeds_follow_run_step_and_prompt(tokenizer: Any) -> None:
    known = rollout_seeds(0, 3, "two cats", 2)
    others = [(1, 3, "two cats"), (0, 4, "two cats"), (0, 3, "two dogs")]
    assert all(set(known).isdisjoint(rollout_seeds(*o, 2)) for o in others)
    assert rollout_seeds(0, 3, "two cats", 3)[:2] == known
    fixed = make_reward(tokenizer, scorer=make_scorer(FourMore(noise=0.5), fixed_seeds=True))
    for step in (1, 5):
        call(
            fixed,
            tokenizer,
            ["two cats outdoors"] * 2,
            trainer_state=SimpleNamespace(global_step=step),
        )
        assert fixed.outcomes[0].seeds == rollout_seeds(0, 0, "two cats", 2)


def test_truncated_is_none_and_so_is_what_could_not_be_measured(tokenizer: Any) -> None:
    reward = make_reward(tokenizer, num_generations=3)
    texts = ["two cats on a red sofa", "two cats outdoors", "two cats in the snow"]
    found = reward(
        texts,
        texts,
        completion_ids=[
            ids(tokenizer, texts[0]),
            ids(tokenizer, texts[1]),
            ids(tokenizer, texts[2], end=False),
        ],
        original_prompt=["two cats"] * 3,
    )
    assert found[2] is None
    assert reward.outcomes[2].kind == "truncated"  # although its answer is closed: TRL masks it
    assert found[0] > 0 > found[1]


def test_groups_must_be_whole_and_of_one_prompt(tokenizer: Any) -> None:
    reward = make_reward(tokenizer)
    with pytest.raises(T2XError, match="a group is on one process"):
        call(reward, tokenizer, ["two cats outdoors"] * 3)
    with pytest.raises(T2XError, match="a group is on one process"):
        call(reward, tokenizer, ["two cats outdoors"] * 2, originals=["two cats", "two dogs"])
    with pytest.raises(T2XError, match="at least 2"):
        make_reward(tokenizer, num_generations=1)


def test_one_prompt_in_two_groups_is_two_groups(tokenizer: Any) -> None:
    reward = make_reward(tokenizer)
    found = call(
        reward,
        tokenizer,
        ["two cats on a red sofa", "two cats outdoors", "two cats outdoors", "two cats outdoors"],
    )
    assert found[0] > 0 > found[1]
    assert found[2:] == [0.0, 0.0]


def test_it_can_be_pickled_and_goes_on(tokenizer: Any, tmp_path: Any) -> None:
    reward = make_reward(tokenizer)
    call(reward, tokenizer, ["two cats on a red sofa", "two cats outdoors"])
    copied = pickle.loads(pickle.dumps(reward))
    (tmp_path / STATE_FILE).write_text(json.dumps(reward.state_dict()))
    resumed = make_reward(tokenizer)
    load_state(resumed, tmp_path)
    state = SimpleNamespace(global_step=1)
    texts = ["two cats in the snow", "two cats on a red sofa"]
    expected = call(reward, tokenizer, texts, trainer_state=state)
    assert call(copied, tokenizer, texts, trainer_state=state) == expected
    assert call(resumed, tokenizer, texts, trainer_state=state) == expected
    (tmp_path / STATE_FILE).write_text("{")
    with pytest.raises(T2XError, match="remove that checkpoint"):
        load_state(resumed, tmp_path)


def test_models_stay_behind_when_it_is_pickled(tokenizer: Any) -> None:
    """Built from a configuration, models are loaded when they are needed, and never pickled."""
    from t2x.rollouts import RolloutConfig, RolloutScorer
    from t2x.training.config import RewardConfig

    config = RewardConfig({"t2x.testing:FakeReward": 1.0}, generator="t2x.testing:FakeGenerator")
    scorer = RolloutScorer.from_config(config, RolloutConfig(), TEMPLATE)
    reward = make_reward(tokenizer, scorer=scorer, pictures=1)
    assert len(pickle.dumps(scorer)) < 20_000
    texts = ["two cats on a red sofa", "two cats outdoors"]
    expected = call(reward, tokenizer, texts)
    assert len(pickle.dumps(scorer)) < 20_000
    fresh = pickle.loads(pickle.dumps(reward))
    assert call(fresh, tokenizer, texts) == expected


def test_the_same_completion_is_read_from_tokens_as_in_use(tokenizer: Any) -> None:
    reward = make_reward(tokenizer)
    text = "two cats outdoors"
    inside = [*ids(tokenizer, text), *ids(tokenizer, "two dogs")]  # nothing counts after the end
    assert reward.read(inside).text == reward.read(ids(tokenizer, text)).text
    assert reward.read([]).truncated
    assert not reward.read([*ids(tokenizer, text), tokenizer.pad_token_id]).truncated


def test_a_stored_picture_is_not_drawn_again(tokenizer: Any, tmp_path: Any) -> None:
    from t2x.store import Store

    painter = Painter()
    scorer = make_scorer(painter=painter, store=Store(tmp_path), fixed_seeds=True)
    reward = make_reward(tokenizer, scorer=scorer)
    for _ in range(2):
        call(reward, tokenizer, ["two cats on a red sofa", "two cats outdoors"])
    assert len(painter.calls) == 6
