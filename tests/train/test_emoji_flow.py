"""Recipes of emoji-flow and its distillation: conventions of the stock sampler, smoke runs,
resume."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from diffusers import StableDiffusionPipeline
from safetensors.torch import load_file

from t2x.generators import DiffusionGenerator
from t2x.world.render import Placed
from t2x.world.scene import CLASSES, COLORS
from t2x.world.weights import model_dir

emoji_vae = pytest.importorskip("t2x.train.emoji_vae")
emoji_text = pytest.importorskip("t2x.train.emoji_text")
emoji_flow = pytest.importorskip("t2x.train.emoji_flow")
emoji_flow_turbo = pytest.importorskip("t2x.train.emoji_flow_turbo")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a flow run of three steps over an untrained autoencoder and a barely trained text
    encoder."""
    root = tmp_path_factory.mktemp("runs")
    metrics = emoji_text.main(out=root / "emoji-text", steps=2)
    assert 0 <= metrics["slot_class"] <= 1
    torch.manual_seed(0)
    emoji_vae.build_vae().save_pretrained(root / "emoji-vae" / "vae")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emoji_flow, "BATCH", 4)
        metrics = emoji_flow.main(out=root / "emoji-flow", steps=2)
        assert metrics["steps"] == 2
        assert emoji_flow.main(out=root / "emoji-flow", steps=3)["steps"] == 3
    return root / "emoji-flow" / "pipeline"


def test_slot_targets() -> None:
    placed = [Placed("cat", None, 0, 0, 1, "left"), Placed("dog", "red", 0, 0, 1, "right")]
    cls, color = emoji_text.slot_targets([placed])
    left, right = emoji_text.SLOTS.index("left"), emoji_text.SLOTS.index("right")
    assert cls[0, left] == 1 + CLASSES.index("cat")
    assert cls[0, right] == 1 + CLASSES.index("dog")
    assert cls.sum() == cls[0, left] + cls[0, right]
    assert color[0, left] == 0
    assert color[0, right] == 1 + COLORS.index("red")
    assert (color == emoji_text.ABSENT).sum() == len(emoji_text.SLOTS) - 2


def test_noising_follows_the_samplers_convention() -> None:
    """From x_t and the exact target, the stock sampler recovers x0 = x_t - sigma * target."""
    generator = torch.Generator().manual_seed(0)
    x0 = torch.randn(64, 4, 2, 2, generator=generator)
    x_t, timesteps, target = emoji_flow.flow_batch(x0, generator)
    sigma = ((x_t - x0) / target).mean(dim=(1, 2, 3))
    assert torch.equal((sigma * 1000 + 1e-3).long(), timesteps)
    scheduler = emoji_flow.flow_scheduler()
    scheduler.set_timesteps(4)
    state = scheduler.sigmas[1] * torch.ones(1, 4, 2, 2)  # x0 = 0, noise = 1
    scheduler._step_index = 1
    recovered = scheduler.convert_model_output(torch.ones(1, 4, 2, 2), sample=state)
    assert recovered.abs().max() < 1e-6


def test_flow_run_saves_a_stock_pipeline(trained: Path) -> None:
    pipeline = StableDiffusionPipeline.from_pretrained(trained, dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    picture = pipeline("a cat", num_inference_steps=2, output_type="np", height=64, width=64).images
    assert picture.shape == (1, 64, 64, 3)
    weights = sorted(p.name for p in trained.rglob("*.safetensors"))
    assert len(weights) == 3
    assert (trained / "t2x.json").exists()


def test_a_run_goes_on_from_the_weights_of_another(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no learning rate the weights stay those of ``start``, up to half precision."""
    monkeypatch.setattr(emoji_flow, "BATCH", 4)
    monkeypatch.setattr(emoji_flow, "PEAK_LR", 0.0)
    monkeypatch.setattr(emoji_flow, "load_vae", lambda out: emoji_vae.build_vae())
    emoji_flow.main(out=tmp_path, steps=1, start=trained)
    for part in ("unet", "text_encoder"):
        (name,) = (p.name for p in (trained / part).glob("*.safetensors"))
        old, new = load_file(trained / part / name), load_file(tmp_path / "pipeline" / part / name)
        assert all(torch.allclose(old[k], new[k], atol=1e-3) for k in old)


def test_student_starts_as_its_teacher_without_guidance(trained: Path) -> None:
    """The guidance projection is zero at first, so any guidance gives the teacher's conditional
    velocity."""
    pipeline = StableDiffusionPipeline.from_pretrained(trained, dtype=torch.float32)
    student = emoji_flow_turbo.student_unet(pipeline.unet)
    x = torch.randn(2, 4, 16, 16, generator=torch.Generator().manual_seed(0))
    hidden = torch.randn(2, 48, emoji_flow.WIDTH, generator=torch.Generator().manual_seed(1))
    condition = emoji_flow_turbo.guidance_embedding(pipeline, torch.tensor([1.5, 4.0]))
    with torch.no_grad():
        expected = pipeline.unet(x, 500, hidden).sample
        given = student(x, 500, hidden, timestep_cond=condition).sample
    assert torch.allclose(given, expected, atol=1e-5)


def test_guidance_one_is_the_conditional_velocity(trained: Path) -> None:
    pipeline = StableDiffusionPipeline.from_pretrained(trained, dtype=torch.float32)
    x = torch.randn(2, 4, 16, 16, generator=torch.Generator().manual_seed(0))
    hidden = torch.randn(4, 48, emoji_flow.WIDTH, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        v = emoji_flow_turbo.guided_velocity(
            pipeline.unet, x, torch.tensor(500), hidden, torch.ones(2)
        )
        expected = pipeline.unet(x, 500, hidden[2:]).sample
    assert (v - expected).abs().max() < 0.05  # bf16 autocast


def test_turbo_run_saves_what_differs_from_its_teacher(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emoji_flow_turbo, "BATCH", 4)
    monkeypatch.setattr(emoji_flow_turbo, "TRAJECTORY_BATCH", 4)
    monkeypatch.setattr(emoji_flow_turbo, "POOL", 24)
    metrics = emoji_flow_turbo.main(out=tmp_path, steps=3, teacher=trained)
    assert metrics["steps"] == 3
    assert metrics["endpoint_mse"] > 0
    folder = tmp_path / "pipeline"
    assert {p.name for p in folder.iterdir()} == {"unet", "scheduler", "t2x.json"}
    (weights,) = folder.rglob("*.safetensors")
    assert weights.stat().st_size < 2.2 * sum(
        p.numel() for p in emoji_flow.build_unet().parameters()
    )
    generator = DiffusionGenerator.from_pretrained(folder)
    assert generator.sampling["num_inference_steps"] == emoji_flow_turbo.STUDENT_STEPS
    pipeline = generator.pipeline
    assert pipeline.unet.config.time_cond_proj_dim == emoji_flow_turbo.GUIDANCE_EMBEDDING
    assert pipeline.scheduler.config.solver_order == 1
    teacher = StableDiffusionPipeline.from_pretrained(trained, dtype=torch.float32)
    for name, part in teacher.vae.state_dict().items():
        assert torch.equal(part, pipeline.vae.state_dict()[name])
    # Guidance is an input of the network: no second pass without the prompt.
    assert not generator.supports_negative


def test_a_killed_distillation_ends_where_an_unbroken_one_ends(
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    check_resume: Callable[..., None],
) -> None:
    """Killed at half of the budget, when no new path is walked any more."""
    monkeypatch.setattr(emoji_flow_turbo, "BATCH", 4)
    monkeypatch.setattr(emoji_flow_turbo, "TRAJECTORY_BATCH", 4)
    monkeypatch.setattr(emoji_flow_turbo, "POOL", 32)
    main = partial(emoji_flow_turbo.main, teacher=trained)
    check_resume(main, tmp_path, steps=6, killed=3)
    state = torch.load(tmp_path / "parts" / "checkpoint.pt", weights_only=True)["state"]
    assert state["pool"] == {"known": 12}


def test_a_student_names_its_teacher(tmp_path: Path) -> None:
    embedded = model_dir("emoji-flow")
    assert emoji_flow_turbo.teacher_source(None) == (embedded.resolve(), "emoji-flow")
    assert emoji_flow_turbo.teacher_source(embedded)[1] == "emoji-flow"
    assert emoji_flow_turbo.teacher_source(tmp_path) == (tmp_path, str(tmp_path))


def test_student_sigmas_are_the_stock_samplers() -> None:
    sigmas = emoji_flow_turbo.sigmas_of(4)
    assert sigmas.tolist() == pytest.approx([0.999, 0.74925, 0.4995, 0.24975, 0.0], abs=1e-4)
