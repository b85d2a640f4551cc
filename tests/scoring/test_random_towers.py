"""Networks of published size: so large as published, built without memory until they fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from t2x.errors import T2XError
from t2x.scoring import random_towers
from t2x.scoring.random_towers import (
    TooLarge,
    blip_itm,
    blip_reward,
    dinov2_base,
    lpips_files,
    open_clip_tower,
    qwen2_vl,
    random_affine,
    random_model,
)

# Millions of parameters, by the cards of the published weights.
PUBLISHED: dict[str, tuple[Callable[[], Any], float]] = {
    "openai ViT-L/14": (lambda: open_clip_tower("ViT-L-14-quickgelu"), 427.6),
    "LAION ViT-H/14": (lambda: open_clip_tower("ViT-H-14"), 986.1),
    "SigLIP so400m": (lambda: open_clip_tower("ViT-SO400M-14-SigLIP-384"), 878.0),
    "blip-itm-base-coco": (blip_itm, 223.7),
    "ImageReward without its head": (blip_reward, 446.1),
    "dinov2-base": (dinov2_base, 86.6),
    "Qwen2-VL-2B": (lambda: qwen2_vl("2B"), 2209.0),
    "Qwen2-VL-7B": (lambda: qwen2_vl("7B"), 8291.4),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_size_is_the_published_one(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counts: list[int] = []

    def count(make: Callable[[str], nn.Module], **options: Any) -> Any:
        with torch.device("meta"):
            counts.append(sum(p.numel() for p in make("meta").parameters()))
        raise KeyboardInterrupt

    monkeypatch.setattr(random_towers, "random_model", count)
    build, millions = PUBLISHED[name]
    with pytest.raises(KeyboardInterrupt):
        build()
    assert counts[0] / 1e6 == pytest.approx(millions, rel=2e-3)
    assert "randomly" not in caplog.text


def test_what_does_not_fit_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_towers, "available_bytes", lambda device: 2**30)
    places: list[str] = []

    def make(place: str) -> nn.Module:
        places.append(place)
        return nn.Linear(2**15, 2**14)

    with pytest.raises(TooLarge, match=r"needs 2\.2 GiB of memory as float32, 1\.0 GiB are"):
        random_model(make)
    assert places == ["meta"]
    with pytest.raises(TooLarge, match=r"needs 1\.1 GiB of memory as bfloat16"):
        random_model(make, dtype=torch.bfloat16)


def test_weights_are_the_same_every_time_and_of_unit_gain() -> None:
    def make(place: str) -> nn.Module:
        return nn.Sequential(nn.Linear(4096, 512), nn.LayerNorm(512), nn.Embedding(8, 512))

    state = torch.get_rng_state()
    first, second = (random_model(make).state_dict() for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[n], second[n]) and first[n].isfinite().all() for n in first)
    assert float(first["0.weight"].std()) == pytest.approx(1 / 64, rel=0.02)
    assert not first["0.bias"].any() and bool((first["1.weight"] == 1).all())
    model = random_model(make)
    assert not model.training and not any(p.requires_grad for p in model.parameters())


def test_what_the_constructor_computes_is_kept() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.scale = nn.Parameter(torch.tensor(4.6))
            self.register_buffer("mask", torch.ones(3, 3).triu(1), persistent=False)

    model = random_model(lambda place: Masked())
    assert float(model.scale) == pytest.approx(4.6)
    assert torch.equal(model.mask, torch.ones(3, 3).triu(1))


def test_an_unknown_architecture_is_said() -> None:
    with pytest.raises(T2XError, match="ViT-L-14-quickgelu"):
        open_clip_tower("ViT-nothing")


def test_a_stand_in_tokenizer_fits_its_tower() -> None:
    words = random_towers._Words(64, 32000)(["a cat", "", "x " * 99])
    assert words.shape == (3, 64) and int(words.max()) < 32000
    assert words[0, 2:].unique().tolist() == [1]


def test_affine_layers_and_lpips_files_have_the_widths_asked_for() -> None:
    shapes = [tuple(w.shape) for w, _ in random_affine(8, 4, 2)]
    assert shapes == [(4, 8), (2, 4)]
    trunk, layers = lpips_files("alexnet", (2, 5, 8, 10, 12))
    assert [w.shape[1] for w in layers.values()] == [64, 192, 384, 256, 256]
    assert trunk["features.0.weight"].shape == (64, 3, 11, 11)


def test_initialisers_that_draw_until_all_is_in_range_come_to_an_end() -> None:
    """trunc_normal_ draws anew what is out of range, which fresh memory may be for ever."""
    weight = torch.full((4, 4), 100.0)
    with random_towers._Undrawn():
        torch.nn.init.trunc_normal_(weight, std=1.0, a=-2.0, b=2.0)
    assert not weight.any()
