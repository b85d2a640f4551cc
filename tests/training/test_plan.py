"""What a run would need: sizes as published, sums as written down, and YAMLs whose headers are what
the command prints.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from t2x.cli import run
from t2x.config import load_config
from t2x.errors import T2XError
from t2x.registry import load_recipe
from t2x.training.architectures import drawer, language_model, lora_params, reward_size
from t2x.training.arguments import trainer_arguments
from t2x.training.config import LoraSection, PolicyConfig, RewardConfig, RunConfig
from t2x.training.plan import CARDS, TRAINERS, Hardware, Plan, make_plan

pytestmark = pytest.mark.extra("train")
CONFIGS = Path(str(files("t2x.configs")))
YAMLS = sorted((CONFIGS / "train").glob("gpu*/*.yaml"))


def recipe_of(path: Path) -> str:
    return path.stem.partition("_")[0]


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304),
        ("Qwen/Qwen2.5-3B-Instruct", 3_085_938_688),
        ("Qwen/Qwen3-4B", 4_022_468_096),
        ("smollm2", 134_515_008),
    ],
)
def test_language_models_are_as_large_as_published(name: str, published: int) -> None:
    found = language_model(name)
    assert found is not None and found.params == published


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("black-forest-labs/FLUX.1-dev", 11.9),
        ("stabilityai/stable-diffusion-3.5-large", 8.06),
        ("stabilityai/stable-diffusion-3.5-medium", 2.24),
        ("stabilityai/sdxl-turbo", 2.567),
        ("Tongyi-MAI/Z-Image-Turbo", 6.15),
    ],
)
def test_denoisers_are_as_large_as_published(name: str, billions: float) -> None:
    found = drawer(name)
    assert found is not None
    assert next(iter(found.parts.values())) == pytest.approx(billions * 1e9, rel=0.005)


def test_rewards_are_as_large_as_published() -> None:
    assert reward_size("hpsv2.1") == (986_109_441, 4)
    count, width = reward_size("yes-no", "Qwen/Qwen2-VL-7B-Instruct") or (0, 0)
    assert count == pytest.approx(8.29e9, rel=0.002) and width == 2
    assert reward_size("quality") == (0, 4)
    assert reward_size("hpsv2.1", "owner/unknown") is None


def test_adapters_are_as_large_as_those_of_peft() -> None:
    from t2x.training.policy import load_policy

    lora = LoraSection(rank=4)
    model = load_policy(PolicyConfig(lora=lora)).model
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert lora_params("emoji-rewriter", 4, "all-linear") == trained
    assert lora_params("emoji-rewriter", 4, ["q_proj"]) == 5 * 4 * (160 + 160)


def tiny(**trainer: Any) -> SimpleNamespace:
    policy = PolicyConfig(dtype="float32")
    return SimpleNamespace(policy=policy, trainer={"max_length": 100, **trainer})


def sums(plan: Plan, phase: str = "training") -> dict[str, float | None]:
    return {name: row[phase] for name, row in plan.memory.items()}


def test_memory_of_full_fine_tuning_in_closed_form() -> None:
    """Weights, gradient and two moments of four bytes; layers of 34 bytes per token and width."""
    model = language_model("emoji-rewriter")
    assert model is not None
    config = tiny(per_device_train_batch_size=2, gradient_checkpointing=False)
    found = sums(make_plan("sft", config, Hardware()))
    assert found["weights"] == found["gradients"] == 4 * model.params
    assert found["optimiser"] == 8 * model.params
    assert found["activations"] == 200 * (5 * 34 * 160 + 8 * 1536)
    saving = sums(make_plan("sft", tiny(per_device_train_batch_size=2), Hardware()))
    assert saving["activations"] == 200 * (5 * 2 * 160 + 34 * 160 + 8 * 1536)
    config.policy = replace(config.policy, lora=LoraSection(rank=4))
    small = sums(make_plan("sft", config, Hardware()))
    assert (small["optimiser"] or 0) < 0.2 * (found["optimiser"] or 0)


def test_zero_3_divides_what_it_shares_out() -> None:
    one, eight = (sums(make_plan("sft", tiny(), Hardware(processes=n, zero=3))) for n in (1, 8))
    for name in ("weights", "gradients", "optimiser"):
        assert one[name] == pytest.approx(8 * (eight[name] or 0))
    assert one["activations"] == eight["activations"]


def grpo(generator: str, **more: Any) -> SimpleNamespace:
    options = {"sampling": {"height": 512}, "num_inference_steps": 50}
    reward = RewardConfig({"imagereward": 1.0}, generator=generator, generator_options=options)
    rollout = SimpleNamespace(workers=0, batch_size=4)
    config = tiny(num_generations=4, max_completion_length=256, **more)
    return SimpleNamespace(**{**vars(config), "reward": reward, "rollout": rollout})


def test_time_of_reprompt_is_about_what_was_reported() -> None:
    """12,000 pictures of FLUX.1-dev at 512 pixels in 50 steps: some 6 hours on eight A100 (arXiv
    2505.17540). Here 4 more of 5 are the rewrites and one the prompt left as it is."""
    config = grpo("black-forest-labs/FLUX.1-dev", per_device_train_batch_size=4)
    plan = make_plan("grpo", config, Hardware("a100", processes=8))
    drawing = (plan.seconds["drawing"] or 0) / 5  # of a picture
    assert 4.5 < 12_000 / 8 * drawing / 3600 < 8


def test_what_runs_on_a_cpu_is_not_planned(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "grpo", "--config", "world/grpo", "--plan"]) == 1
    captured = capsys.readouterr()
    assert "run on a CPU" in captured.err and not captured.out


def test_what_is_unknown_is_not_nothing() -> None:
    plan = make_plan("grpo", grpo("owner/unknown"), Hardware())
    assert plan.unknown == ["activations", "generator"] and plan.fits is None
    assert plan.seconds["drawing"] is None and "unknown" in "\n".join(plan.lines())
    config = tiny(per_device_train_batch_size=10**7)
    assert make_plan("sft", config, Hardware()).fits is False
    with pytest.raises(T2XError, match="allowed: rtx4090"):
        Hardware("gtx970")
    with pytest.raises(T2XError, match="no plan for 'rebel'"):
        make_plan("rebel", config, Hardware())


def test_pictures_drawn_elsewhere_take_no_room() -> None:
    config = grpo("stabilityai/sdxl-turbo")
    here = make_plan("grpo", config, Hardware())
    config.rollout.workers = 2
    there = make_plan("grpo", config, Hardware())
    assert here.total("drawing") - there.total("drawing") > 2 * 3.4e9
    assert "generator" not in there.memory


def test_rewards_that_only_watch_are_loaded_too() -> None:
    config = grpo("stabilityai/sdxl-turbo")
    alone = make_plan("grpo", config, Hardware()).memory["rewards"]["scoring"]
    assert alone == 4 * 445_278_720
    options = {"hpsv2.1": {"dtype": "auto"}}
    held = SimpleNamespace(rewards={"hpsv2.1": 1.0}, options=options)
    config.watch = SimpleNamespace(held_out=held)
    both = make_plan("grpo", config, Hardware()).memory["rewards"]["scoring"]
    assert both == alone + 2 * 986_109_441


def test_vllm_takes_its_share_and_a_kl_term_its_reference() -> None:
    plain = make_plan("grpo", grpo("stabilityai/sdxl-turbo", beta=0.0), Hardware())
    assert not {"vLLM", "reference"} & set(plain.memory)
    more = grpo("stabilityai/sdxl-turbo", use_vllm=True, vllm_gpu_memory_utilization=0.25)
    found = make_plan("grpo", more, Hardware())
    assert found.memory["vLLM"]["drawing"] == 0.25 * CARDS["a100"].memory
    assert found.memory["reference"] == found.memory["weights"]


@pytest.mark.parametrize("path", YAMLS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_yaml_is_what_its_recipe_takes_and_fits(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The header is the output of the command that it names; run that to bring it up to date."""
    import trl

    recipe = recipe_of(path)
    schema, _ = load_recipe(recipe)
    config = load_config(schema, path)
    trainer_arguments(getattr(trl, TRAINERS[recipe]), RunConfig(Path("o")), config.trainer)
    lines = path.read_text("utf-8").splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("# $ t2x "))
    assert run(shlex.split(lines[at])[3:]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [f"# {line}" for line in printed] == lines[at + 1 : at + 1 + len(printed)]
    assert printed[0].endswith(": fits") and not lines[at + 1 + len(printed)].startswith("#")


@pytest.mark.parametrize(
    "path", sorted((CONFIGS / "accelerate").glob("*.yaml")), ids=lambda p: p.stem
)
def test_every_launch_file_is_what_accelerate_takes(path: Path) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    found = load_config_from_file(str(path))
    number = {"1gpu": 1, "8gpu": 8, "2x8gpu": 16, "zero3": 8, "zero3_2x8gpu": 16, "2cpu": 2}
    assert found.num_processes == number[path.stem]
    if path.stem.startswith("zero3"):
        assert found.deepspeed_config["zero_stage"] == 3


def test_the_plan_as_json_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "sft", "--config", "gpu24/sft", "--plan", "--json"]) == 0
    assert '"fits": true' in capsys.readouterr().out
    assert not list(Path().iterdir())
