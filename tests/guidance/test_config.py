"""Settings of guidance."""

import pytest

from t2x.errors import T2XError
from t2x.guidance.config import GuidanceConfig, parse_rewards


def test_which_steps_are_guided() -> None:
    config = GuidanceConfig(start=0.2, stop=0.8, free_last=2)
    assert [i for i in range(10) if config.guides(i, 10)] == [2, 3, 4, 5, 6, 7]
    assert [i for i in range(10) if GuidanceConfig(every=3).guides(i, 10)] == [0, 3, 6]
    assert [i for i in range(4) if GuidanceConfig().guides(i, 4)] == [0, 1]


def test_a_size_of_0_guides_nothing() -> None:
    assert not any(GuidanceConfig(size=0.0).guides(i, 10) for i in range(10))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mode": "K"}, "allowed: E, J; the other modes are of"),
        ({"rule": "fixed"}, "allowed: relative, tilt"),
        ({"size": -1.0}, "size is -1.0; give 0 to inf"),
        ({"size": float("nan")}, "size is nan"),
        ({"noise": 2.0}, "noise is 2.0; give 0 to 1"),
        ({"start": 0.5, "stop": 0.4}, "stop is 0.4; give 0.5 to 1"),
        ({"eta_min": 2.0, "eta_max": 1.0}, "eta_max is 1.0; give 2 to inf"),
        ({"frames": 0}, "frames is 0"),
        ({"rewards": {"clip": float("inf")}}, "weight of clip"),
        ({"rewards": ["clip"]}, r"rewards is \['clip'\]; give weights by name"),
        ({"rewards": "clip=1"}, "rewards is 'clip=1'; give weights by name"),
        ({"rewards": {"clip": "much"}}, "weight of clip is 'much'; give a number"),
        ({"size": "0.2"}, "size is '0.2'; give a number"),
        ({"eta_min": None}, "eta_min is None; give a number"),
        ({"correctors": 1.5}, "correctors is 1.5; give a whole number"),
        ({"every": True}, "every is True; give a whole number"),
        ({"seed": -1}, "seed is -1; give 0 to"),
    ],
)
def test_a_value_out_of_range_is_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(T2XError, match=message):
        GuidanceConfig(**wrong)


def test_rewards_as_text() -> None:
    assert parse_rewards("vqa=1, clip=0.3,aesthetic") == {"vqa": 1.0, "clip": 0.3, "aesthetic": 1.0}
    for wrong in ("", "vqa=much", "vqa,,clip", "=1"):
        with pytest.raises(T2XError, match="NAME=WEIGHT"):
            parse_rewards(wrong)


def test_a_reward_named_twice_is_refused() -> None:
    with pytest.raises(T2XError, match="names vqa twice"):
        parse_rewards("vqa=1,clip=1,vqa=2")
