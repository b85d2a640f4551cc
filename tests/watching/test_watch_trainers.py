"""Watching real trainers for a few steps of a tiny policy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from t2x.rewriters.language_model import LanguageModelRewriter
from t2x.rewriters.templates import SMALL
from t2x.testing import FakeGenerator, FakeReward, tiny_causal_lm
from t2x.training.policy import Policy
from t2x.types import Rewrite
from t2x.watching.alarms import AlarmConfig
from t2x.watching.config import HeldOutSection, SampleSection, WatchConfig
from t2x.watching.held_out import HeldOut
from t2x.watching.steps import read_steps
from t2x.watching.watch import Watch

PROMPTS = ["a cat on the left", "two dog", "red bus", "a blue pizza"]
CONFIG = WatchConfig(
    held_out=HeldOutSection({"fake-reward": 1.0}, every=2),
    samples=SampleSection(prompts=2, every=2),
    report=100,
)
KEYS = (
    "reward", "reward/words", "gain", "kl", "entropy", "length", "loss", "zero_variance",
    "truncated", "failed", "missing", "distinct_2", "grad_norm",
)  # fmt: skip
HELD_OUT = ("reward", "gain", "gain_error", "similarity", "violations", "failed", "missing")


@dataclass(frozen=True)
class Judged:
    rewrite: Rewrite
    kind: str
    reward: float
    original_reward: float = 0.25


def made_policy() -> Policy:
    model, tokenizer = tiny_causal_lm()
    return Policy(model, tokenizer, replace(SMALL, max_new_tokens=8))


def held_out() -> HeldOut:
    return HeldOut(PROMPTS[:3], FakeGenerator(), [FakeReward()], pictures=1)


def grpo(folder: Path, policy: Policy, reward: Any, *, steps: int = 4, **options: Any) -> Any:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    folder.mkdir(exist_ok=True)
    start = folder / "start"
    policy.model.save_pretrained(start)
    policy.tokenizer.save_pretrained(start)
    arguments = GRPOConfig(
        output_dir=str(folder),
        max_steps=steps,
        logging_steps=1,
        num_generations=2,
        per_device_train_batch_size=4,
        max_completion_length=6,
        learning_rate=1e-3,
        beta=0.1,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        disable_tqdm=True,
        save_strategy="steps",
        save_steps=2,
        **options,
    )
    policy.model.config._name_or_path = str(start)
    rows = Dataset.from_dict({"prompt": [[{"role": "user", "content": p}] for p in PROMPTS]})
    return GRPOTrainer(
        model=policy.model,
        reward_funcs=[reward],
        args=arguments,
        train_dataset=rows,
        processing_class=policy.tokenizer,
    )


class Counting:
    """Reward that is the number of words, told to the watch as a recipe's rewards are; TRL gets
    other numbers."""

    __name__ = "count"

    def __init__(self, watch: Watch | None) -> None:
        self.watch = watch

    def __call__(self, prompts: Any, completions: Any, *, log_metric: Any, **_: Any) -> list[float]:
        originals = [p[-1]["content"] for p in prompts]
        texts = [c[0]["content"] for c in completions]
        values = [float(len(t.split())) for t in texts]
        rows = zip(originals, texts, values, strict=True)
        judged = [Judged(Rewrite(p, t), "rewrite", v) for p, t, v in rows]
        mean = sum(values) / len(values)
        said = {"rollout/reward": mean, "rollout/gain": mean - 0.25, "reward/words": mean}
        for name, value in {**said, "share/failed": 0.0, "share/missing": 0.0}.items():
            log_metric(name, value)
        if self.watch is not None:
            self.watch.rollouts.add(judged)
        return [value - 100 for value in values]


def weights(model: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.extra("train")
def test_watching_changes_nothing_and_logs_all(tmp_path: Path, capsys: Any) -> None:
    from transformers import TrainerCallback

    plain = made_policy()
    grpo(tmp_path / "plain", plain, Counting(None)).train()
    capsys.readouterr()
    policy = made_policy()
    watch = Watch(tmp_path / "run", CONFIG, policy=policy, held_out=held_out())
    trainer = grpo(tmp_path / "run", policy, Counting(watch))
    tracked: list[dict[str, float]] = []

    class Tracker(TrainerCallback):  # as trackio's or wandb's
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            tracked.append(dict(logs))

    trainer.add_callback(Tracker())
    watch.train(trainer)
    assert "distinct_1" in tracked[0] and "frac_reward_zero_std" in tracked[0]
    assert math.isfinite(tracked[1]["heldout/reward"])
    assert torch.equal(weights(plain.model), weights(policy.model))
    assert capsys.readouterr().out == ""  # neither TRL's table nor transformers' dicts

    lines = read_steps(tmp_path / "run" / "log.jsonl")
    assert [line["step"] for line in lines] == [0, 1, 2, 3, 4]
    assert set(KEYS) <= set(lines[1])
    assert lines[1]["gain"] == pytest.approx(lines[1]["reward"] - 0.25)
    assert lines[1]["reward"] >= 0
    assert tracked[0]["reward"] == lines[1]["reward"]  # not TRL's mean of what it was given
    assert all({f"heldout/{k}" for k in HELD_OUT} <= set(lines[i]) for i in (0, 2, 4))
    assert "heldout/reward" not in lines[1]
    assert lines[0]["seconds"] <= lines[1]["seconds"] <= lines[4]["seconds"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count('<svg class="plot"') > 10 and page.count("data:image/png") == 8
    assert (tmp_path / "run" / "samples" / "step-000004.png").is_file()
    assert watch.summary()["heldout/reward"] == lines[4]["heldout/reward"]


@pytest.mark.extra("train")
def test_a_resumed_run_writes_no_step_twice(tmp_path: Path) -> None:
    def run(resume: str | None = None) -> list[dict[str, Any]]:
        policy = made_policy()
        config = replace(CONFIG, report=0)
        watch = Watch(tmp_path, config, policy=policy, held_out=held_out())
        watch.train(grpo(tmp_path, policy, Counting(watch)), resume_from=resume)
        return read_steps(tmp_path / "log.jsonl")

    whole = run()
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"step": 5, "rew')  # killed while it wrote
    resumed = run(str(tmp_path / "checkpoint-2"))
    assert [line["step"] for line in resumed] == [0, 1, 2, 3, 4]
    assert resumed[:3] == whole[:3]
    assert [set(line) for line in resumed] == [set(line) for line in whole]
    assert resumed[3]["seconds"] >= whole[2]["seconds"]
    assert [line["step"] for line in read_steps(tmp_path / "samples.jsonl")] == [0, 2, 4]


@pytest.mark.extra("train")
def test_a_stop_ends_the_run_and_keeps_a_checkpoint(tmp_path: Path) -> None:
    """Every completion gets the same reward: no group has variance."""
    policy = made_policy()
    limits = AlarmConfig(recent=2, truncated=1.0)
    watch = Watch(tmp_path, WatchConfig(alarms=limits, report=0), policy=policy)
    trainer = grpo(tmp_path, policy, lambda completions, **_: [1.0] * len(completions), steps=8)
    watch.train(trainer)
    assert trainer.state.global_step == 2
    assert watch.stopped is not None and watch.stopped.name == "dead_reward"
    assert (tmp_path / "checkpoint-2").is_dir()
    [alarm] = read_steps(tmp_path / "alarms.jsonl")
    assert (alarm["step"], alarm["stop"]) == (2, True)
    assert watch.summary()["stopped_early"] == 1.0


@pytest.mark.extra("train")
def test_a_run_that_over_optimises_ends_early(tmp_path: Path) -> None:
    """The training reward is made to rise and the held-out reward to fall: the window of four
    measurements is full at step 3."""

    class Falling(HeldOut):
        def measure(self, rewrites: Any, template: Any) -> Any:
            found = super().measure(rewrites, template)
            self.turn = getattr(self, "turn", 0) + 1
            return replace(found, metrics={"reward": -float(self.turn)})

    def rising(completions: Any, trainer_state: Any, **_: Any) -> list[float]:
        return [trainer_state.global_step + 0.1 * (i % 2) for i in range(len(completions))]

    limits = AlarmConfig(window=4, patience=1, min_steps=0)
    section = HeldOutSection({"fake-reward": 1.0}, every=1)
    policy = made_policy()
    measured = Falling(PROMPTS[:2], FakeGenerator(), [FakeReward()])
    config = WatchConfig(held_out=section, alarms=limits, report=0)
    watch = Watch(tmp_path, config, policy=policy, held_out=measured)
    trainer = grpo(tmp_path, policy, rising, steps=8)
    watch.train(trainer)
    assert watch.stopped is not None and watch.stopped.name == "over_optimised"
    assert trainer.state.global_step == 3
    assert (tmp_path / "checkpoint-3").is_dir()


@pytest.mark.extra("train")
def test_the_best_checkpoint_is_spared_and_taken(tmp_path: Path) -> None:
    """The held-out reward is made to be highest at step 2."""
    policy = made_policy()
    config = replace(CONFIG, samples=None, report=0, keep_best=True)

    class Peaked(HeldOut):
        def measure(self, rewrites: Any, template: Any) -> Any:
            found = super().measure(rewrites, template)
            self.turn = getattr(self, "turn", 0) + 1
            return replace(found, metrics=found.metrics | {"reward": -abs(self.turn - 2.0)})

    measured = Peaked(PROMPTS[:2], FakeGenerator(), [FakeReward()])
    watch = Watch(tmp_path, config, policy=policy, held_out=measured)
    trainer = grpo(tmp_path, policy, Counting(watch), steps=6, save_total_limit=1)
    watch.train(trainer)
    assert trainer.state.best_model_checkpoint == str(tmp_path / "checkpoint-2")
    assert {p.name for p in tmp_path.glob("checkpoint-*")} == {"checkpoint-2", "checkpoint-6"}
    assert watch.summary()["heldout/best_step"] == 2
    best = type(policy.model).from_pretrained(tmp_path / "checkpoint-2")
    last = type(policy.model).from_pretrained(tmp_path / "checkpoint-6")
    assert torch.equal(weights(policy.model), weights(best))
    assert not torch.equal(weights(policy.model), weights(last))


@pytest.mark.extra("train")
def test_sft_is_watched_by_its_loss(tmp_path: Path) -> None:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    policy = made_policy()
    rows = Dataset.from_dict({
        "prompt": [[{"role": "user", "content": p}] for p in PROMPTS],
        "completion": [[{"role": "assistant", "content": f"photo of {p}"}] for p in PROMPTS],
    })  # fmt: skip
    arguments = SFTConfig(
        output_dir=str(tmp_path), max_steps=4, logging_steps=1, eval_strategy="steps", eval_steps=2,
        per_device_train_batch_size=2, use_cpu=True, bf16=False, gradient_checkpointing=False,
        report_to="none", disable_tqdm=True, save_strategy="no",
    )  # fmt: skip
    config = replace(CONFIG, samples=None, report=0)
    watch = Watch(tmp_path, config, policy=policy, held_out=held_out())
    watch.train(
        SFTTrainer(
            model=policy.model, args=arguments, train_dataset=rows, eval_dataset=rows,
            processing_class=policy.tokenizer,
        )
    )  # fmt: skip
    lines = read_steps(tmp_path / "log.jsonl")
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3, 4]
    assert [line["step"] for line in lines if "heldout/loss" in line] == [2, 4]
    assert [line["step"] for line in lines if "heldout/reward" in line] == [0, 2, 4]
    assert "token_accuracy" in lines[1]


def test_held_out_texts_are_those_of_the_rewriter() -> None:
    policy = made_policy()
    own = LanguageModelRewriter(policy.model, policy.tokenizer, template=policy.template)
    found = held_out().write(policy.model, policy.tokenizer, policy.template)
    assert [r.raw for r in found] == [r[0].raw for r in own.rewrite(PROMPTS[:3])]
