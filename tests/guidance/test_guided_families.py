"""Guidance by a reward that is known raises it on every family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.guide import guide
from t2x.testing import CALLS, DISTILLED, FAMILIES

BUILD = {**FAMILIES, **DISTILLED}


class Redness:
    """Mean red of a picture."""

    name, modality, differentiable, scale, range = "red", "image", True, "red", (0.0, 1.0)

    def score(self, prompts: Sequence[str], media: Tensor, *, context: object = None) -> Tensor:
        return media[:, 0].mean((1, 2))


def draw(pipe: Any, family: str, rows: Sequence[int] = (0, 1), **more: Any) -> Tensor:
    options = {"num_inference_steps": 3, **CALLS[family], **more}
    if family == "sprint":
        options["intermediate_timesteps"] = None
    if "true_cfg_scale" in options:
        options["negative_prompt"] = ["blue"] * len(rows)
    noise = [torch.Generator().manual_seed(seed) for seed in rows]
    media: Tensor = pipe(
        prompt=[("a red cat", "a dog")[row] for row in rows],
        generator=noise,
        output_type="pt",
        return_dict=False,
        **options,
    )[0]
    return media


def red(media: Tensor) -> Tensor:
    return media[..., 0, :, :].flatten(1).mean(1)


def config_for(family: str, mode: Any, **more: Any) -> GuidanceConfig:
    """A step is tied to what the prompt changes, which is little in the random Qwen-Image."""
    size = 10.0 if family == "qwen" else 1.0
    return GuidanceConfig(mode=mode, size=size, damping=False, free_last=0, **more)


@pytest.fixture(scope="module", params=BUILD)
def case(request: pytest.FixtureRequest) -> tuple[str, Any, Tensor]:
    pipe = BUILD[request.param]()
    pipe.set_progress_bar_config(disable=True)
    return request.param, pipe, red(draw(pipe, request.param))


@pytest.mark.parametrize("mode", ["E", "J"])
def test_guidance_raises_its_reward(case: tuple[str, Any, Tensor], mode: Any) -> None:
    family, pipe, before = case
    config = config_for(family, mode)
    with guide(pipe, [Redness()], config, seeds=[0, 1]) as trace:
        gain = red(draw(pipe, family)) - before
    assert (gain > 1e-4).all(), gain
    steps = [s for s in trace.calls[-1].steps if s.values.isfinite().any()]
    assert len(steps) == 3
    assert all(s.gradient_norm.isfinite().all() and (s.gradient_norm > 0).all() for s in steps)


@pytest.mark.parametrize("mode", ["E", "J"])
def test_opposite_weights_go_opposite_ways(mode: Any) -> None:
    """A sign that is lost in packing or in Z-Image's flip would push both the same way."""
    for family in ("flux", "z"):
        pipe = FAMILIES[family]()
        pipe.set_progress_bar_config(disable=True)
        found = []
        for weight in (1.0, -1.0):
            config = config_for(family, mode, rewards={"red": weight})
            with guide(pipe, [Redness()], config, seeds=[0, 1]):
                found.append(red(draw(pipe, family)))
        assert (found[0] > found[1]).all()


QUICK = ("sdxl", "flux", "wan")


def some(names: Sequence[str], quick: Sequence[str] = QUICK) -> list[Any]:
    return [pytest.param(n, marks=() if n in quick else (pytest.mark.slow,)) for n in names]


@pytest.mark.parametrize("mode", ["E", "J"])
@pytest.mark.parametrize("family", some(list(FAMILIES), ("sdxl", "flux", "qwen")))
def test_bfloat16(family: str, mode: Any) -> None:
    pipe = FAMILIES[family]().to(torch.bfloat16)
    pipe.set_progress_bar_config(disable=True)
    small = {} if family in ("ltx", "sana") else {"height": 16, "width": 16}
    before = red(draw(pipe, family, **small).float())
    config = config_for(family, mode)
    with guide(pipe, [Redness()], config, seeds=[0, 1]):
        gain = red(draw(pipe, family, **small).float()) - before
    assert (gain > 1e-4).all(), gain


@pytest.mark.parametrize("mode", ["E", "J"])
def test_a_batch_of_two_is_two_singles(case: tuple[str, Any, Tensor], mode: Any) -> None:
    """Rewards, weights, step sizes and gradients of one picture know nothing of the other."""
    family, pipe, _ = case

    def run(rows: list[int]) -> Tensor:
        with guide(pipe, [Redness()], config_for(family, mode), seeds=rows):
            return draw(pipe, family, rows=rows, num_inference_steps=2)

    both = run([0, 1])
    for row in (0, 1):
        torch.testing.assert_close(both[row : row + 1], run([row]), atol=3e-3, rtol=3e-3)


def saving(pipe: Any) -> list[tuple[Any, str]]:
    """All that a pipeline's parts have to save memory while guided, as (part, switch)."""
    denoisers = [getattr(pipe, name, None) for name in ("unet", "transformer")]
    parts = [m for m in (*denoisers, pipe.vae) if m is not None]
    found = [(m, "gradient_checkpointing") for m in parts if m._supports_gradient_checkpointing]
    return found + [(pipe.vae, n) for n in ("slicing",) if hasattr(pipe.vae, f"enable_{n}")]


@pytest.mark.parametrize("mode", ["E", "J"])
@pytest.mark.parametrize("family", some(list(BUILD)))
def test_what_saves_memory_changes_nothing(family: str, mode: Any) -> None:
    """Checkpointing of denoiser and VAE, and slices of the VAE, each where the class has it, in
    guided runs; every family has some."""
    pipe = BUILD[family]()
    pipe.set_progress_bar_config(disable=True)
    config = config_for(family, mode)

    def run() -> Tensor:
        with guide(pipe, [Redness()], config, seeds=[0, 1]):
            return draw(pipe, family, num_inference_steps=2)

    plain = run()
    switches = saving(pipe)
    assert {name for _, name in switches} == {"gradient_checkpointing", "slicing"}
    for part, name in switches:
        getattr(part, f"enable_{name}")()
        torch.testing.assert_close(run(), plain, atol=2e-3, rtol=2e-3)
        getattr(part, f"disable_{name}")()
    assert (red(plain) > red(draw(pipe, family, num_inference_steps=2))).all()


@pytest.mark.parametrize("family", BUILD)
def test_what_is_not_supported_is_said_before_the_first_evaluation(family: str) -> None:
    """A quantised denoiser in J, torch.inference_mode, a decoder without checkpointing."""
    pipe = BUILD[family]()
    pipe.set_progress_bar_config(disable=True)
    denoiser = getattr(pipe, "unet", None) or pipe.transformer
    calls: list[int] = []
    denoiser.register_forward_pre_hook(lambda *_: calls.append(1))

    def run(config: GuidanceConfig) -> None:
        with guide(pipe, [Redness()], config, seeds=[0, 1]):
            draw(pipe, family)

    with torch.inference_mode(), pytest.raises(T2XError, match="inference_mode"):
        run(config_for(family, "E"))
    if not pipe.vae._supports_gradient_checkpointing:
        with pytest.raises(T2XError, match="has no gradient checkpointing"):
            run(config_for(family, "E", checkpointing=True))
    denoiser.hf_quantizer = object()
    with pytest.raises(T2XError, match=r'is quantised.*use mode "E"'):
        run(config_for(family, "J"))
    assert not calls
    run(config_for(family, "E", start=1.0))
    assert calls  # which are seen
