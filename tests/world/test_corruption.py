"""Corruptions: determinism, range, the strength that is reported, and the flow that redraws."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from t2x.world.corruption import CORRUPTIONS, corrupt, partly_denoised, to_pictures
from t2x.world.render import render_scene
from t2x.world.scene import Group, Scene


@pytest.fixture(scope="module")
def pictures() -> torch.Tensor:
    scene = Scene((Group("cat", "red"), Group("bus")), "above")
    return to_pictures([render_scene(scene, seed) for seed in range(24)])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_to_pictures_keeps_the_bytes() -> None:
    array = render_scene(Scene((Group("cat"),)), 0)
    picture = to_pictures([array])
    assert picture.shape == (1, 3, 64, 64)
    assert torch.equal((picture[0] * 255).round().byte(), torch.from_numpy(array).permute(2, 0, 1))


def test_same_seed_same_pictures(pictures: torch.Tensor) -> None:
    a, lost = corrupt(pictures, generator())
    b, again = corrupt(pictures, generator())
    c, _ = corrupt(pictures, generator(1))
    assert torch.equal(a, b)
    assert torch.equal(lost, again)
    assert not torch.equal(a, c)
    assert float(a.min()) >= 0
    assert float(a.max()) <= 1


def test_clean_share(pictures: torch.Tensor) -> None:
    kept, lost = corrupt(pictures, generator(), clean=1.0)
    assert torch.equal(kept, pictures)
    assert float(lost.max()) == 0
    spoilt, lost = corrupt(pictures, generator(), clean=0.0)
    assert float(lost.min()) > 0
    assert float((spoilt - pictures).abs().flatten(1).max(1).values.min()) > 0


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_stronger_is_further_away(name: str, pictures: torch.Tensor) -> None:
    function, _ = CORRUPTIONS[name]
    distance = []
    for strength in (0.1, 0.5, 1.0):
        level = torch.full((len(pictures), 1, 1, 1), strength)
        out = function(pictures, level, generator())
        assert out.shape == pictures.shape
        distance.append(float((out - pictures).abs().mean()))
    assert 0 < distance[0] < distance[1] < distance[2]


def test_euler_steps_of_a_known_flow() -> None:
    """With flow = noise - x0 every number of steps leads back to x0, whatever sigma is."""
    x0 = torch.rand(2, 3, 8, 8, generator=generator())
    noise = torch.randn(x0.shape, generator=generator(7))
    sigma = torch.tensor([0.3, 0.9])
    times: list[list[int]] = []

    def unet(x: torch.Tensor, t: torch.Tensor, **_: Any) -> SimpleNamespace:
        times.append(t.tolist())
        return SimpleNamespace(sample=noise - (x0 * 2 - 1))

    vae = SimpleNamespace(
        encode=lambda x: SimpleNamespace(latent_dist=SimpleNamespace(mode=lambda: x)),
        decode=lambda z: SimpleNamespace(sample=z),
        config=SimpleNamespace(scaling_factor=1.0),
    )

    class Tokenizer:
        model_max_length = 4

        def __call__(self, texts: list[str], **_: Any) -> SimpleNamespace:
            return SimpleNamespace(input_ids=torch.zeros(len(texts), 4, dtype=torch.long))

    pipeline = SimpleNamespace(
        vae=vae, unet=unet, tokenizer=Tokenizer(), text_encoder=lambda ids: (ids.float(),)
    )
    out = partly_denoised(pipeline, x0, ["a", "b"], generator(7), sigma=sigma, steps=3)
    assert torch.allclose(out, x0, atol=1e-5)
    assert times[0] == [300, 900]
    assert len(times) == 3


def test_a_stock_pipeline_redraws_under_autocast() -> None:
    from t2x.testing import tiny_stable_diffusion

    pipeline = tiny_stable_diffusion()
    pictures = torch.rand(3, 3, 64, 64, generator=generator())
    with torch.autocast("cpu", torch.bfloat16):  # here, where a recipe might leave it out
        out = partly_denoised(
            pipeline, pictures, ["a", "b", "c"], generator(), sigma=torch.full((3,), 0.5)
        )
    assert out.shape == pictures.shape
    assert out.dtype == torch.float32
    assert not torch.equal(out[0], out[1])
