"""Latent spaces against the pipelines' own decoding, on the real classes."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.guidance.hook import watch_steps
from t2x.guidance.latents import (
    AUTOENCODERS,
    AutoencoderSpace,
    LatentSpace,
    _sampled,
    latent_space,
)
from t2x.testing import (
    CALLS,
    DISTILLED,
    FAMILIES,
    tiny_cogvideox,
    tiny_flux,
    tiny_ltx,
    tiny_sana,
    tiny_sdxl,
    tiny_stable_diffusion,
    tiny_vae,
    tiny_wan,
)

BUILD = {**FAMILIES, **DISTILLED}


class Watcher:
    """Remembers the call, and the sample of its last step, of which a pipeline may give another
    form (klein, Sana-Sprint)."""

    last: Tensor

    def begin(self, call: Any, scheduler: Any) -> None:
        self.call = call

    def gradient(self, index: int, total: int) -> bool:
        return False

    def visits(self, index: int, total: int) -> int:
        return 1

    def edit(self, step: Any) -> None:
        pass

    def after(self, step: Any, sample: Tensor) -> Tensor:
        self.last = sample
        return sample

    def end(self, call: Any) -> None:
        pass


def drawn(pipe: Any, family: str, **changes: Any) -> tuple[Tensor, Tensor, LatentSpace]:
    """(final latents, media as the pipeline decodes them, latent space) of two steps for two."""
    pipe.set_progress_bar_config(disable=True)
    watcher = Watcher()
    arguments = {**CALLS[family], **changes}

    def call(kind: str) -> Tensor:
        noise = [torch.Generator().manual_seed(seed) for seed in (0, 1)]
        with watch_steps(pipe, [watcher]):
            found: Tensor = pipe(
                prompt=["a red cat", "a dog"],
                num_inference_steps=2,
                generator=noise,
                output_type=kind,
                return_dict=False,
                **arguments,
            )[0]
        return found

    media = call("pt")
    watcher.call.index = 0  # of the last step until here, which decides which frames some are
    return watcher.last, media, watcher.call.space


@pytest.fixture(scope="module", params=BUILD)
def space(request: pytest.FixtureRequest) -> tuple[Tensor, Tensor, Any]:
    return drawn(BUILD[request.param](), request.param)


def test_decode_is_the_pipelines_own(space: tuple[Tensor, Tensor, Any]) -> None:
    latents, media, found = space
    shown = found.decode(latents)
    assert shown.dtype == torch.float32
    torch.testing.assert_close(shown, media, atol=1e-5, rtol=0)
    assert shown.std() > 0.02


@pytest.mark.parametrize("family", BUILD)
def test_bfloat16(family: str) -> None:
    small = {} if family in ("ltx", "sana", "sprint") else {"height": 16, "width": 16}
    latents, media, found = drawn(BUILD[family]().to(torch.bfloat16), family, **small)
    leaf = latents.float().requires_grad_()  # x0_hat is float32, whatever the model is
    shown = found.decode(leaf)
    (gradient,) = torch.autograd.grad(shown.mean(), leaf)
    assert shown.dtype == torch.float32 and gradient.isfinite().all() and gradient.any()
    assert (shown - media).abs().mean() < 0.01


def test_gradients_reach_all_latents(space: tuple[Tensor, Tensor, Any]) -> None:
    leaf = space[0].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(space[2].decode(leaf)[0].square().mean(), leaf)
    assert gradient.isfinite().all() and not gradient[1].any()
    assert (gradient[0] != 0).float().mean() > 0.99


def test_parameters_are_left_alone(space: tuple[Tensor, Tensor, Any]) -> None:
    found = space[2]
    found.decode(space[0].clone().requires_grad_()).mean().backward()
    assert all(p.requires_grad and p.grad is None for p in found.vae.parameters())


def test_batch_of_two_is_two_singles(space: tuple[Tensor, Tensor, Any]) -> None:
    latents, _, found = space
    alone = torch.cat([found.decode(latents[i : i + 1]) for i in range(2)])
    torch.testing.assert_close(found.decode(latents), alone, atol=1e-5, rtol=0)


def test_encode_gives_the_pipelines_layout(space: tuple[Tensor, Tensor, Any]) -> None:
    latents, media, found = space
    leaf = media.clone().requires_grad_()
    code = found.encode(leaf)
    (gradient,) = torch.autograd.grad(code.square().mean(), leaf)
    assert code.shape == latents.shape and code.dtype == torch.float32
    assert gradient.isfinite().all() and gradient.any()
    alone = torch.cat([found.encode(media[i : i + 1]) for i in range(2)])
    torch.testing.assert_close(code.detach(), alone, atol=1e-4, rtol=1e-4)


def test_layout_and_scale_are_undone(space: tuple[Tensor, Tensor, Any]) -> None:
    """encode is the inverse of the way from latents to the autoencoder: an autoencoder that is the
    identity gives latents back."""
    latents, _, found = space
    assert torch.equal(found.pack(found.unpack(latents)), latents)
    seen: list[Tensor] = []

    class Mirror(torch.nn.Module):
        config = SimpleNamespace()
        is_gradient_checkpointing = False
        dtype = torch.float32

        def decode(self, z: Tensor, return_dict: bool = True) -> tuple[Tensor]:
            seen.append(z)
            return (z,)

        def encode(self, pixels: Tensor) -> Any:
            return SimpleNamespace(latent=seen[0])

    mirrored = AutoencoderSpace.__new__(AutoencoderSpace)
    vars(mirrored).update(vars(found))
    mirrored.vae = Mirror()
    media = mirrored.decode(latents)
    torch.testing.assert_close(mirrored.encode(media), latents.float(), atol=1e-5, rtol=1e-5)


def test_smaller_decoding(space: tuple[Tensor, Tensor, Any]) -> None:
    latents, media, found = space
    leaf = latents.clone().requires_grad_()
    half = found.decode(leaf, scale=0.5)
    assert half.shape[-2:] == tuple(size // 2 for size in media.shape[-2:])
    (gradient,) = torch.autograd.grad(half.mean(), leaf)
    assert (gradient != 0).float().mean() > 0.99
    with pytest.raises(T2XError, match="scale"):
        found.decode(latents, scale=2.0)


def test_slicing_and_tiling(space: tuple[Tensor, Tensor, Any]) -> None:
    latents, media, found = space
    vae = found.vae
    vae.enable_slicing()
    torch.testing.assert_close(found.decode(latents), media, atol=1e-5, rtol=0)
    vae.disable_slicing()
    vae.enable_tiling()
    leaf = latents.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(found.decode(leaf).mean(), leaf)
    vae.disable_tiling()
    assert gradient.isfinite().all() and gradient.any()


def test_checkpointing_changes_nothing(space: tuple[Tensor, Tensor, Any]) -> None:
    latents, _, found = space
    if not found.vae._supports_gradient_checkpointing:
        with pytest.raises(ValueError, match="does not support gradient checkpointing"):
            found.vae.enable_gradient_checkpointing()
        return
    leaf = latents.clone().requires_grad_()
    (plain,) = torch.autograd.grad(found.decode(leaf).mean(), leaf)
    found.vae.enable_gradient_checkpointing()
    try:
        (again,) = torch.autograd.grad(found.decode(leaf).mean(), leaf)
    finally:
        found.vae.disable_gradient_checkpointing()
    torch.testing.assert_close(again, plain)


# ---- what only some have ---------------------------------------------------------------------


@pytest.mark.parametrize("family", ["wan", "qwen"])
def test_saturated_pixels_keep_their_gradient(family: str) -> None:
    """Their decoders clamp to [-1, 1] inside."""
    latents, _, found = drawn(FAMILIES[family](), family)
    with torch.no_grad():
        found.vae.decoder.conv_out.bias.fill_(9.0)
    leaf = latents.clone().requires_grad_()
    media = found.decode(leaf)
    (gradient,) = torch.autograd.grad(media.mean(), leaf)
    assert media.eq(1).all() and gradient.any()
    (inside,) = torch.autograd.grad(
        found.vae.decode(leaf.reshape(found.unpack(leaf).shape), return_dict=False)[0].mean(), leaf
    )
    assert not inside.any()  # the trap that is avoided


def test_some_frames_of_a_causal_video() -> None:
    """The first latent frames don't depend on later ones in Wan's decoder."""
    latents, media, found = drawn(tiny_wan(), "wan", num_frames=9)
    torch.testing.assert_close(found.decode(latents, frames=1), media[:, :1], atol=1e-5, rtol=0)
    torch.testing.assert_close(
        found.decode(latents, frames=[0, 1]), media[:, :5], atol=1e-5, rtol=0
    )
    leaf = latents.clone().requires_grad_()
    spread = found.decode(leaf, frames=2)
    assert spread.shape[1] == 5
    (gradient,) = torch.autograd.grad(spread.mean(), leaf)
    assert gradient[:, :, 0].any() and gradient[:, :, 2].any() and not gradient[:, :, 1].any()
    torch.testing.assert_close(found.decode(latents, frames=99), media, atol=1e-5, rtol=0)
    for wrong in (0, [3], []):
        with pytest.raises(T2XError, match="latent frames"):
            found.decode(latents, frames=wrong)


@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_run_reaches_all_latent_frames(count: int, every: int) -> None:
    for total in (1, 2, 3, 6, 21):
        steps = total if every == 1 else 2 * (total + 1)
        turns = range(0, every * steps, every)
        chosen = [_sampled(count, total, turn) for turn in turns]
        assert {index for indices in chosen for index in indices} == set(range(total))
        for indices in chosen:
            assert indices == sorted(set(indices)) and len(indices) == min(count, total)
            assert count == 1 or indices[0] == 0  # causal decoders need it


def test_steps_decode_other_frames_each() -> None:
    """A guided step sees one latent frame of Wan, the next another."""
    seen: list[int] = []

    class Looker(Watcher):
        def edit(self, step: Any) -> None:
            with torch.enable_grad():
                leaf = step.clean.clone().requires_grad_()
                media = step.call.space.decode(leaf, frames=1)
                (gradient,) = torch.autograd.grad(media.mean(), leaf)
            seen.extend(gradient.abs().amax((0, 1, 3, 4)).nonzero().flatten().tolist())

    pipe = tiny_wan()
    with watch_steps(pipe, [Looker()]):
        pipe(**{**CALLS["wan"], "num_frames": 9, "num_inference_steps": 3}, prompt=["a cat"])
    assert sorted(seen) == [0, 1, 2]


@pytest.mark.parametrize("family", ["cogvideox", "ltx", "wan"])
def test_one_frame_of_a_video_is_a_picture(family: str) -> None:
    latents, _, found = drawn(FAMILIES[family](), family)
    assert found.decode(latents, frames=1).shape[:2] == (2, 1)


def test_frames_are_nothing_to_pictures() -> None:
    latents, media, found = drawn(tiny_sdxl(), "sdxl")
    torch.testing.assert_close(found.decode(latents, frames=2), media, atol=1e-5, rtol=0)


def test_a_picture_is_a_video_of_one_frame() -> None:
    latents, media, found = drawn(tiny_wan(), "wan", num_frames=1)
    assert found.encode(media[:, 0]).shape == latents.shape


def test_mean_and_std_of_sdxl() -> None:
    pipe = tiny_sdxl()
    pipe.vae.register_to_config(
        latents_mean=[0.5, -1.0, 0.0, 2.0], latents_std=[2.0, 1.0, 0.5, 3.0], scaling_factor=0.5
    )
    latents, media, found = drawn(pipe, "sdxl")
    torch.testing.assert_close(found.decode(latents), media, atol=1e-5, rtol=0)


def test_half_precision_of_sdxl_is_decoded_in_float32() -> None:
    """Activations of its decoder overflow float16."""
    found = []
    for number in (torch.float32, torch.float16):
        pipe = tiny_sdxl()
        with torch.no_grad():
            pipe.vae.decoder.conv_in.weight.mul_(3e5)
        found.append(latent_space(pipe.to(number), {}))
    latents = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    wide, half = (space.decode(latents) for space in found)
    assert half.isfinite().all() and (half - wide).abs().mean() < 0.01
    assert pipe.vae.dtype == torch.float16
    with torch.no_grad():  # what would have been shown
        assert not pipe.vae.decode(latents.half()).sample.isfinite().all()


def test_padding_of_cogvideox_1_5_is_dropped() -> None:
    pipe = tiny_cogvideox(patch_size_t=2)
    latents, media, found = drawn(pipe, "cogvideox", num_frames=9)
    assert latents.shape[1] == 4 and media.shape[1] == 9  # 3 latent frames and one ahead
    torch.testing.assert_close(found.decode(latents), media, atol=1e-5, rtol=0)
    assert found.encode(media).shape == latents.shape


def test_noise_inside_the_decoder_of_ltx_is_always_the_same() -> None:
    pipe = tiny_ltx(decoder_inject_noise=(True,) * 5, timestep_conditioning=True)
    strengths = [v for n, v in pipe.vae.named_parameters() if "per_channel_scale" in n]
    for value in strengths:
        value.data.fill_(1.0)
    assert strengths
    found = latent_space(pipe, {"height": 32, "width": 32, "num_frames": 5})
    latents = torch.randn(1, 32, 8, generator=torch.Generator().manual_seed(0))
    state = torch.get_rng_state()
    first = found.decode(latents)
    assert torch.equal(first, found.decode(latents))
    assert torch.equal(state, torch.get_rng_state())


# ---- which -----------------------------------------------------------------------------------


def test_a_space_of_ones_own_comes_first() -> None:
    pipe = tiny_stable_diffusion()
    own = SimpleNamespace(decode=None, encode=None)
    pipe.t2x_latent_space = own
    assert latent_space(pipe, {}) is own
    assert latent_space(SimpleNamespace(t2x_latent_space=own), {}) is own


def test_other_pipelines_are_known_by_their_parts() -> None:
    found = latent_space(SimpleNamespace(vae=tiny_vae(scaling_factor=0.5)), {})
    latents = torch.zeros(1, 4, 4, 4)
    assert found.decode(latents).shape == (1, 3, 16, 16)
    with pytest.raises(T2XError, match="5 channels"):
        found.decode(torch.zeros(1, 5, 4, 4))


def test_tiny_autoencoders_stand_in() -> None:
    from diffusers import AutoencoderTiny

    pipe = tiny_stable_diffusion()
    pipe.vae = AutoencoderTiny(
        encoder_block_out_channels=(8, 8, 8),
        decoder_block_out_channels=(8, 8, 8),
        num_encoder_blocks=(1, 1, 1),
        num_decoder_blocks=(1, 1, 1),
    ).eval()
    latents, media, found = drawn(pipe, "sd15")
    torch.testing.assert_close(found.decode(latents), media, atol=1e-5, rtol=0)
    assert found.encode(media).shape == latents.shape


class Strange(torch.nn.Module):
    """No autoencoder of diffusers."""


@pytest.mark.parametrize("pipe", [SimpleNamespace(), SimpleNamespace(vae=Strange())])
def test_unknown_autoencoders_are_refused(pipe: Any) -> None:
    with pytest.raises(T2XError, match="t2x_latent_space") as error:
        latent_space(pipe, {})
    assert all(name in str(error.value) for name in AUTOENCODERS)


def test_packed_latents_need_their_sizes() -> None:
    with pytest.raises(T2XError, match="FluxPipeline can't be unpacked without height"):
        latent_space(tiny_flux(), {})


def test_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        latent_space(tiny_sana(), {}).decode(torch.zeros(1, 4, 4, 4))
