"""The table of rewards: complete, and true where it can be asked."""

from __future__ import annotations

import pytest

from t2x.errors import MissingDependencyError
from t2x.registry import EXTRAS, REWARDS, load_reward
from t2x.reward_facts import FACTS
from t2x.types import RewardModel
from t2x.world.weights import is_present


def test_it_covers_the_registry_exactly_and_in_order() -> None:
    assert list(FACTS) == sorted(FACTS)
    assert set(FACTS) == set(REWARDS), "a reward needs a line in t2x/registry.py and in FACTS"


@pytest.mark.parametrize("name", FACTS)
def test_every_line_is_filled(name: str) -> None:
    facts = FACTS[name]
    assert facts.measures and facts.scale and facts.licence and facts.download
    assert facts.range[0] < facts.range[1] and facts.modality in ("image", "video")
    assert not facts.extra or facts.extra in EXTRAS.values()


# The others load a published checkpoint, or what somebody has fitted.
AT_HAND = [n for n, f in FACTS.items() if f.download in ("embedded", "no weights") or n == "ocr"]


@pytest.mark.parametrize("name", AT_HAND)
def test_it_says_what_the_loaded_reward_says(name: str) -> None:
    facts = FACTS[name]
    if facts.download == "embedded":
        assert any(map(is_present, ("emoji-clip", "emoji-hps", "emoji-vlm")))
    try:
        reward = load_reward(name)
    except MissingDependencyError as error:
        assert facts.extra and f"t2x[{facts.extra}]" in str(error)
        return
    assert isinstance(reward, RewardModel)
    assert name in reward.name  # "region" is named after what it wraps, too
    assert reward.range == facts.range and reward.modality == facts.modality
    assert reward.differentiable == facts.differentiable
