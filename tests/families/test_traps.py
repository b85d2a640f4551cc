"""What each family does otherwise than the others, and what would go wrong unseen.

Others have their assertion beside the code that minds them:

- SD 1.5, Euler's samples are x / alpha: ``guidance/test_levels.py`` (x0_hat and the law of samples
  of EulerDiscreteScheduler), ``guidance/test_families.py`` (sd15-euler);
- SDXL, float16 overflows in the autoencoder: ``guidance/test_latents.py``
  (half_precision_of_sdxl_is_decoded_in_float32);
- Sana, multistep history and no checkpointing of DC-AE: ``guidance/test_families.py``
  (the_end_is_what_x0_hat_was_set_to), ``guidance/test_support.py`` (no gradient checkpointing);
- Qwen-Image, frame 0, clamp, rescaled norm: ``guidance/test_latents.py`` (decode, saturated
  pixels), ``guidance/test_families.py`` (combined);
- Z-Image, sign and timestep: ``guidance/test_families.py`` (seeing), ``guidance/
  test_guided_families.py`` (opposite weights);
- Wan, UniPC's corrector, clamp, two experts: ``guidance/test_families.py`` (early edit, experts),
  ``guidance/test_latents.py`` (saturated pixels);
- CogVideoX, a step of two values, padded frames of 1.5: ``guidance/test_families.py``
  (cogvideox-dpm, reordered rows, padded frames), ``guidance/test_latents.py`` (padding).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.generators import DiffusionGenerator, GuidedGenerator
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.hook import watch_steps
from t2x.guidance.latents import latent_space
from t2x.guidance.levels import read_level
from t2x.guidance.recipe import make_recipe
from t2x.guidance.step import CallSettings, Step
from t2x.prompts.budget import TokenBudget
from t2x.testing import CALLS, FakeReward, tiny_flux, tiny_hunyuan_video, tiny_ltx, tiny_sd3

from .cases import PROMPTS, SEEDS, Family, pictures

Give = Callable[[str], Family]


class Watcher:
    """Control that keeps steps and the last sample, and may edit."""

    def __init__(self, edit: Callable[[Step], None] | None = None) -> None:
        self.act, self.steps = edit, []  # type: ignore[var-annotated]

    def begin(self, call: Any, scheduler: Any) -> None:
        self.call = call

    def gradient(self, index: int, total: int) -> bool:
        return False

    def visits(self, index: int, total: int) -> int:
        return 1

    def edit(self, step: Step) -> None:
        self.steps.append(step)
        if self.act is not None:
            self.act(step)

    def after(self, step: Step, sample: Tensor) -> Tensor:
        self.last = sample
        return sample

    def end(self, call: Any) -> None:
        pass


def call(pipe: Any, name: str, controls: list[Any], **more: Any) -> Tensor:
    """Media of two prompts, seen by ``controls``."""
    pipe.set_progress_bar_config(disable=True)
    with watch_steps(pipe, controls):
        found: Tensor = pipe(
            prompt=PROMPTS,
            generator=[torch.Generator().manual_seed(seed) for seed in SEEDS],
            output_type="pt",
            return_dict=False,
            **{"num_inference_steps": 2, **CALLS[name], **more},
        )[0]
    return found


def test_sd3_predicts_once_more_without_some_layers() -> None:
    """Skip-layer guidance is a third evaluation: the correction is that of the other two, and
    looking changes nothing."""
    pipe = tiny_sd3()
    skip = {
        "skip_guidance_layers": [0],
        "skip_layer_guidance_start": 0.0,
        "skip_layer_guidance_stop": 1.0,
    }
    watcher = Watcher()
    seen = call(pipe, "sd3", [watcher], **skip)
    assert torch.equal(seen, call(pipe, "sd3", [], **skip))
    assert not torch.equal(seen, call(pipe, "sd3", []))
    assert [step.evaluations for step in watcher.steps] == [4, 6]  # not on the first step
    assert all(step.cfg_correction() is not None for step in watcher.steps)


def test_flux_rounds_each_step_to_bfloat16() -> None:
    """An edit below the precision of the latents is lost in a step, and one above it is not: steps
    of guidance are tied to the size of the correction, not to the latents' last bits."""
    pipe = tiny_flux().to(torch.bfloat16)
    small = {"height": 16, "width": 16, "num_inference_steps": 1, "true_cfg_scale": 1.0}
    last = {}
    for size in (0.0, 1e-5, 0.5):

        def nudge(step: Step, size: float = size) -> None:
            if size:
                step.clean = step.clean + size

        watcher = Watcher(nudge)
        call(pipe, "flux", [watcher], **small)
        last[size] = watcher.last
    assert torch.equal(last[1e-5], last[0.0])
    assert (last[0.5] - last[0.0]).mean() == pytest.approx(0.5, abs=0.05)


def test_flux2_has_no_scaling_factor(family: Give) -> None:
    """Its latents are normalised by the statistics of a batch norm, per channel of 2 x 2 patches;
    without them (what a missing scaling_factor would mean) another picture comes out."""
    pipe = family("flux2").generator.pipeline
    assert not hasattr(pipe.vae.config, "scaling_factor")
    watcher = Watcher()
    media = call(pipe, "flux2", [watcher])
    space = watcher.call.space
    torch.testing.assert_close(space.decode(watcher.last), media, atol=1e-5, rtol=0)
    pipe.vae.bn.running_mean.zero_(), pipe.vae.bn.running_var.fill_(1.0)
    wrong = latent_space(pipe, watcher.call.arguments).decode(watcher.last)
    assert (wrong - media).abs().mean() > 0.02


def test_flux2_reads_texts_by_a_processor(family: Give) -> None:
    """Its "tokenizer" reads pictures, too; the limit is counted all the same."""
    pipe = family("klein").generator.pipeline
    assert type(pipe.tokenizer).__name__ != "PixtralProcessor"
    pipe = family("flux2").generator.pipeline
    budget = TokenBudget.from_pipeline(pipe, {"max_sequence_length": 8})
    assert budget is not None and budget.fits("a cat") and not budget.fits("a cat " * 8)


def test_klein_predicts_twice_without_a_negative_prompt(family: Give) -> None:
    generator = family("klein").generator
    assert generator.passes == 2 and not generator.supports_negative
    assert DiffusionGenerator(generator.pipeline, sampling={"guidance_scale": 1.0}).passes == 1


@pytest.mark.parametrize(("height", "width"), [(48, 64), (64, 640)])
def test_small_or_long_sources_of_flux2_are_refused(family: Give, height: int, width: int) -> None:
    source = torch.zeros(1, 3, height, width)
    with pytest.raises(T2XError, match=f"{height}x{width} pixels; Flux2Pipeline takes 64 or more"):
        family("flux2").generator.generate(PROMPTS[:1], seeds=[0], sources=source)


def test_trigflow_starts_beyond_the_end_of_its_schedule() -> None:
    """Sana-Sprint's first angle, 1.5708, has a cosine of -4e-6: no picture is left."""
    from diffusers import SCMScheduler

    scheduler = SCMScheduler()
    scheduler.set_timesteps(2)
    level = read_level(scheduler, scheduler.timesteps[0])
    assert level.alpha == 0 and level.sigma == pytest.approx(0.5) and level.total == 2


@pytest.mark.parametrize("name", ["sprint", "flux2-edit", "ltx-i2v"])
def test_a_search_works_where_steps_are_few_or_parts(family: Give, name: str) -> None:
    """Best-of-N asks nothing of the steps."""
    own = family(name)
    recipe = make_recipe(
        "fake-reward=1", mode="search", options=["pictures=3"], loaded=["fake-reward"]
    )
    reward = FakeReward(modality=own.generator.modality)
    guided = GuidedGenerator(own.generator, recipe, rewards=[reward])
    media = guided.generate(PROMPTS, seeds=SEEDS, **own.start)
    values = [reward.score(PROMPTS, found) for found in (media, own.plain)]
    assert bool((values[0] >= values[1]).all())
    assert all(len(note["tried"]) == 3 for note in guided.notes)


@pytest.mark.parametrize("name", ["sd15-img2img", "ltx-i2v"])
def test_noise_is_not_optimised_where_the_start_holds_a_picture(family: Give, name: str) -> None:
    own = family(name)
    recipe = make_recipe("fake-reward=1", mode="noise", loaded=["fake-reward"])
    guided = GuidedGenerator(own.generator, recipe, rewards=[FakeReward()])
    with pytest.raises(T2XError, match="best-of-N"):
        guided.generate(PROMPTS[:1], seeds=[0], sources=pictures(name)[:1])


# ---- LTX -------------------------------------------------------------------------------------


def denoising_ltx() -> Any:
    """LTX 0.9.1: a decoder that is told a timestep, and gets noise."""
    pipe = tiny_ltx(timestep_conditioning=True)
    for name, value in pipe.vae.named_parameters():
        if "scale_shift_table" in name:
            value.data.mul_(4.0)  # random ones are small
    return pipe


@pytest.mark.parametrize("timestep", [0.0, 0.05])
def test_the_decoder_of_ltx_is_told_the_calls_timestep(timestep: float) -> None:
    pipe, watcher = denoising_ltx(), Watcher()
    given = {"decode_timestep": timestep, "decode_noise_scale": 0.0}
    media = call(pipe, "ltx", [CallSettings(given), watcher], **given)
    shown = watcher.call.space.decode(watcher.last)
    torch.testing.assert_close(shown, media, atol=1e-5, rtol=0)
    blind = latent_space(pipe, {**watcher.call.arguments, "decode_timestep": 0.5})
    assert (blind.decode(watcher.last) - media).abs().max() > 1e-4


def test_the_noise_of_ltx_decoding_is_the_same_for_each_sample() -> None:
    """The pipeline's own comes from the sample's stream, after sampling; guidance's is fixed, and
    as strong."""
    pipe, watcher = denoising_ltx(), Watcher()
    given = {"decode_timestep": 0.05, "decode_noise_scale": 0.5}
    media = call(pipe, "ltx", [CallSettings(given), watcher], **given)
    space = watcher.call.space
    shown = space.decode(watcher.last)
    assert torch.equal(shown, space.decode(watcher.last))
    alone = torch.cat([space.decode(watcher.last[i : i + 1]) for i in range(2)])
    torch.testing.assert_close(shown, alone, atol=1e-5, rtol=0)
    clean = latent_space(pipe, {**watcher.call.arguments, "decode_noise_scale": 0.0})
    change = [(found - clean.decode(watcher.last)).std() for found in (media, shown)]
    assert change[1] == pytest.approx(float(change[0]), rel=0.3)


def test_ltx_draws_the_same_bytes_when_it_is_only_seen() -> None:
    """Looking takes nothing from the stream that decoding draws from."""
    given = {"decode_timestep": 0.05, "decode_noise_scale": 0.5}
    pipe = denoising_ltx()
    assert torch.equal(
        call(pipe, "ltx", [CallSettings(given), Watcher()], **given), call(pipe, "ltx", [], **given)
    )


# ---- HunyuanVideo-1.5 ------------------------------------------------------------------------


def test_hunyuan_video_has_no_callback_and_needs_none() -> None:
    """A guider combines two passes; the hook sees them, decodes as the pipeline does, and steers.
    (diffusers' autoencoder decodes one sample at a time.)"""
    pipe = tiny_hunyuan_video()
    call_arguments = {"height": 16, "width": 16, "num_frames": 5, "num_inference_steps": 2}
    generator = DiffusionGenerator(pipe, sampling=call_arguments, batch_size=1)
    assert "callback_on_step_end" not in generator._arguments
    assert generator.supports_negative and generator.passes == 2
    plain = generator.generate(["a cat"], seeds=[0])
    watcher = Watcher()
    with watch_steps(pipe, [watcher]):
        assert torch.equal(plain, generator.generate(["a cat"], seeds=[0]))  # type: ignore[arg-type]
    shown = watcher.call.space.decode(watcher.last)
    torch.testing.assert_close(shown, plain, atol=1 / 255, rtol=0)
    assert all(step.cfg_correction() is not None for step in watcher.steps)
    for mode in ("E", "J"):
        config = GuidanceConfig(mode=mode, free_last=0, size=5.0)  # type: ignore[arg-type]
        guided = GuidedGenerator(generator, config, rewards=[FakeReward()])
        gain = guided.generate(["a cat"], seeds=[0]) - plain  # type: ignore[operator]
        assert gain[:, :, 0].mean() > 0
