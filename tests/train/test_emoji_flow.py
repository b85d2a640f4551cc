"""Recipes of emoji-flow and its distillation: conventions of the stock sampler, smoke runs,
resume."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers import StableDiffusionPipeline
from safetensors.torch import load_file
from transformers import CLIPTokenizer

from t2x.errors import T2XError
from t2x.generators import DiffusionGenerator
from t2x.world.captions import sample_pair, sample_told_layout
from t2x.world.flow import find_vae, flow_scheduler, load_vae
from t2x.world.render import Placed
from t2x.world.scene import CLASSES, COLORS
from t2x.world.tokenizer import build_clip_tokenizer, tokenize
from t2x.world.weights import model_dir

emoji_vae = pytest.importorskip("t2x.train.emoji_vae")
emoji_decoder = pytest.importorskip("t2x.train.emoji_decoder")
emoji_text = pytest.importorskip("t2x.train.emoji_text")
emoji_flow = pytest.importorskip("t2x.train.emoji_flow")
emoji_flow_turbo = pytest.importorskip("t2x.train.emoji_flow_turbo")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a flow run of three steps over an untrained autoencoder and text encoder."""
    root = tmp_path_factory.mktemp("runs")
    torch.manual_seed(0)
    emoji_vae.build_vae().save_pretrained(root / "emoji-vae" / "vae")
    tokenizer = build_clip_tokenizer(sample_pair(i).text for i in range(50))
    tokenizer.save_pretrained(root / "emoji-text" / "tokenizer")
    encoder = emoji_flow.build_text_encoder(len(tokenizer))
    encoder.save_pretrained(root / "emoji-text" / "text_encoder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emoji_flow, "BATCH", 4)
        assert emoji_flow.main(out=root / "emoji-flow", steps=3)["steps"] == 3
    return root / "emoji-flow" / "pipeline"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every recipe with small batches, and a pool that comes round within a few steps."""
    for recipe in (emoji_vae, emoji_text, emoji_decoder, emoji_flow, emoji_flow_turbo):
        monkeypatch.setattr(recipe, "BATCH", 4)
    monkeypatch.setattr(emoji_flow, "SMALL_BATCH", 2)
    monkeypatch.setattr(emoji_flow, "EASY_UNTIL", 3)
    monkeypatch.setattr(emoji_flow, "POOL", 5)
    monkeypatch.setattr(emoji_flow_turbo, "TRAJECTORY_BATCH", 4)
    monkeypatch.setattr(emoji_flow_turbo, "POOL", 32)
    monkeypatch.setattr(emoji_text, "MEASURED", 8)
    monkeypatch.setattr(emoji_text, "TOKENIZER_TEXTS", 50)
    monkeypatch.setattr(emoji_vae, "MEASURED", 4)
    monkeypatch.setattr(emoji_vae, "STANDARDISED", 4)


@pytest.mark.parametrize("recipe", [emoji_vae, emoji_decoder, emoji_text, emoji_flow])
def test_a_killed_run_ends_where_an_unbroken_one_ends(
    small: None, tmp_path: Path, check_resume: Callable[..., None], recipe: Any
) -> None:
    check_resume(recipe.main, tmp_path, steps=4, killed=2)


class Latents:
    """Stands for an autoencoder: the latent of a picture is its first pixel."""

    config = SimpleNamespace(scaling_factor=1.0)

    def encode(self, pictures: torch.Tensor) -> Any:
        latents = pictures[:, :1, :16, :16].float().expand(-1, 4, -1, -1)
        return SimpleNamespace(latent_dist=SimpleNamespace(mode=lambda: latents))


def test_samples_come_in_order_the_easy_ones_once(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two easy samples, then three others round and round, whatever the size of the batches."""
    asked: list[tuple[int, float]] = []

    def sample(number: int, *, easy: float, crowded: float) -> Any:
        asked.append((number, easy))
        return sample_pair(number, easy=easy, crowded=crowded)

    monkeypatch.setattr(emoji_flow, "sample_pair", sample)
    tokenizer = CLIPTokenizer.from_pretrained(trained / "tokenizer")
    pools = [emoji_flow.LatentPool(Latents(), tokenizer, seed=1, size=3, easy=2) for _ in range(2)]
    ids = torch.cat([pools[0].draw(n)[1] for n in (1, 2, 3, 3)])
    first = 1 << 32
    assert asked == [
        *((first + i, emoji_flow.EASY) for i in range(2)),
        *((first + i, 0.0) for i in range(2, 5)),
    ]
    crowded = emoji_flow.CROWDED
    texts = [sample_pair(first + i, easy=emoji_flow.EASY, crowded=crowded).text for i in range(2)]
    texts += [sample_pair(first + i, crowded=crowded).text for i in (2, 3, 4, 2, 3, 4, 2)]
    assert torch.equal(ids, tokenize(tokenizer, texts))
    pools[1].load_state_dict({"drawn": 4})
    assert torch.equal(pools[1].draw(3)[1], ids[4:7])
    assert pools[1].state_dict() == {"drawn": 7}


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
    scheduler = flow_scheduler()
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
    """With no learning rate the weights stay those of ``start``, up to half precision; a foreign
    autoencoder beside the run is left alone."""
    monkeypatch.setattr(emoji_flow, "BATCH", 4)
    monkeypatch.setattr(emoji_flow, "PEAK_LR", 0.0)
    torch.manual_seed(1)
    emoji_vae.build_vae().save_pretrained(tmp_path / "emoji-vae" / "vae")
    out = tmp_path / "emoji-flow"
    emoji_flow.main(out=out, steps=1, start=trained)
    for part in ("unet", "text_encoder", "vae"):
        (name,) = (p.name for p in (trained / part).glob("*.safetensors"))
        old, new = load_file(trained / part / name), load_file(out / "pipeline" / part / name)
        assert all(torch.allclose(old[k], new[k], atol=1e-3) for k in old)


def test_the_decoders_autoencoder_is_preferred(tmp_path: Path) -> None:
    """The decoder itself starts from the stage before it, not from its own result."""
    out = tmp_path / "emoji-flow"
    embedded = model_dir("emoji-flow") / "vae"
    assert find_vae(out) == embedded
    for stage in ("emoji-vae", "emoji-decoder"):
        folder = tmp_path / stage / "vae"
        torch.manual_seed(len(stage))
        vae = emoji_vae.build_vae()
        vae.save_pretrained(folder)
        assert find_vae(out) == folder
        assert torch.equal(load_vae(out).decoder.conv_in.weight, vae.decoder.conv_in.weight)
    assert find_vae(out, ["emoji-vae"]) == tmp_path / "emoji-vae" / "vae"
    with pytest.raises(T2XError, match="--start takes the folder of a whole pipeline"):
        load_vae(out, start=tmp_path)


def test_all_slots_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that sees nothing anywhere: right in empty slots alone, and in no colour but
    "natural"."""
    layouts = [sample_told_layout(7 + i)[1] for i in range(12)]
    cls, color = emoji_text.slot_targets(layouts)
    monkeypatch.setattr(emoji_text, "BATCH", 4)

    def blind(model: Any, tokenizer: Any, first: int) -> Any:
        rows = slice(first - 7, first - 3)
        kinds, colors = torch.zeros(4, 9, len(CLASSES) + 1), torch.zeros(4, 9, len(COLORS) + 1)
        return kinds, colors, cls[rows], color[rows]

    monkeypatch.setattr(emoji_text, "read_slots", blind)
    found = emoji_text.measure(torch.nn.ModuleDict(), None, first=7, count=12)
    assert found["slot_class"] == pytest.approx(float((cls == 0).float().mean()))
    assert found["slot_color"] == pytest.approx(float((color[cls > 0] == 0).float().mean()))


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
    assert (v - expected).abs().max() < 0.05  # of bf16, where it is fast


def test_turbo_run_saves_what_differs_from_its_teacher(
    small: None, trained: Path, tmp_path: Path
) -> None:
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
    small: None, trained: Path, tmp_path: Path, check_resume: Callable[..., None]
) -> None:
    """Killed at half of the budget, when no new path is walked any more."""
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
