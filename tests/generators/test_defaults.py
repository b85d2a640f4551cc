"""Precedence: caller, folder, preset, presumption, pipeline; on tiny real pipelines, loaded from
folders and from a cache of the hub."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.generators.diffusion import DiffusionGenerator
from t2x.generators.negatives import takes_negative
from t2x.generators.presets import presets
from t2x.generators.published import with_scheduler
from t2x.generators.tokenizers import token_budget
from t2x.registry import load_generator
from t2x.rewriters.targets import TARGETS, target_of
from t2x.testing.pipelines import tiny_qwen_image, tiny_sdxl, tiny_z_image
from t2x.testing.video_pipelines import tiny_wan

BASE = "stabilityai/stable-diffusion-xl-base-1.0"


def saved(pipeline: Any, folder: Path, origin: str = "", **options: Any) -> Path:
    """Write a pipeline as ``save_pretrained`` of one from ``origin`` does."""
    pipeline.save_pretrained(folder, **options)
    index = folder / "model_index.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "_name_or_path": origin}))
    return folder


def steps(generator: Any) -> tuple[Any, Any]:
    found = generator.settings()
    return found["num_inference_steps"], found["guidance_scale"]


@pytest.fixture(scope="module")
def turbo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tiny_sdxl(), tmp_path_factory.mktemp("turbo") / "mine", "stabilityai/sdxl-turbo")


def test_caller_over_folder_over_preset_over_presumption(turbo: Path) -> None:
    own = load_generator(turbo)
    assert own.preset is presets()["sdxl-turbo"] and steps(own) == (1, 0.0)
    assert steps(load_generator(turbo, num_inference_steps=3)) == (3, 0.0)
    assert steps(load_generator(turbo, preset="none", num_inference_steps=7)) == (7, 5.0)
    assert steps(load_generator(turbo, preset="sdxl-base")) == (50, 5.0)
    (turbo / "t2x.json").write_text('{"num_inference_steps": 2}')
    try:
        assert steps(load_generator(turbo)) == (2, 0.0)
        assert steps(load_generator(turbo, guidance_scale=1.5)) == (2, 1.5)
    finally:
        (turbo / "t2x.json").unlink()
    with pytest.raises(T2XError, match="z-image-turbo is for ZImageImg2ImgPipeline, ZImagePipel"):
        load_generator(turbo, preset="z-image-turbo")


def test_a_folder_keeps_its_scheduler_and_says_so(turbo: Path) -> None:
    own = load_generator(turbo)
    assert type(own.pipeline.scheduler).__name__ == "EulerDiscreteScheduler"
    said = "; ".join(own.assumptions)
    assert "scheduler EulerDiscreteScheduler, not EulerAncestralDiscreteScheduler" in said
    assert "timestep_spacing is 'linspace', not 'trailing'" in said and "left as it is" in said


def test_settings_are_in_the_fingerprint(turbo: Path) -> None:
    own, other = load_generator(turbo), load_generator(turbo, preset="none")
    assert own.fingerprint()["settings"]["guidance_scale"] == 0.0
    assert own.fingerprint() != other.fingerprint()
    assert own.fingerprint() == load_generator(turbo).fingerprint()


def test_a_loaded_pipeline_is_known_by_its_name(turbo: Path) -> None:
    pipeline = tiny_sdxl()
    assert steps(load_generator(pipeline)) == (50, 5.0)
    pipeline.register_to_config(_name_or_path="stabilityai/sdxl-turbo")
    before = pipeline.scheduler
    assert steps(load_generator(pipeline)) == (1, 0.0) and pipeline.scheduler is before
    assert load_generator(pipeline, preset="none").preset is None
    again = type(pipeline).from_pretrained(turbo)  # which names the folder
    assert steps(load_generator(again)) == (1, 0.0)


def test_a_preset_gives_way_to_what_was_distilled_since(caplog: pytest.LogCaptureFixture) -> None:
    from diffusers import LCMScheduler

    pipeline = tiny_sdxl()
    pipeline.register_to_config(_name_or_path=BASE)
    assert load_generator(pipeline).preset is presets()["sdxl-base"]
    pipeline.scheduler = LCMScheduler.from_config(pipeline.scheduler.config)
    with caplog.at_level(logging.WARNING, "t2x"):
        generator = load_generator(pipeline)
        generator.generate(["a cat"], seeds=[0], size=(32, 32))
    assert generator.preset is None and steps(generator) == (4, 0.0)
    assert generator.assumptions[0].startswith(f"it was made from {BASE}")
    (line,) = [r.getMessage() for r in caplog.records if "presumed" in r.getMessage()]
    assert "LCMScheduler" in line and "\n" not in line
    given = load_generator(pipeline, num_inference_steps=6, guidance_scale=2.0)
    assert steps(given) == (6, 2.0) and given.preset is presets()["sdxl-base"]


def test_the_pipelines_defaults_stay_where_nothing_speaks(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "t2x"):
        generator = load_generator(tiny_sdxl())
    assert generator.sampling == {} and not caplog.records
    assert "defaults stay" in generator.assumptions[-1]
    whole = load_generator(tiny_sdxl(), num_inference_steps=2, guidance_scale=1.0)
    assert whole.assumptions == ()
    assert DiffusionGenerator(tiny_sdxl()).assumptions == ()


def test_the_authors_negative_prompt_stands_in(tmp_path: Path) -> None:
    """What is drawn without one is what is drawn with the authors', and a user's own wins."""
    folder = saved(tiny_wan(), tmp_path / "wan", "Wan-AI/Wan2.1-T2V-1.3B-Diffusers")
    own = load_generator(folder, num_inference_steps=2)
    words, call = presets()["wan2.1-t2v-1.3b"].negative, {"size": (32, 32), "num_frames": 5}
    assert own.settings()["negative_prompt"] == words and own.settings()["num_frames"] == 81
    assert own.fingerprint(**call)["settings"]["negative_prompt"] == words
    bare = load_generator(folder, preset="none", num_inference_steps=2, guidance_scale=6.0)
    assert "negative_prompt" not in bare.settings()

    def draw(generator: Any, negative: list[str] | None) -> torch.Tensor:
        media: torch.Tensor = generator.generate(
            ["a cat", "a dog"], negative=negative, seeds=[0, 1], **call
        )
        return media

    without = draw(own, None)
    assert torch.equal(without, draw(bare, [words, words]))
    assert not torch.equal(without, draw(bare, None))
    assert torch.equal(draw(own, ["", "grass"])[1], draw(bare, [words, "grass"])[1])
    off = load_generator(folder, num_inference_steps=2, guidance_scale=1.0)
    assert "negative_prompt" not in off.settings()


def test_qwen_image_is_guided_without_a_preset() -> None:
    """The class takes the scale for nothing where there is no negative prompt."""
    call = {"max_sequence_length": 16, "num_inference_steps": 2}
    own = load_generator(tiny_qwen_image(), sampling=call)
    raw = DiffusionGenerator(tiny_qwen_image(), sampling=call)
    assert own.settings()["negative_prompt"] == " " and own.supports_negative
    for generator, passes in ((own, 2), (raw, 1)):
        calls: list[Any] = []
        generator.pipeline.transformer.register_forward_hook(lambda *_, c=calls: c.append(1))
        generator.generate(["a cat"], seeds=[0], size=(32, 32))
        assert len(calls) == 2 * passes
    scaled = load_generator(tiny_qwen_image(), guidance_scale=1.0, sampling=call)
    assert scaled.settings()["negative_prompt"] == " " and scaled.passes == 2


def test_every_preset_gets_its_scheduler() -> None:
    from diffusers import FlowMatchEulerDiscreteScheduler

    stored = FlowMatchEulerDiscreteScheduler(shift=3.0)
    wan = with_scheduler(presets()["wan2.2-t2v-a14b"], stored)
    assert type(wan).__name__ == "UniPCMultistepScheduler"
    assert wan.config.flow_shift == 12.0 and wan.config.use_flow_sigmas
    assert with_scheduler(presets()["z-image-turbo"], stored) is stored
    assert with_scheduler(presets()["flux.1-dev"], stored) is stored


# ---- from the hub's cache -----------------------------------------------------------------------


def cached(pipeline: Any, cache: Path, repository: str, **options: Any) -> Path:
    """Write a pipeline where the hub's client keeps what it has downloaded."""
    root = cache / f"models--{repository.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text("0" * 40)
    folder = root / "snapshots" / ("0" * 40)
    pipeline.save_pretrained(folder, **options)
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, with no hub behind it."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    yield tmp_path


def test_a_name_and_its_repository_load_the_same(cache: Path) -> None:
    cached(tiny_z_image(), cache, "Tongyi-MAI/Z-Image-Turbo")
    options: dict[str, Any] = {"cache_dir": str(cache), "local_files_only": True}
    named = load_generator("z-image-turbo", **options)
    by_id = load_generator("Tongyi-MAI/Z-Image-Turbo", **options)
    assert named.model_id == by_id.model_id == "Tongyi-MAI/Z-Image-Turbo"
    assert steps(named) == steps(by_id) == (8, 0.0)
    assert named.pipeline.scheduler.config.shift == 3.0  # stored with 1.0
    assert named.pipeline.dtype == torch.float32  # on a CPU
    assert target_of(named) is TARGETS["z-image"]
    media = named.generate(["a cat"], seeds=[0], size=(32, 32))
    assert media.shape == (1, 3, 32, 32)


def test_a_checkpoint_of_a_denoiser_is_completed_by_its_base(cache: Path) -> None:
    from safetensors.torch import save_file

    base, other = tiny_sdxl(), tiny_sdxl(seed=1)
    cached(base, cache, BASE, variant="fp16")
    lightning = cache / "models--ByteDance--SDXL-Lightning"
    (lightning / "refs").mkdir(parents=True)
    (lightning / "refs" / "main").write_text("1" * 40)
    snapshot = lightning / "snapshots" / ("1" * 40)
    snapshot.mkdir(parents=True)
    file = snapshot / presets()["sdxl-lightning"].denoiser_file
    save_file({k: v.half() for k, v in other.unet.state_dict().items()}, file)
    options: dict[str, Any] = {"cache_dir": str(cache), "local_files_only": True}
    generator = load_generator("sdxl-lightning", **options)
    scheduler = generator.pipeline.scheduler
    assert type(scheduler).__name__ == "EulerDiscreteScheduler"
    assert scheduler.config.timestep_spacing == "trailing" and steps(generator) == (4, 0.0)
    weight = generator.pipeline.unet.conv_in.weight
    assert weight.dtype == torch.float32
    assert torch.equal(weight, other.unet.conv_in.weight.half().float())
    assert not generator.supports_negative
    assert generator.generate(["a cat"], seeds=[0], size=(32, 32)).isfinite().all()
    own = {"scheduler": base.scheduler}  # the caller's
    assert load_generator("sdxl-lightning", **options, **own).pipeline.scheduler is base.scheduler


def test_without_a_hub_it_says_what_would_be_downloaded(cache: Path) -> None:
    for name, repository in (
        ("z-image-turbo", "Tongyi-MAI/Z-Image-Turbo"),
        ("flux.1-dev", "black-forest-labs/FLUX.1-dev"),
        ("sdxl-lightning", "ByteDance/SDXL-Lightning"),
    ):
        with pytest.raises(T2XError) as caught:
            load_generator(name, cache_dir=str(cache))
        said = str(caught.value)
        assert said.startswith(f"cannot load {repository!r}") or repository in said[:120]
        assert f"{name} loads {repository}" in said and "\n" not in said
        assert presets()[name].access in said and "not run on real weights" in said


def test_limits_and_negatives_are_read_before_loading(cache: Path) -> None:
    """Of a name the repository's tokenizers and configurations are asked, under its settings."""
    cached(tiny_z_image(), cache, "Tongyi-MAI/Z-Image-Turbo")
    budget = token_budget("z-image-turbo")
    assert budget is not None and budget.count("a cat")[0].limit == 512
    assert takes_negative("z-image-turbo") is False
    cached(tiny_wan(), cache, "Wan-AI/Wan2.1-T2V-1.3B-Diffusers")
    assert takes_negative("wan2.1-t2v-1.3b") is True
    cached(tiny_sdxl(), cache, BASE)
    assert takes_negative("sdxl-base") is True and takes_negative("sdxl-lightning") is False
