"""The benchmark measures what it says: passes of the tower are counted, not timed, here."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.registry import load_reward
from t2x.scoring import bench
from t2x.scoring.bench import AT_HAND, FULL_SIZE, bench_embedded, bench_shared, random_tower
from t2x.testing import tiny_open_clip


class Counted:
    """A tower that counts the pictures that go through it."""

    def __init__(self) -> None:
        self.model, self.tokenizer = tiny_open_clip()
        self.passes: list[int] = []
        encode = self.model.encode_image
        self.model.encode_image = lambda p: (self.passes.append(len(p)), encode(p))[1]
        self.model.visual.output_dim = 16


def test_together_is_one_pass_and_alone_is_one_each() -> None:
    tower = Counted()
    result = bench_shared((tower.model, tower.tokenizer), pictures=2, size=64, repeats=3)
    rounds, arms = 4, 1 + len(FULL_SIZE)
    assert tower.passes == [2] * rounds * arms
    assert result["single"] == "clip" and list(result["alone"]) == list(FULL_SIZE)
    for speed in (result["shared"], *result["alone"].values()):
        assert speed["pictures_per_second"] == pytest.approx(2 / speed["seconds"])


def test_the_ratios_are_of_the_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds of 3, 2, 1, 1 seconds together and alone; the first round does not count."""
    three = dict(list(FULL_SIZE.items())[:3])
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
    assert len(seen) == len(set(seen)) == 2 * 3 * (1 + len(FULL_SIZE))


def test_embedded_rewards_have_a_speed_or_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["clip", "motion", "t2x.testing:nothing"]
    result = bench_embedded(names, pictures=2, repeats=1)
    assert list(result) == names
    assert result["clip"]["pictures_per_second"] > 0
    assert "t2x.testing" in result["t2x.testing:nothing"]["error"]
    monkeypatch.setattr(bench, "_seconds", lambda *a, **k: 2.0)
    motion = bench_embedded(["motion"], pictures=3, repeats=2)["motion"]
    assert motion["pictures_per_second"] == 3 * 8 / 2


def test_an_unknown_architecture_is_said() -> None:
    with pytest.raises(T2XError, match="ViT-L-14-quickgelu"):
        random_tower("ViT-nothing")


def test_by_default_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every reward that it times by itself loads without a hub, and no other is tried."""
    asked: list[str] = []

    def load(name: str) -> Any:
        asked.append(name)
        return load_reward(name)

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(bench, "load_reward", load)
    result = bench_embedded(pictures=2, repeats=1)
    assert asked == AT_HAND and {"clip", "vqa", "quality", "motion"} <= set(asked)
    assert not [name for name, row in result.items() if "can't" in row.get("error", "")]
