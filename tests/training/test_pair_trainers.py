"""Weights of pairs in TRL's DPO trainer: TRL's losses at weight 1, the closed form elsewhere."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.functional.preference_losses import dpo_loss
from t2x.testing import tiny_causal_lm

pytestmark = pytest.mark.extra("train")

PROMPTS = ("a cat", "two dog", "a red bus", "pizza and cat", "small dog")
CHOSEN = ("a large cat", "the two dog", "photo of a red bus", "a pizza left cat", "a small dog")
REJECTED = ("cat cat", "dog", "bus", "pizza pizza pizza cat please", "large dog picture")


def rows(**columns: list[float]) -> Any:
    from datasets import Dataset

    def turn(role: str, text: str) -> list[dict[str, str]]:
        return [{"role": role, "content": text}]

    pairs = zip(PROMPTS, CHOSEN, REJECTED, strict=True)
    data = [
        {
            "prompt": turn("user", p),
            "chosen": turn("assistant", c),
            "rejected": turn("assistant", r),
        }
        for p, c, r in pairs
    ]
    data = data * 8
    return (
        Dataset.from_list(data)
        .add_column("number", list(range(len(data))))
        .map(
            lambda row: {
                name: values[row["number"] % len(values)] for name, values in columns.items()
            }
        )
    )


def settings(folder: Path, **given: Any) -> Any:
    from trl import DPOConfig

    plain = {
        "output_dir": str(folder), "per_device_train_batch_size": 4, "max_steps": 20,
        "learning_rate": 1e-2, "beta": 0.5, "use_cpu": True, "bf16": False, "logging_steps": 1,
        "gradient_checkpointing": False, "report_to": "none", "save_strategy": "no",
        "precompute_ref_log_probs": True, "disable_tqdm": True,
    }  # fmt: skip
    return DPOConfig(**plain | given)


def losses(trainer: Any) -> list[float]:
    trainer.train()
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]


def build(cls: Any, args: Any, data: Any) -> Any:
    model, tokenizer = tiny_causal_lm()
    return cls(model=model, args=args, train_dataset=data, processing_class=tokenizer)


@pytest.mark.parametrize("precomputed", [True, False])
def test_weights_of_one_equal_trl(tmp_path: Path, precomputed: bool) -> None:
    from trl import DPOTrainer

    from t2x.training.pair_trainers import WeightedDPOTrainer

    model, tokenizer = tiny_causal_lm()
    model.save_pretrained(tmp_path / "start")

    def run(cls: Any, data: Any) -> list[float]:
        model = type(tiny_causal_lm()[0]).from_pretrained(tmp_path / "start")
        args = settings(tmp_path / "out", precompute_ref_log_probs=precomputed)
        return losses(cls(model=model, args=args, train_dataset=data, processing_class=tokenizer))

    plain = run(DPOTrainer, rows())
    weighted = run(WeightedDPOTrainer, rows(weight=[1.0]))
    assert len(plain) == 20
    assert min(plain) < 0.5 < plain[0]  # it learns, so that more than the first step is compared
    assert plain == pytest.approx(weighted, abs=1e-6)


def test_a_weight_scales_its_own_pair_alone(tmp_path: Path) -> None:
    """Loss of a batch against the closed form, and a pair of weight 0 leaves no gradient."""
    from t2x.training.pair_trainers import WeightedDPOTrainer

    weights = [0.5, 1.0, 0.25, 0.0, 0.75]
    trainer = build(WeightedDPOTrainer, settings(tmp_path), rows(weight=weights))
    # A policy that has moved away from the reference, or all losses are log 2.
    with torch.no_grad():
        trainer.model.model.embed_tokens.weight.mul_(1.5)
    trainer.model.train()
    parts = []
    for i in range(4):
        trainer.model.zero_grad()
        batch = trainer.data_collator([trainer.train_dataset[i]])
        loss = trainer.compute_loss(trainer.model, batch)
        loss.backward()
        grad = trainer.model.model.norm.weight.grad
        assert bool(grad.abs().sum() > 0) == (weights[i] > 0)
        chosen, rejected = _ratios(trainer.model, batch)
        own = weights[i] * float(dpo_loss(chosen, rejected, beta=0.5))
        assert loss.item() == pytest.approx(own, abs=1e-5)
        parts.append(own)
    batch = trainer.data_collator([trainer.train_dataset[i] for i in range(4)])
    whole = trainer.compute_loss(trainer.model, batch).item()
    assert whole == pytest.approx(sum(parts) / 4, abs=1e-5)
    assert not math.isclose(parts[0] / weights[0], parts[1] / weights[1], abs_tol=1e-3)
    logged = trainer._metrics["train"]["weight"]
    assert logged[-1] == pytest.approx(sum(weights[:4]) / 4)


def _ratios(model: Any, batch: Any) -> tuple[Any, Any]:
    """Log ratios by the stock forward and log_softmax."""
    with torch.no_grad():
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        logps = logits[:, :-1].log_softmax(-1)
        token = logps.gather(-1, batch["input_ids"][:, 1:, None])[..., 0]
        sums = (token * batch["completion_mask"][:, 1:]).sum(1)
    chosen, rejected = sums.chunk(2)
    return chosen - batch["ref_chosen_logps"], rejected - batch["ref_rejected_logps"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"loss_type": "aot"}, "mixes the pairs"),
        ({"loss_type": ["sigmoid", "sft"]}, "mixes the pairs"),
        ({"use_liger_kernel": True}, "use_liger_kernel"),
    ],
)
def test_settings_that_lose_the_weights_are_refused(
    tmp_path: Path, given: dict[str, Any], reason: str
) -> None:
    from t2x.training.pair_trainers import WeightedDPOTrainer

    with pytest.raises(T2XError, match=reason):
        build(WeightedDPOTrainer, settings(tmp_path, **given), rows(weight=[1.0]))


@pytest.mark.parametrize("weight", [[math.nan], [None], None])
def test_a_pair_without_a_number_is_an_error(tmp_path: Path, weight: Any) -> None:
    from t2x.training.pair_trainers import WeightedDPOTrainer

    data = rows() if weight is None else rows(weight=weight)
    with pytest.raises(T2XError, match="weight"):
        build(WeightedDPOTrainer, settings(tmp_path), data)  # the reference is run over all pairs
