"""Recipe of the autoencoder: the loss, and the exact change of latent units."""

from __future__ import annotations

import pytest
import torch

emoji_vae = pytest.importorskip("t2x.train.emoji_vae")


def test_loss_of_a_constant_shift_has_no_edge_part() -> None:
    """y = x + 0.5: 4 * 0.25 + 0.5 = 1.5, differences cancel."""
    x = torch.rand(3, 3, 8, 8)
    loss = emoji_vae.reconstruction_loss(x, x + 0.5)
    assert loss.shape == (3,)
    assert loss.tolist() == pytest.approx([1.5] * 3, abs=1e-5)


def test_standardising_keeps_the_round_trip_and_gives_unit_latents() -> None:
    torch.manual_seed(0)
    vae = emoji_vae.build_vae().eval()
    x = emoji_vae.picture_batch(0, 8)
    with torch.no_grad():
        before = vae.decode(vae.encode(x).latent_dist.mode()).sample
        emoji_vae.standardise_latents(vae, first=0, count=128)
        z = vae.encode(emoji_vae.picture_batch(0, 128)).latent_dist.mode()
        after = vae.decode(vae.encode(x).latent_dist.mode()).sample
    assert torch.allclose(before, after, atol=1e-4)
    assert z.mean(dim=(0, 2, 3)).abs().max() < 1e-3
    assert (z.std(dim=(0, 2, 3)) - 1).abs().max() < 1e-3
    assert vae.config.scaling_factor == 1.0


def test_crop_is_one_window_for_the_batch() -> None:
    x = torch.arange(64 * 64.0).view(1, 1, 64, 64).expand(2, 3, 64, 64)
    crop = emoji_vae.random_crop(x, torch.Generator().manual_seed(1))
    assert crop.shape == (2, 3, emoji_vae.CROP, emoji_vae.CROP)
    assert torch.equal(crop[0], crop[1])
    assert crop[0, 0, 0, 1] - crop[0, 0, 0, 0] == 1
    assert crop[0, 0, 1, 0] - crop[0, 0, 0, 0] == 64
