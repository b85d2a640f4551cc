"""Selection in TRL's GRPO trainer, on a tiny model: layout, feedback, resuming, temperatures."""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from t2x.errors import T2XError
from t2x.selection import METHODS, GroupResult, SelectionConfig
from t2x.testing import WORDS, tiny_causal_lm

pytest.importorskip("trl")

ROWS, GROUP = 12, 2


class Killed(BaseException):
    """Stands for a signal."""


class Bandit:
    """A reward that depends on the prompt and the place in the group alone, so that a run's choices
    can be compared; tells the selection, and takes note of the prompts that it is shown."""

    __name__ = "bandit"

    def __init__(self, selection: Any) -> None:
        self.selection = selection
        self.seen: list[list[int]] = []
        self.texts: list[list[str]] = []

    def __call__(self, completions: list[str], prompt_index: list[int], **_: Any) -> list[float]:
        rewards = [math.sin(5 * p) + (k % GROUP) * math.cos(p) for k, p in enumerate(prompt_index)]
        self.selection.record(prompt_index, rewards, [0.2] * len(rewards))
        self.seen.append(list(prompt_index))
        self.texts.append(list(completions))
        return rewards


def trained(
    out: Path,
    config: SelectionConfig,
    *,
    resume: bool = False,
    callbacks: Any = None,
    lora: bool = False,
    before: Any = None,
    **arguments: Any,
) -> tuple[Any, Bandit]:
    """Run a tiny training: four groups of two a step, in two batches."""
    from datasets import Dataset
    from trl import GRPOConfig

    from t2x.selection.trl import Selection, SelectiveGRPOTrainer

    model, tokenizer = tiny_causal_lm()
    model.save_pretrained(out / "start")
    rows = [{"prompt": " ".join(WORDS[i : i + 3])} for i in range(ROWS)]
    settings = {
        "output_dir": str(out),
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "disable_tqdm": True,
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "num_generations": GROUP,
        "max_completion_length": 4,
        "max_steps": 3,
        "save_steps": 2,
        "logging_steps": 100,
        "learning_rate": 1e-3,
    } | arguments
    peft = None
    if lora:
        from peft import LoraConfig

        peft = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    selection = Selection(config, seed=1)
    reward = Bandit(selection)
    trainer = SelectiveGRPOTrainer(
        model,
        reward,
        args=GRPOConfig(**settings),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=callbacks,
        peft_config=peft,
        selection=selection,
    )
    if before is not None:
        before(selection)
    trainer.train(resume_from_checkpoint=resume)
    return selection, reward


@pytest.mark.parametrize("method", METHODS)
def test_a_step_holds_whole_groups_of_different_prompts_and_is_learnt_from(
    method: str, tmp_path: Path
) -> None:
    selection, reward = trained(tmp_path, SelectionConfig(method))  # type: ignore[arg-type]
    assert len(reward.seen) == 3
    for shown in reward.seen:
        assert len(set(shown)) == 4
        assert shown == [p for p in shown[::GROUP] for _ in range(GROUP)]
    assert selection.sampler.drawn == [] and selection.sampler.first == 3
    assert not selection.sampler.pending
    if method in ("mopps", "p1", "hive"):
        key = {"mopps": "alpha", "p1": "variance", "hive": "rate"}[method]
        prior = 1.0 if method == "mopps" else None
        learnt = selection.sampler.method.state_dict()[key]
        told = {p for shown in reward.seen for p in shown}
        seen_rate = {p for p in told if learnt[p] != prior}
        assert all(learnt[p] == prior for p in range(ROWS) if p not in told)
        assert seen_rate and (method == "mopps" or seen_rate == told)
    if method == "pcl":
        assert selection.sampler.method.gram.abs().sum() > 0


def test_generations_that_are_used_for_several_steps_are_drawn_once(tmp_path: Path) -> None:
    """Two optimiser steps of each generation: as many draws as generations, and the second sees
    what the first gave."""
    _, reward = trained(
        tmp_path,
        SelectionConfig("mopps"),
        steps_per_generation=4,
        gradient_accumulation_steps=2,
        num_iterations=1,
        max_steps=2,
    )
    assert [len(shown) for shown in reward.seen] == [16]
    assert len(set(reward.seen[0])) == 8


@pytest.mark.parametrize("method", ["uniform", "mopps", "p1"])
def test_a_killed_run_goes_on_with_the_draws_of_an_unbroken_one(
    method: str, tmp_path: Path
) -> None:
    from transformers import TrainerCallback

    class Kill(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 5:
                raise Killed

    config = SelectionConfig(method)  # type: ignore[arg-type]
    whole, expected = trained(tmp_path / "whole", config, max_steps=8)
    with pytest.raises(Killed):
        trained(tmp_path / "parts", config, max_steps=8, callbacks=[Kill()])
    state = json.loads((tmp_path / "parts/checkpoint-4/selection.json").read_text())
    assert state["first"] == 3 and len(state["drawn"]) == 2  # of the second epoch, one ahead
    resumed, rest = trained(tmp_path / "parts", config, max_steps=8, resume=True)
    assert rest.seen == expected.seen[4:]
    assert rest.texts == expected.texts[4:]  # the same words too
    assert resumed.sampler.state_dict() == whole.sampler.state_dict()


def test_a_checkpoint_without_a_selection_starts_afresh_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained(tmp_path, SelectionConfig("mopps"), max_steps=2)
    (tmp_path / "checkpoint-2/selection.json").unlink()
    trained(tmp_path, SelectionConfig("mopps"), max_steps=3, resume=True)
    assert "prompt selection starts afresh" in caplog.text


@pytest.mark.parametrize("lora", [False, True])
def test_erpo_samples_spent_prompts_hotter_and_no_others(lora: bool, tmp_path: Path) -> None:
    """At next to no temperature both members of a group are the same text; a prompt that was spent
    before is lifted so far that they differ."""

    def spend(selection: Any) -> None:
        for _ in range(3):
            selection.sampler.observe([GroupResult(p, (1.0, 1.0), 0.0) for p in range(0, ROWS, 2)])

    config = SelectionConfig("erpo", temperature_step=20.0, temperature_ceiling=100.0)
    _, reward = trained(
        tmp_path, config, lora=lora, before=spend, temperature=1e-4, max_steps=1, top_k=0
    )
    shown, texts = reward.seen[0], reward.texts[0]
    groups = zip(shown[::GROUP], texts[::GROUP], texts[1::GROUP], strict=True)
    for prompt, first, second in groups:
        assert (first != second) == (prompt % 2 == 0), (prompt, first, second)


def test_records_of_two_processes_make_the_groups_of_one() -> None:
    from t2x.selection.trl import _groups

    rewards = [(0, p, 0.1 * p + 0.01 * k, 0.5, 0.0) for p in (7, 3) for k in range(4)]
    again = [(1, 7, 1.0, 0.5, 0.0)] * 4
    one = _groups([*rewards, *again], 4)
    two = _groups([*rewards[4:], *again[:2], *rewards[:4], *again[2:]], 4)
    assert one == two and [result.prompt for result in one] == [3, 7, 7]
    with pytest.raises(T2XError, match="the group of prompt 7 has 3 rewrites in place of 4"):
        _groups(rewards[1:], 4)


class Comparison:
    """Knows the noise of one seed."""

    def seed_deviation(self, seeds: int) -> float:
        return 0.2 / seeds**0.5


class Reward:
    """The part of ``RolloutReward`` that selection listens to."""

    def __init__(self) -> None:
        self.listeners: list[Any] = []
        self.scorer = SimpleNamespace(comparison=Comparison())


def test_outcomes_count_as_they_are_trained_with() -> None:
    from t2x.rollouts import Outcome
    from t2x.selection.trl import Selection
    from t2x.types import Rewrite

    def outcome(kind: Any, reward: float) -> Outcome:
        rewrite = Rewrite("a", "b")
        return Outcome(rewrite, kind, 0, (1, 2, 3, 4), reward=reward, original_reward=0.5)

    selection, reward = Selection(), Reward()
    selection.group = 4
    selection.listen_to(reward)  # type: ignore[arg-type]
    given = [("rewrite", 0.9), ("broken", -1.0), ("truncated", 0.9), ("rewrite", math.nan)]
    outcomes = [outcome(*pair) for pair in given]
    [listener] = pickle.loads(pickle.dumps(reward)).listeners
    [own] = reward.listeners
    own(outcomes, {"prompt_index": [3] * 4})
    own(outcomes, {})  # an evaluation
    listener(outcomes, {"prompt_index": [5] * 4})  # a copy keeps books of its own
    copy = pickle.loads(pickle.dumps(selection))
    [result] = copy.learn()
    assert result.prompt == 3 and result.rewards[:2] == (0.9, -1.0)
    assert result.noise == pytest.approx(0.1) and result.baseline == 0.5
    assert all(math.isnan(reward) for reward in result.rewards[2:])
    assert copy.learn() == []


def trainer_like(**changes: Any) -> Any:
    arguments = {
        "accelerator_config": SimpleNamespace(dispatch_batches=None),
        "use_vllm": False,
        "use_transformers_continuous_batching": False,
    }
    pieces = changes.pop("is_fsdp_enabled", False)
    return SimpleNamespace(args=SimpleNamespace(**arguments | changes), is_fsdp_enabled=pieces)


@pytest.mark.parametrize(
    ("changes", "method", "says"),
    [
        (
            {"accelerator_config": SimpleNamespace(dispatch_batches=True)},
            "mopps",
            "the same choice in all",
        ),
        ({"is_fsdp_enabled": True}, "hive", "take mopps or p1, which need no model"),
        ({"use_vllm": True}, "erpo", "works with transformers' generate alone"),
    ],
)
def test_trainers_that_can_not_go_with_it(changes: Any, method: str, says: str) -> None:
    from t2x.selection.trl import Selection

    config = SelectionConfig(method)  # type: ignore[arg-type]
    with pytest.raises(T2XError, match=says):
        Selection(config).bind(trainer_like(**changes))


def test_a_stream_can_not_be_chosen_from() -> None:
    from t2x.selection.trl import numbered

    with pytest.raises(T2XError, match="not from a stream"):
        numbered(iter([{"prompt": "a"}]))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mopps", "pcl", "hive"])
def test_two_processes_choose_what_one_does(method: str, tmp_path: Path) -> None:
    """Groups of two on two processes, the same four prompts a step."""
    script = tmp_path / "run.py"
    script.write_text(
        "import json, os, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path\n"
        "from test_trl import trained, SelectionConfig\n"
        "out, size, method = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]\n"
        "selection, reward = trained(out, SelectionConfig(method),\n"
        "    per_device_train_batch_size=size, max_steps=4, learning_rate=0.0)\n"
        "rank = os.environ.get('RANK', '0')\n"
        "state = [reward.seen, selection.sampler.state_dict()]\n"
        "(out / f'rank{rank}.json').write_text(json.dumps(state))\n"
    )
    one, two = tmp_path / "one", tmp_path / "two"
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2"]
    free = "--master_port=29617"
    for command in (
        [sys.executable, str(script), str(one), "4", method],
        [*launch, free, str(script), str(two), "2", method],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, done.stderr[-3000:]
    [seen, state] = json.loads((one / "rank0.json").read_text())
    parts = [json.loads((two / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    assert parts[0][1] == parts[1][1] == state
    for whole, left, right in zip(seen, parts[0][0], parts[1][0], strict=True):
        assert sorted(whole) == sorted([*left, *right])
