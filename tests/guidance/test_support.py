"""What can't be guided is refused before anything is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.guide import guide
from t2x.guidance.support import check_pipeline, checkpointed
from t2x.testing import (
    CALLS,
    FAMILIES,
    tiny_flux,
    tiny_qwen_image,
    tiny_sana,
    tiny_stable_diffusion,
    tiny_wan,
)


class Redness:
    """How red a picture is."""

    name, modality, differentiable, scale, range = "red", "image", True, "red", (0.0, 1.0)

    def score(self, prompts: Sequence[str], media: Tensor, *, context: object = None) -> Tensor:
        return media[:, 0].mean((1, 2))


def test_stock_pipelines_pass() -> None:
    for build in FAMILIES.values():
        for mode in ("E", "J"):
            check_pipeline(build(), mode)


def test_inference_mode_is_refused() -> None:
    with torch.inference_mode(), pytest.raises(T2XError, match="inference_mode"):
        check_pipeline(tiny_stable_diffusion(), "E")


def test_inference_mode_within_is_refused_before_sampling() -> None:
    pipe = tiny_stable_diffusion()
    seen: list[Any] = []
    pipe.unet.register_forward_hook(lambda *_: seen.append(1))
    with (
        guide(pipe, [Redness()], GuidanceConfig(mode="E", free_last=0)),
        torch.inference_mode(),
        pytest.raises(T2XError, match="inference_mode"),
    ):
        pipe("a cat", num_inference_steps=2, output_type="latent")
    assert not seen


def test_a_compiled_denoiser_is_refused_in_J() -> None:
    pipe = tiny_stable_diffusion()
    pipe.unet.compile()  # nothing is compiled before the first call
    with pytest.raises(T2XError, match=r'unet.*is compiled.*mode "E"'):
        check_pipeline(pipe, "J")
    check_pipeline(pipe, "E")
    pipe.unet = torch.compile(tiny_stable_diffusion().unet)
    with pytest.raises(T2XError, match="is compiled"):
        check_pipeline(pipe, "J")


def test_a_compiled_decoder_is_refused() -> None:
    pipe = tiny_stable_diffusion()
    pipe.vae.decoder.compile()
    with pytest.raises(T2XError, match=r"vae.*is compiled"):
        check_pipeline(pipe, "E")


def test_a_quantised_denoiser_is_refused_in_J() -> None:
    pipe = tiny_flux()
    pipe.transformer.hf_quantizer = SimpleNamespace()
    with pytest.raises(T2XError, match=r'is quantised.*mode "E"'):
        check_pipeline(pipe, "J")
    check_pipeline(pipe, "E")


def test_sequential_offload_is_refused_in_J() -> None:
    """What enable_sequential_cpu_offload does to each module, without an accelerator."""
    from accelerate import cpu_offload

    pipe = tiny_stable_diffusion()
    cpu_offload(pipe.unet, torch.device("cpu"))
    with pytest.raises(T2XError, match="layer by layer"):
        check_pipeline(pipe, "J")
    check_pipeline(pipe, "E")
    with guide(pipe, [Redness()], GuidanceConfig(mode="E", free_last=0)) as trace:
        pipe("a cat", num_inference_steps=2, output_type="latent")
    assert trace.calls[-1].steps


def test_model_offload_is_refused_in_J() -> None:
    pipe = tiny_stable_diffusion()
    pipe._all_hooks = [object()]
    with pytest.raises(T2XError, match="enable_model_cpu_offload"):
        check_pipeline(pipe, "J")
    check_pipeline(pipe, "E")


def test_group_offload_is_refused_in_J() -> None:
    pipe = tiny_flux()
    pipe.transformer.enable_group_offload(
        onload_device=torch.device("cpu"),
        offload_device=torch.device("cpu"),
        offload_type="leaf_level",
    )
    with pytest.raises(T2XError, match="in groups"):
        check_pipeline(pipe, "J")
    check_pipeline(pipe, "E")


def test_feature_caches_are_refused_in_J() -> None:
    from diffusers import FirstBlockCacheConfig

    pipe = tiny_flux()
    pipe.transformer.enable_cache(FirstBlockCacheConfig(threshold=0.2))
    with pytest.raises(T2XError, match="disable_cache"):
        check_pipeline(pipe, "J")
    pipe.transformer.disable_cache()
    check_pipeline(pipe, "J")


def test_an_unknown_autoencoder_is_refused() -> None:
    pipe = tiny_stable_diffusion()
    pipe.vae = torch.nn.Identity()
    with pytest.raises(T2XError, match="AutoencoderKLWan"):
        check_pipeline(pipe, "E")
    pipe.t2x_latent_space = SimpleNamespace()
    check_pipeline(pipe, "E")


@pytest.mark.parametrize("build", [tiny_sana, tiny_qwen_image, tiny_wan])
@pytest.mark.parametrize("mode", ["E", "J"])
def test_checkpointing_is_refused_where_a_decoder_has_none(build: Any, mode: str) -> None:
    with (
        pytest.raises(T2XError, match="has no gradient checkpointing"),
        checkpointed(build(), mode),
    ):
        pass


@pytest.mark.parametrize("family", ["sdxl", "sd3", "flux", "z", "pixart", "cogvideox", "ltx"])
def test_checkpointing_changes_memory_and_nothing_else(family: str) -> None:
    pipe = FAMILIES[family]()
    pipe.set_progress_bar_config(disable=True)
    options = dict(CALLS[family])
    if "true_cfg_scale" in options:
        options["negative_prompt"] = "blue"
    drawn = []
    for checkpointing in (False, True):
        config = GuidanceConfig(mode="J", free_last=1, checkpointing=checkpointing)
        with guide(pipe, [Redness()], config):
            assert pipe.vae.is_gradient_checkpointing == checkpointing
            noise = torch.Generator().manual_seed(0)
            drawn.append(
                pipe(
                    "a cat",
                    num_inference_steps=2,
                    generator=noise,
                    output_type="latent",
                    return_dict=False,
                    **options,
                )[0]
            )
    assert not pipe.vae.is_gradient_checkpointing
    torch.testing.assert_close(drawn[1], drawn[0], atol=1e-4, rtol=1e-4)
