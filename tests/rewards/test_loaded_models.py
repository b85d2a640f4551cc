"""Rewards over a model that is loaded already, and where those go that are not."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from t2x.registry import load_reward
from t2x.scoring.clip_encoder import load_clip
from t2x.scoring.vlm import load_vlm
from t2x.testing import (
    tiny_blip,
    tiny_open_clip,
    tiny_siglip,
    tiny_transformers_clip,
)
from t2x.types import Context

from .cases import WORDS
from .tiny_networks import tiny_dino
from .tiny_vlms import fresh, pictures

# Reward, how its model is made, and which of its options hold it.
LOADED: dict[str, tuple[str, Callable[[], tuple[Any, Any]], dict[str, Any]]] = {
    "open_clip": ("clip", tiny_open_clip, {"scale": "logit"}),
    "transformers": ("pickscore", tiny_transformers_clip, {}),
    "siglip": ("siglip", tiny_siglip, {}),
    "blip": ("blip-itm", tiny_blip, {}),
    "blip-itc": ("blip-itm", tiny_blip, {"scale": "itc"}),
    "dino": ("dino", tiny_dino, {}),
    "vqa": ("vqa", lambda: fresh("qwen2_vl"), {}),
    "t5": ("vqa", lambda: fresh("blip2_t5"), {"scale": "clip-flant5"}),
    "promptecho": ("promptecho", lambda: fresh("qwen2_vl"), {"minus_prior": True}),
    "yes-no": ("yes-no", lambda: fresh("qwen2_vl"), {}),
}


def _media() -> tuple[torch.Tensor, Context]:
    media = pictures(len(WORDS))
    return media, Context(source=media.flip(0))


def _state(model: torch.nn.Module) -> list[Any]:
    flags = [m.training for m in model.modules()]
    return [*flags, *((p.requires_grad, p.dtype, p.device) for p in model.parameters())]


@pytest.mark.parametrize("kind", LOADED)
def test_a_model_in_training_scores_and_stays_as_it_is(kind: str) -> None:
    """In evaluation mode while it scores, without a gradient of its own, and in the precision that
    it has; also where gradients of the picture are asked for.
    """
    name, build, options = LOADED[kind]
    media, context = _media()
    expected = load_reward(name, source=build(), **options).score(WORDS, media, context=context)
    model, processor = build()
    model.train().requires_grad_(True)
    before = _state(model)
    reward = load_reward(name, source=(model, processor), **options)
    assert torch.equal(reward.score(WORDS, media, context=context), expected)
    leaf = media.clone().requires_grad_()
    scores = reward.score(WORDS, leaf, context=context)
    scores.sum().backward()
    assert leaf.grad is not None and bool((leaf.grad != 0).any())
    assert all(p.grad is None for p in model.parameters())
    assert _state(model) == before


@pytest.mark.parametrize("kind", LOADED)
def test_a_loaded_model_keeps_its_number_format(kind: str) -> None:
    name, build, options = LOADED[kind]
    media, context = _media()
    exact = load_reward(name, source=build(), **options).score(WORDS, media, context=context)
    model, processor = build()
    reward = load_reward(name, source=(model.bfloat16(), processor), **options)
    assert next(model.parameters()).dtype == torch.bfloat16
    scores = reward.score(WORDS, media, context=context)
    assert scores.dtype == torch.float32 and bool(scores.isfinite().all())
    assert not torch.equal(scores, exact)
    load_reward(name, source=(model, processor), dtype=torch.float64, **options)
    assert next(model.parameters()).dtype == torch.float64  # when it is said


@pytest.mark.parametrize("kind", ["transformers", "siglip", "blip", "dino", "vqa", "t5"])
@pytest.mark.parametrize("setting", ["image_mean", "image_std"])
def test_preprocessing_is_read_from_the_checkpoint(kind: str, setting: str) -> None:
    """Weights of another mean or deviation are not scored with that of CLIP."""
    name, build, options = LOADED[kind]
    media, context = _media()
    model, processor = build()
    expected = load_reward(name, source=(model, processor), **options)
    own = expected.score(WORDS, media, context=context)
    processor = copy.deepcopy(processor)
    images = getattr(processor, "image_processor", processor)
    setattr(images, setting, [0.2, 0.3, 0.9])
    other = load_reward(name, source=(copy.deepcopy(model), processor), **options)
    assert (other.score(WORDS, media, context=context) - own).abs().max() > 1e-3 * own.std()


def test_sources_go_to_the_best_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that is not there is stood in for by the device meta, on which nothing computes."""
    for part in tiny_transformers_clip():
        part.save_pretrained(tmp_path / "clip")
    for part in fresh("qwen2_vl"):
        part.save_pretrained(tmp_path / "vlm")
    for module in ("clip_encoder", "vlm"):
        monkeypatch.setattr(
            f"t2x.scoring.{module}.present_device", lambda d: torch.device(d or "meta")
        )
    for load, folder in ((load_clip, "clip"), (load_vlm, "vlm")):
        best, here = load(tmp_path / folder), load(tmp_path / folder, device="cpu")
        assert {p.device.type for p in best.model.parameters()} == {"meta"}
        assert {p.device.type for p in here.model.parameters()} == {"cpu"}
        assert best is not here and load(tmp_path / folder) is best
        assert not any(p.requires_grad for p in best.model.parameters())
    assert load_clip("emoji-clip").model.logit_scale.device.type == "meta"
    loaded = tiny_open_clip()
    assert load_clip(loaded).model.logit_scale.device.type == "cpu"


def test_checkpoints_come_in_their_own_format_where_there_is_no_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, processor = tiny_transformers_clip()
    for part in (model.half(), processor):
        part.save_pretrained(tmp_path)
    assert load_clip(tmp_path, device="cpu").model.logit_scale.dtype == torch.float32
    assert load_clip(tmp_path, device="meta").model.logit_scale.dtype == torch.float16
    wide = load_clip(tmp_path, device="meta", dtype=torch.float64)
    assert wide.model.logit_scale.dtype == torch.float64
    assert next(load_vlm("emoji-vlm", device="meta").model.parameters()).dtype == torch.float32


def test_scores_come_back_where_the_media_are() -> None:
    """Also what was never computed; meta tensors stand in for those of another device."""
    from t2x.scoring.pairs import device_of

    there = torch.zeros(0, 3, 8, 8, device="meta")
    assert device_of(there).type == device_of([there[:0]]).type == "meta"
    assert device_of([]).type == "cpu"
    for name in ("clip", "critique", "quality"):
        assert load_reward(name).score([], torch.zeros(0, 3, 8, 8)).device.type == "cpu"
    empty = load_reward("clip").score([], there)
    assert empty.device.type == "meta"


def test_without_a_gradient_activations_are_freed() -> None:
    """Inference that keeps its graph runs out of memory: one batch's activations are gone before
    the scores are."""
    model, tokenize = tiny_open_clip()
    kept: list[Any] = []

    def watch(module: object, inputs: object, output: Any) -> None:
        kept.append(weakref.ref(output[0] if isinstance(output, tuple) else output))

    model.visual.transformer.register_forward_hook(watch)
    model.requires_grad_(True)
    reward = load_reward("clip", source=(model, tokenize))
    scores = reward.score(WORDS, pictures(4))
    gc.collect()
    assert kept and all(found() is None for found in kept)
    assert scores.grad_fn is None
