"""A real language model, SmolLM2-135M-Instruct, with adapters through SFT and GRPO on a CPU: as
rewriters of billions of parameters are trained.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import t2x
from t2x.config import find_config, load_config
from t2x.registry import load_recipe
from t2x.training.config import PolicyConfig
from t2x.training.export import export_model
from t2x.training.policy import load_policy, save_policy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.extra("train"),
    pytest.mark.extra("smollm2"),
    pytest.mark.timeout(7200),
]
PROMPTS = ["two kittens", "a crimson dog to the left of a bus"]


def train(recipe: str, *overrides: str) -> dict[str, float]:
    schema, main = load_recipe(recipe)
    config = load_config(schema, find_config(f"world/smollm2_{recipe}"), overrides)
    found: dict[str, float] = main(config)
    return found


def texts(source: Any) -> list[str]:
    return [group[0].text for group in t2x.load_rewriter(source).rewrite(PROMPTS)]


def test_gguf_weights_are_trained_and_saved(tmp_path: Path) -> None:
    """Unpacked for good: transformers would neither train nor save what it calls quantised."""
    policy = load_policy(PolicyConfig(model="smollm2"))
    assert not getattr(policy.model, "is_quantized", False)
    save_policy(policy, tmp_path / "model")
    assert texts(tmp_path / "model") == texts("smollm2")


def test_sft_then_20_steps_of_grpo(tmp_path: Path) -> None:
    small = "trainer.per_device_train_batch_size=4"
    sft = train("sft", f"run.out={tmp_path / 'sft'}", "trainer.max_steps=40", small,
                "data.train=world:sft?n=400")  # fmt: skip
    assert sft["steps"] == 40 and sft["loss"] < 1.5  # 3 and more at first
    model = f"policy.model={tmp_path / 'sft' / 'model'}"
    grpo = train("grpo", f"run.out={tmp_path / 'grpo'}", model, small)
    assert grpo["steps"] == 20 and math.isfinite(grpo["loss"])
    assert all(texts(tmp_path / "grpo" / "model"))
    export_model(tmp_path / "grpo", tmp_path / "small", adapter=True)
    assert texts(tmp_path / "small") == texts(tmp_path / "grpo" / "model")
