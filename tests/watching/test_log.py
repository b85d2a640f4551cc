"""Lines by step, names, statistics of rollouts, trackers and the bar."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from t2x.errors import MissingDependencyError, UnknownNameError
from t2x.functional.text import distinct_n
from t2x.types import Rewrite
from t2x.watching import bar
from t2x.watching.bar import training_bar
from t2x.watching.names import renamed
from t2x.watching.reporters import check_reporters
from t2x.watching.rollout_stats import RolloutStats, add_sums
from t2x.watching.steps import Clock, append_step, cut_steps, read_steps


def test_lines_are_cut_after_a_step_and_where_a_kill_broke_one(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    assert read_steps(path) == []
    cut_steps(path, 3)
    assert not path.exists()
    for step in (1, 2, 2, 3):
        append_step(path, {"step": step, "loss": math.nan if step == 3 else 0.5})
    with path.open("a") as file:
        file.write('{"step": 4, "lo')
    assert [line["step"] for line in read_steps(path)] == [1, 2, 2, 3]
    assert read_steps(path)[-1]["loss"] is None
    cut_steps(path, 2)
    assert path.read_text() == '{"step": 1, "loss": 0.5}\n' + 2 * '{"step": 2, "loss": 0.5}\n'
    append_step(path, {"step": 3})
    assert [line["step"] for line in read_steps(path)] == [1, 2, 2, 3]


def test_a_text_of_a_line_may_hold_any_sign(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    lines = [{"step": step, "text": f"a{sign}b"} for step, sign in enumerate("\u2028\x85\r", 1)]
    for line in lines:
        append_step(path, line)
    assert read_steps(path) == lines
    cut_steps(path, 2)
    assert read_steps(path) == lines[:2]


def test_a_paused_clock_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    clock = Clock(5.0)
    now = 2.0
    with clock.paused() as spent:
        now = 100.0
    now += 1.0
    assert (spent, clock.seconds()) == (7.0, 8.0)


def test_trls_names_become_ours() -> None:
    logs = {
        "loss": 0.1,
        "reward": 0.4,
        "frac_reward_zero_std": 0.25,
        "completions/mean_length": 20.0,
        "completions/clipped_ratio": 0.1,
        "completions/mean_terminated_length": 19.0,
        "kl": None,
        "reward/vqa": 0.7,
        "profiling": "text",
    }
    found = renamed(logs)
    assert math.isnan(found.pop("kl"))
    assert found == {
        "loss": 0.1,
        "reward": 0.4,
        "zero_variance": 0.25,
        "length": 20.0,
        "truncated": 0.1,
        "reward/vqa": 0.7,
    }
    assert renamed({"eval_loss": 2.0, "eval_rewards/accuracies": 0.6, "eval_runtime": 3.0}) == {
        "heldout/loss": 2.0,
        "heldout/pair_accuracy": 0.6,
    }
    # A reward function that gives advantages: their mean is no reward, whatever comes last.
    both = {"rollout/reward": 0.7, "reward": 0.0, "share/failed": 0.1, "rewards/rollout/mean": 0.0}
    assert renamed(both) == {"reward": 0.7, "failed": 0.1}
    assert renamed({"rewards/margins": 0.2}) == {"log_ratio/margin": 0.2}
    assert renamed({"train_runtime": 3.0, "train_loss": 0.1}) == {}


@pytest.mark.extra("train")
def test_the_table_holds_names_that_trl_logs() -> None:
    """A name that TRL renames would silently be missing from the log."""
    from importlib.util import find_spec

    spec = find_spec("trl")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent / "trainer"
    trainers = ("grpo", "dpo", "sft", "reward")
    code = "".join((folder / f"{name}_trainer.py").read_text() for name in trainers)
    from t2x.watching import names

    step_time = {"step_time"}  # logged by the name of an attribute in some versions
    missing = [name for name in names._NAMES if f'"{name}"' not in code]
    assert set(missing) <= step_time


@dataclass(frozen=True)
class Judged:
    rewrite: Rewrite
    kind: str
    reward: float
    original_reward: float = 0.5


def judged(prompt: str, text: str, reward: float, kind: str = "rewrite") -> Judged:
    return Judged(Rewrite(prompt, text), kind, reward)


def means(stats: RolloutStats) -> dict[str, float]:
    sums, _ = stats.take()
    return {key: total / count for key, (total, count) in sums.items() if count}


def test_variety_is_of_what_was_written() -> None:
    """What rollouts log themselves is not said a second time."""
    stats = RolloutStats()
    stats.add(
        [
            judged("p", "red cat", 1.0),
            judged("p", "p", 0.0, "failed"),
            judged("p", "p", 0.9, "truncated"),
            judged("p", "red cat", math.nan),
        ]
    )
    assert means(stats) == {"distinct_1": 0.5, "distinct_2": 0.5, "words": 2.0}
    assert means(stats) == {}


def test_sums_of_processes_are_added() -> None:
    assert add_sums([{"a": (1.0, 2)}, {"a": (3.0, 1), "b": (1.0, 1)}, {}]) == {
        "a": (4.0, 3),
        "b": (1.0, 1),
    }


def test_the_ends_of_a_step_are_kept() -> None:
    stats = RolloutStats()
    for number, reward in enumerate([0.5, 0.1, 0.9, 0.3, 0.7, math.nan]):
        stats.add([judged(f"p{number}", "x", reward), judged(f"p{number}", "y", reward - 0.1)])
    _, groups = stats.take()
    assert [g["prompt"] for g in groups] == ["p2", "p4", "p3", "p1"]
    assert groups[0]["gain"] == pytest.approx(0.85 - 0.5)
    assert [m["text"] for m in groups[0]["members"]] == ["x", "y"]
    json.dumps(groups)


def test_distinct_n_closed_form() -> None:
    assert distinct_n(["a b a b"], 1) == 0.5
    assert distinct_n(["a b a b"], 2) == pytest.approx(2 / 3)  # ab, ba, ab
    assert distinct_n(["A cat"] * 4, 2) == 0.25
    assert distinct_n(["a b", "c d"], 2) == 1.0
    assert math.isnan(distinct_n(["word", ""], 2))


def test_trackers_are_looked_for_before_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_reporters("none") == check_reporters(None) == []
    assert check_reporters(["all"]) == ["all"]
    with pytest.raises(UnknownNameError, match="did you mean 'tensorboard'"):
        check_reporters("tensorbord")
    monkeypatch.setattr("t2x.watching.reporters.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="pip install trackio"):
        check_reporters(["trackio"])
    found = {"tensorboardX"}
    monkeypatch.setattr("t2x.watching.reporters.find_spec", lambda name: name in found or None)
    assert check_reporters(["tensorboard"]) == ["tensorboard"]


def test_every_tracker_of_the_table_is_one_of_transformers() -> None:
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    from t2x.watching.reporters import _MODULES

    assert set(_MODULES) == set(INTEGRATION_TO_CALLBACK)


def test_without_a_terminal_a_line_tells_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """50 of 100 steps were there; 10 more took 40 seconds, so that 40 take 160."""
    now = 0.0
    monkeypatch.setattr(bar.time, "monotonic", lambda: now)
    with training_bar("run", 100, done=50) as advance:
        now = 10.0
        advance(55, "too early")
        now = 40.0
        advance(60, "reward 0.5 [x]")
        now = 50.0
        advance(61, "too early")
    assert capsys.readouterr().err == "run: 60% reward 0.5 [x], 0:02:40 left\n"
