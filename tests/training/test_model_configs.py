"""Configurations for real models, which are never run here: whether a small one in the model's
place can be trained by them, and whether the generator's class takes its options."""

from __future__ import annotations

import inspect
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from t2x.config import load_config
from t2x.generators.calls import checked_sampling, default_arguments
from t2x.generators.diffusion import DiffusionGenerator
from t2x.generators.loading import check_options
from t2x.registry import load_recipe
from t2x.training.arguments import trainer_arguments
from t2x.training.data import templated
from t2x.training.grpo import grpo_arguments
from t2x.training.plan import TRAINERS
from t2x.training.policy import load_policy

pytestmark = pytest.mark.extra("train")
TRAIN = Path(str(files("t2x.configs"))) / "train"
YAMLS = sorted([*TRAIN.glob("gpu*/*.yaml"), *TRAIN.glob("presets/*.yaml")])
RECIPES = {path: path.stem.partition("_")[0] for path in YAMLS if path.parent.name != "presets"}
PIPELINES = {
    "black-forest-labs/FLUX.1-dev": "FluxPipeline",
    "hunyuanvideo-community/HunyuanImage-2.1-Diffusers": "HunyuanImagePipeline",
    "stabilityai/sdxl-turbo": "StableDiffusionXLPipeline",
    "stabilityai/stable-diffusion-3.5-medium": "StableDiffusion3Pipeline",
    "Tongyi-MAI/Z-Image-Turbo": "ZImagePipeline",
}
ANSWER = "<think>two of them</think><answer>two cats, side by side</answer>"


def configuration(path: Path) -> tuple[str, Any]:
    """The recipe's name and its configuration; those of papers are of GRPO."""
    recipe = RECIPES.get(path, "grpo")
    return recipe, load_config(load_recipe(recipe)[0], path)


@pytest.mark.parametrize("path", YAMLS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_a_small_model_in_its_place_can_be_trained(path: Path) -> None:
    """``reprompt`` began the answer for the model, which no trainer does."""
    import trl
    from datasets import Dataset

    recipe, config = configuration(path)
    policy = load_policy(replace(config.policy, model="emoji-rewriter", dtype="float32"))
    prompts = ["two cats", "a dog on a red bus"]
    answers = ["completion"] if recipe == "sft" else ["chosen", "rejected"]
    columns = {name: [ANSWER, ANSWER] for name in answers if recipe != "grpo"}
    rows = templated(Dataset.from_dict({"original_prompt": prompts, **columns}), policy)
    assert len(rows) == 2
    for row in rows:
        ids = policy.tokenizer.apply_chat_template(
            row["prompt"],
            add_generation_prompt=True,
            return_dict=False,
            **row["chat_template_kwargs"],
        )
        assert ids == policy.encoder.encode(row["original_prompt"])
        asked = row["prompt"][0]["content"]
        assert "<think>" in asked and "<answer>" in asked
    if recipe == "grpo":
        grpo_arguments(config.run, policy.template, config.trainer)
    else:
        trainer_arguments(getattr(trl, TRAINERS[recipe]), config.run, config.trainer)


@pytest.mark.parametrize(
    "path", [p for p in YAMLS if RECIPES.get(p, "grpo") == "grpo"], ids=lambda p: p.stem
)
def test_the_generator_takes_its_options(path: Path) -> None:
    """A size among the options of loading was refused, after gigabytes had been loaded."""
    import diffusers

    reward = configuration(path)[1].reward
    kind = getattr(diffusers, PIPELINES[reward.generator])
    load = inspect.signature(DiffusionGenerator.from_pretrained)
    given = load.bind(reward.generator, **reward.generator_options).arguments
    check_options(given.get("pipeline_kwargs", {}), kind)
    named = {k: given[k] for k in ("num_inference_steps", "guidance_scale") if k in given}
    sampling = given.get("sampling", {}) | named
    checked_sampling(sampling, default_arguments(kind), pipeline=kind.__name__)
