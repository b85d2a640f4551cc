"""transformers' CLIP and SigLIP against their own forward pass and processors."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CLIPImageProcessor, ViTImageProcessor

from t2x.errors import T2XError
from t2x.media import to_pil
from t2x.scoring.clip_encoder import load_clip
from t2x.scoring.resize import Preprocess
from t2x.testing import tiny_open_clip, tiny_siglip, tiny_transformers_clip

TEXTS = ["a red cat", "two dogs", "a small bus on the left of a large dog", "pizza"]


@pytest.fixture(scope="module")
def clip() -> tuple[Any, Any]:
    return tiny_transformers_clip()


@pytest.fixture(scope="module")
def siglip() -> tuple[Any, Any]:
    return tiny_siglip()


@pytest.fixture
def media() -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    smooth = torch.rand(4, 3, 5, 7, generator=generator)
    large = torch.nn.functional.interpolate(smooth, size=(40, 57), mode="bilinear")
    return (large * 255).round() / 255


@pytest.mark.parametrize(("crop", "tolerance"), [(32, 1e-5), (57, 0.1)])
@pytest.mark.parametrize("build", [tiny_transformers_clip, tiny_siglip])
def test_equals_the_model_s_own_forward(
    build: Any, media: torch.Tensor, crop: int, tolerance: float
) -> None:
    """Error relative to the spread over pictures: without resizing that of float32, with it that of
    8 bits, to which the processor rounds on the way. Logits of the pairs, from the output object.
    """
    model, processor = build()
    part = media[:, :, :crop, :crop]
    inputs = processor(text=TEXTS, images=to_pil(part), padding="max_length", return_tensors="pt")
    with torch.no_grad():
        theirs = model(input_ids=inputs["input_ids"], pixel_values=inputs["pixel_values"])
    ours = load_clip((model, processor)).encode(TEXTS, part)
    unit = {k: torch.nn.functional.normalize(ours[k], dim=-1) for k in ("image", "text")}
    spread = theirs.image_embeds.std(0).mean()
    assert (unit["image"] - theirs.image_embeds).abs().max() < tolerance * spread
    assert torch.allclose(unit["text"], theirs.text_embeds, atol=1e-6)
    cos = (unit["image"] * unit["text"]).sum(-1)
    logits = ours["logit_scale"].exp() * cos + ours.get("logit_bias", torch.zeros(4))
    own = theirs.logits_per_image.diag()
    assert (logits - own).abs().max() < tolerance * theirs.logits_per_image.std(0).mean()


def test_embeddings_of_transformers_4_are_taken(clip: tuple[Any, Any], media: torch.Tensor) -> None:
    """There get_*_features gives the tensor itself."""
    encoder = load_clip(clip)
    expected = encoder.encode(TEXTS, media)
    wrapped = encoder.model.clip

    class Old(torch.nn.Module):
        logit_scale = wrapped.logit_scale

        def get_image_features(self, **inputs: Any) -> torch.Tensor:
            return wrapped.get_image_features(**inputs).pooler_output

        def get_text_features(self, **inputs: Any) -> torch.Tensor:
            return wrapped.get_text_features(**inputs).pooler_output

    encoder.model.clip = Old()
    encoder.cache = type(encoder.cache)()
    features = encoder.encode(TEXTS, media)
    for part in ("image", "text"):
        assert torch.equal(features[part], expected[part])


def test_a_folder_is_loaded_once(
    clip: tuple[Any, Any], media: torch.Tensor, tmp_path: Path
) -> None:
    for part in clip:
        part.save_pretrained(tmp_path / "clip")
    encoder = load_clip(tmp_path / "clip")
    assert encoder.preprocess.size == (32, 32)
    assert load_clip(tmp_path / "clip") is encoder
    expected = load_clip(clip).encode(TEXTS, media)
    features = encoder.encode(TEXTS, media)
    for part in ("image", "text", "logit_scale"):
        assert torch.allclose(features[part], expected[part], atol=1e-6)


def test_the_processor_may_lie_elsewhere(
    clip: tuple[Any, Any], media: torch.Tensor, tmp_path: Path
) -> None:
    model, processor = clip
    model.save_pretrained(tmp_path / "model")
    processor.image_processor.image_mean = [0.1, 0.2, 0.3]
    processor.save_pretrained(tmp_path / "processor")
    processor.image_processor.image_mean = [0.48145466, 0.4578275, 0.40821073]
    encoder = load_clip(tmp_path / "model", processor=tmp_path / "processor")
    assert encoder.preprocess.mean == (0.1, 0.2, 0.3)
    with pytest.raises(T2XError, match="cannot load the CLIP"):
        load_clip(tmp_path / "model")


def test_hub_ids_go_to_the_library_whose_format_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    from t2x.scoring import clip_encoder, clip_sources

    asked: list[str] = []

    def from_pretrained(name: str, processor: Any, dtype: torch.dtype) -> Any:
        asked.append(f"transformers {name} {processor}")
        return tiny_transformers_clip()

    def load_open_clip(name: str, device: str, dtype: torch.dtype) -> Any:
        asked.append(f"open_clip {name}")
        return tiny_open_clip()

    def hub_file(repository: str, name: str) -> Path:
        if repository != "owner/open":
            raise T2XError("no such file")
        return Path(name)

    for function in (from_pretrained, load_open_clip):
        monkeypatch.setattr(clip_encoder, function.__name__, function)
    monkeypatch.setattr(clip_sources, "hub_file", hub_file)
    load_clip("owner/open")
    load_clip("owner/other")
    load_clip("owner/open", processor="owner/third")
    load_clip("hf-hub:owner/other")
    assert asked == [
        "open_clip hf-hub:owner/open",
        "transformers owner/other None",
        "transformers owner/open owner/third",
        "open_clip hf-hub:owner/other",
    ]


def test_siglip_reads_its_padding(siglip: tuple[Any, Any]) -> None:
    """Padded to the full length and unmasked, as it was trained: not what padding to the longest
    or a mask gives.
    """
    model, processor = siglip
    encoder = load_clip(siglip)
    text = encoder.encode_text(TEXTS[:1])
    wrong = []
    for options in ({"padding": True}, {"padding": "max_length", "return_attention_mask": True}):
        inputs = processor.tokenizer(TEXTS[:1], return_tensors="pt", **options)
        with torch.no_grad():
            wrong.append(model.get_text_features(**inputs).pooler_output)
    assert encoder.tokenize(TEXTS).shape == (4, 16)
    for other in wrong:
        assert (other - text).abs().max() > 0.05 * text.std()


@pytest.mark.parametrize("build", [tiny_transformers_clip, tiny_siglip])
def test_truncation_keeps_the_end_and_is_reported(
    build: Any, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = load_clip(build())
    end = encoder._tokenize.tokenizer.eos_token_id
    word = "a " if encoder.context_length == 16 else "x"
    room = encoder.context_length - (1 if encoder.context_length == 16 else 2)
    fits, long = word * room, word * 300
    assert encoder.truncated([fits, fits + word, long]) == [False, True, True]
    ids = encoder.tokenize([fits, long])
    assert ids[:, -1].tolist() == [end, end] and (ids[:, -2] != end).all()
    with caplog.at_level(logging.WARNING):
        encoder.encode_text([fits, long])
    assert f"1 of 2 prompts exceed {encoder.context_length} tokens" in caplog.text


def test_special_tokens_in_a_prompt_are_text(
    clip: tuple[Any, Any], siglip: tuple[Any, Any]
) -> None:
    for pair, token in ((clip, "<|endoftext|>"), (siglip, "</s>")):
        encoder = load_clip(pair)
        end = pair[1].tokenizer.eos_token_id
        ids = encoder.tokenize([f"a cat {token} dog"])[0].tolist()
        without = encoder.tokenize(["a cat dog"])[0].tolist()
        assert ids.index(end) > without.index(end)


def test_batch_equals_singles_in_any_company(siglip: tuple[Any, Any], media: torch.Tensor) -> None:
    encoder = load_clip(siglip)
    together = encoder.encode(TEXTS, media)
    for i, text in enumerate(TEXTS):
        encoder.cache = type(encoder.cache)()
        alone = encoder.encode([text], media[i : i + 1])
        for part in ("image", "text"):
            assert torch.allclose(alone[part][0], together[part][i], atol=1e-5)


@pytest.mark.parametrize("wide", [39, 41, 43, 45])
def test_the_crop_begins_where_transformers_begins_it(clip: tuple[Any, Any], wide: int) -> None:
    """32 of 32 x ``wide``: torchvision rounds half to even, transformers down."""
    x = torch.rand(1, 3, 32, wide, generator=torch.Generator().manual_seed(0))
    x = (x * 255).round() / 255
    _, processor = clip
    theirs = processor.image_processor(to_pil(x), return_tensors="pt")["pixel_values"]
    ours = load_clip(clip).preprocess
    assert torch.allclose(ours(x), theirs, atol=1e-5)
    differs = not torch.allclose(replace(ours, centre="round")(x), theirs, atol=1e-5)
    assert differs == ((wide - 32) % 4 == 3)


def test_preprocessing_that_can_not_be_followed_is_refused() -> None:
    wrong = (
        CLIPImageProcessor(do_center_crop=False),
        CLIPImageProcessor(crop_size={"height": 300, "width": 300}),
        CLIPImageProcessor(resample=0),
        ViTImageProcessor(do_normalize=False),
        ViTImageProcessor(rescale_factor=1 / 127.5),
    )
    for processor in wrong:
        with pytest.raises(T2XError, match="can't follow the picture processor"):
            Preprocess.from_transformers(processor.to_dict())


def test_what_is_no_clip_is_refused(tmp_path: Path) -> None:
    from t2x.testing import tiny_causal_lm

    for part in tiny_causal_lm():
        part.save_pretrained(tmp_path)
    with pytest.raises(T2XError, match=r"cannot load the CLIP|give a CLIP"):
        load_clip(tmp_path)
    with pytest.raises(T2XError, match="cannot load the CLIP"):
        load_clip("transformers:no/such/folder")
