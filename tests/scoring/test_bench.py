"""The benchmark measures what it says: passes of the tower are counted and clocks are set by hand,
nothing is timed here.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest
import torch

from t2x.registry import load_reward
from t2x.scoring import bench, random_towers
from t2x.scoring.bench import (
    AT_HAND,
    SHARED,
    bench_embedded,
    bench_full_size,
    bench_shared,
    stop_after,
)
from t2x.scoring.full_size import FULL_SIZE
from t2x.testing import FakeReward, tiny_open_clip


class Counted:
    """A tower that counts the pictures that go through it."""

    def __init__(self) -> None:
        self.model, self.tokenizer = tiny_open_clip()
        self.passes: list[int] = []
        encode = self.model.encode_image
        self.model.encode_image = lambda p: (self.passes.append(len(p)), encode(p))[1]
        self.model.visual.output_dim = 16


class Clock:
    """Stands still until a reward, whose calls take so many seconds, moves it."""

    def __init__(self, *seconds: float) -> None:
        self.seconds, self.now, self.calls = list(seconds), 0.0, 0

    def __call__(self) -> float:
        return self.now

    def load(self, *unused: Any) -> Any:
        reward = FakeReward()
        score = reward.score

        def timed(*arguments: Any, **options: Any) -> torch.Tensor:
            self.now += self.seconds[min(self.calls, len(self.seconds) - 1)]
            self.calls += 1
            torch.nn.Identity()(0)  # a module, where a time limit is looked at
            return score(*arguments, **options)

        reward.score = timed  # type: ignore[method-assign]
        return reward


def test_together_is_one_pass_and_alone_is_one_each() -> None:
    tower = Counted()
    result = bench_shared((tower.model, tower.tokenizer), pictures=2, size=64, repeats=3)
    rounds, arms = 4, 1 + len(SHARED)
    assert tower.passes == [2] * rounds * arms
    assert result["single"] == "clip" and tuple(result["alone"]) == SHARED
    assert 0 < result["shared_over_single"] < math.inf
    for speed in (result["shared"], *result["alone"].values()):
        assert speed["pictures_per_second"] == pytest.approx(2 / speed["seconds"])


def test_the_ratios_are_of_the_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of 3, 2, 1, 1 seconds together and alone; the first round does not count."""
    three = {name: FULL_SIZE[name] for name in SHARED[:3]}
    times = iter([90, 90, 90, 90, 3, 2, 1, 1, 4, 2, 2, 2, 2.2, 2, 1, 1])
    monkeypatch.setattr(bench, "_seconds", lambda *a, **k: float(next(times)))
    tower = Counted()
    result = bench_shared((tower.model, tower.tokenizer), three, pictures=2, size=64, repeats=3)
    assert result["shared_over_single"] == pytest.approx(1.5)  # of 1.5, 2, 1.1
    assert result["alone_over_shared"] == pytest.approx(1.5)  # of 4/3, 6/4, 4/2.2
    assert result["shared"] == {"seconds": 3, "pictures_per_second": pytest.approx(2 / 3)}


def test_no_prompt_is_timed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def watch(reward: Any, texts: list[str], media: torch.Tensor, clock: Any) -> float:
        seen.extend(texts)
        return 1.0

    monkeypatch.setattr(bench, "_seconds", watch)
    tower = Counted()
    bench_shared((tower.model, tower.tokenizer), pictures=2, size=64, repeats=2)
    assert len(seen) == len(set(seen)) == 2 * 3 * (1 + len(SHARED))


@pytest.mark.parametrize(
    ("seconds", "limit", "calls", "middle", "rounds"),
    [
        ((9, 1), math.inf, 2, 1, 1),  # the first does not count; enough after 3 s
        ((1, 1, 5, 2), math.inf, 3, 3, 2),
        ((1, 0.25, 0.5, 0.75), math.inf, 4, 0.5, 3),  # as many as asked for
        ((6, 1), 10, 1, 6, 0),  # no time for a second one
        ((6, 1), 12, 2, 1, 1),
        ((20, 1), 19, 1, math.nan, None),  # stopped inside the first
    ],
)
def test_rounds_end_in_time(
    monkeypatch: pytest.MonkeyPatch,
    seconds: tuple[float, ...],
    limit: float,
    calls: int,
    middle: float,
    rounds: int | None,
) -> None:
    clock = Clock(*seconds)
    monkeypatch.setattr(bench, "load_reward", clock.load)
    result = bench_embedded(["clip"], pictures=4, repeats=3, limit=limit, clock=clock)["clip"]
    assert clock.calls == calls
    assert result["seconds"] == pytest.approx(middle, nan_ok=True)
    assert result["pictures_per_second"] == pytest.approx(4 / middle, nan_ok=True)
    assert result.get("rounds") == rounds
    assert ("longer than 19 s" in result.get("reason", "")) == math.isnan(middle)


def test_a_time_limit_ends_with_its_block() -> None:
    module, time = torch.nn.Identity(), iter((0.0, 1.0, 3.0))
    with pytest.raises(bench.TooSlow), stop_after(2, lambda: next(time)):
        module(0)
        module(0)
    assert module(0) == 0


def test_embedded_rewards_have_a_speed_or_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["clip", "motion", "pal", "rl-vlm-f", "hpsv3", "t2x.testing:nothing"]
    result = bench_embedded(names, pictures=2, repeats=1)
    assert list(result) == names
    for name in names[:4]:
        assert result[name]["pictures_per_second"] > 0
    assert "17 GB" in result["hpsv3"]["reason"]
    assert "t2x.testing" in result["t2x.testing:nothing"]["reason"]
    assert all(math.isnan(result[n]["pictures_per_second"]) for n in names[4:])
    monkeypatch.setattr(bench, "_seconds", lambda *a, **k: 2.0)
    motion = bench_embedded(["motion"], pictures=3, repeats=2)["motion"]
    assert motion["pictures_per_second"] == 3 * 8 / 2


def test_by_default_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reward is named; those that need a hub are not even tried."""
    from t2x.registry import REWARDS

    asked: list[str] = []

    def load(name: str) -> Any:
        asked.append(name)
        return load_reward(name)

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(bench, "load_reward", load)
    result = bench_embedded(pictures=2, repeats=1)
    assert list(result) == sorted(REWARDS)
    assert set(asked) == {*AT_HAND, "ocr"} and {"clip", "vqa", "quality", "motion"} <= set(asked)
    for name in (*AT_HAND, "pal", "rl-vlm-f"):
        assert result[name]["pictures_per_second"] > 0, name
    assert all(("reason" in r) == math.isnan(r["seconds"]) for r in result.values())


def test_every_reward_has_a_network_of_full_size() -> None:
    from t2x.registry import REWARDS

    assert {key.split()[0] for key in FULL_SIZE} == set(REWARDS)
    assert {entry.tower for entry in FULL_SIZE.values()} == set(bench.TOWERS)


def test_full_size_is_timed_tower_by_tower(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A tower is built once; what it can't be is the reason for all that need it."""
    tower, built = Counted(), []

    def make(name: str, device: str) -> Any:
        built.append((name, device))
        if name != "ViT-L-14-quickgelu":
            raise bench.T2XError("needs 34.0 GiB of memory")
        return tower.model, tower.tokenizer

    towers = {name: lambda device, n=name: make(n, device) for name in bench.TOWERS if name}
    monkeypatch.setattr(bench, "TOWERS", {**towers, "": lambda device: None})
    names = ["quality", "clip", "pal", "laion-v2", "region", "temporal-consistency", "hpsv3", "x"]
    with caplog.at_level(logging.ERROR):
        result = bench_full_size(names, size=64, repeats=1)
    assert set(result) == set(names) and built == [
        ("ViT-L-14-quickgelu", "cpu"),
        ("Qwen2-VL-7B", "cpu"),
    ]
    assert all(result[n]["pictures_per_second"] > 0 for n in names[:6])
    assert result["clip"]["tower"] == "ViT-L-14-quickgelu" and "tower" not in result["quality"]
    assert result["hpsv3"]["reason"] == "needs 34.0 GiB of memory"
    assert "no network" in result["x"]["reason"]
    assert math.isnan(result["x"]["pictures_per_second"])


def test_vision_language_rewards_run_on_a_network_of_that_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Qwen2-VL with fewer and narrower layers; its stand-in tokenizer and template are the same."""
    small = {
        "hidden_size": 256,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "vocab_size": 4096,
        "tie_word_embeddings": True,
    }
    vision = {"hidden_size": 256, "depth": 1, "embed_dim": 32, "num_heads": 2}
    for size in ("2B", "7B"):
        monkeypatch.setitem(random_towers.QWEN2_VL, size, (small, vision))
    widths = (256, 16, 2)
    monkeypatch.setattr("t2x.scoring.full_size.HPSV3", widths)
    names = ["align", "critique", "hpsv3", "promptecho", "vqa", "yes-no"]
    result = bench_full_size(names, size=56, repeats=1)
    assert set(result) == set(names)
    assert all(row["pictures_per_second"] > 0 for row in result.values()), result


@pytest.mark.slow
def test_every_network_of_full_size_runs() -> None:
    """But the one of 7 billion parameters, which few machines hold."""
    names = sorted({key.split()[0] for key in FULL_SIZE} - {"hpsv3", "ocr"})
    result = bench_full_size(names, repeats=1, limit=600)
    for name, row in result.items():
        assert row["pictures_per_second"] > 0 or "GiB" in row["reason"], (name, row)
