"""The encoder against stock open_clip, its tokens, and what it shares."""

from __future__ import annotations

import logging
from pathlib import Path

import open_clip
import pytest
import torch

from t2x.errors import T2XError
from t2x.media import to_pil
from t2x.scoring.clip_encoder import load_clip

from .conftest import LENGTH, PROMPTS, save_tiny_clip


@pytest.mark.parametrize(("crop", "tolerance"), [(32, 1e-5), (40, 0.1)])
def test_equals_stock_open_clip(
    tiny_clip: Path, pictures: torch.Tensor, crop: int, tolerance: float
) -> None:
    """Error relative to the spread over pictures: without resizing that of float32, with it that of
    PIL, which rounds twice to 8 bits on the way.
    """
    name = f"local-dir:{tiny_clip}"
    model, _, prepare = open_clip.create_model_and_transforms(name)
    tokenizer = open_clip.get_tokenizer(name)
    media = pictures[:, :, :crop, :crop]
    with torch.no_grad():
        image = model.eval().encode_image(torch.stack([prepare(p) for p in to_pil(media)]))
        text = model.encode_text(tokenizer(PROMPTS))
    ours = load_clip(tiny_clip).encode(PROMPTS, media)
    assert (ours["image"] - image).abs().max() < tolerance * image.std(0).mean()
    assert torch.allclose(ours["text"], text, atol=1e-6)
    assert torch.allclose(ours["logit_scale"], model.logit_scale.expand(6))


def test_preprocessing_comes_from_the_folder(
    tiny_clip: Path, tmp_path: Path, pictures: torch.Tensor
) -> None:
    other = save_tiny_clip(tmp_path / "other", resize_mode="squash", mean=[0.0, 0.0, 0.0])
    a, b = load_clip(tiny_clip), load_clip(other)
    assert b.preprocess.mean == (0.0, 0.0, 0.0)
    assert b.preprocess.mode == "squash"
    difference = (a.encode_image(pictures) - b.encode_image(pictures)).abs().max()
    assert difference > 0.1 * a.encode_image(pictures).std(0).mean()


def test_pools_at_the_end_token(tiny_clip: Path) -> None:
    """What stands after the end token changes nothing; the end token itself does."""
    encoder = load_clip(tiny_clip)
    ids = encoder.tokenize(["a cat"])
    end = int(encoder.model.text_eos_id)
    place = int((ids[0] == end).nonzero()[0])
    assert place == len("acat") + 1
    tail, cut = ids.clone(), ids.clone()
    tail[0, place + 1 :] = 7
    cut[0, place] = 7
    encode = encoder.model.encode_text
    assert torch.allclose(encode(ids), encode(tail), atol=1e-6)
    assert not torch.allclose(encode(ids), encode(cut), atol=1e-2)


def test_truncation_keeps_the_end_and_is_reported(
    tiny_clip: Path, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = load_clip(tiny_clip)
    fits, too_long = "x" * (LENGTH - 2), "x" * (LENGTH + 40)
    assert encoder.truncated([fits, fits + "x", too_long, "a cat"]) == [False, True, True, False]
    ids = encoder.tokenize([fits, too_long])
    assert ids[:, -1].tolist() == [encoder.model.text_eos_id] * 2
    with caplog.at_level(logging.WARNING):
        text = encoder.encode_text([fits, too_long])
    assert "1 of 2 prompts exceed 24 tokens" in caplog.text
    # Byte tokens: the last of `fits` ends its word, which is all that the cut text lacks.
    assert torch.cosine_similarity(text[0], text[1], dim=0) > 0.9


def test_special_tokens_in_a_prompt_are_text(tiny_clip: Path) -> None:
    encoder = load_clip(tiny_clip)
    ids = encoder.tokenize(["a<|endoftext|>b"])
    assert int((ids[0] == encoder.model.text_eos_id).nonzero()[0]) > 10


def test_batches_and_repeats_do_not_matter(tiny_clip: Path, pictures: torch.Tensor) -> None:
    encoder = load_clip(tiny_clip)
    together = encoder.encode(PROMPTS, pictures)
    encoder.batch_size = 2
    apart = encoder.encode(PROMPTS, pictures)
    encoder.batch_size = 64
    for part in ("image", "text"):
        assert torch.allclose(together[part], apart[part], atol=2e-6)
    assert torch.equal(together["text"][0], together["text"][3])


def test_one_source_is_loaded_once_and_freed(tiny_clip: Path) -> None:
    encoder = load_clip(tiny_clip)
    assert load_clip(str(tiny_clip)) is encoder
    assert load_clip(tiny_clip, dtype=torch.float64) is not encoder


def test_prefix_is_another_text_and_the_same_weights(tiny_clip: Path) -> None:
    plain = load_clip(tiny_clip)
    told = plain.with_prefix("A photo depicts ")
    assert told.model is plain.model
    assert told.key != plain.key
    assert torch.allclose(told.encode_text(["x"]), plain.encode_text(["A photo depicts x"]))


def test_a_loaded_object_is_taken(pictures: torch.Tensor) -> None:
    from t2x.testing import tiny_open_clip

    encoder = load_clip(tiny_open_clip(size=64))
    features = encoder.encode(PROMPTS, pictures)
    assert features["image"].shape == features["text"].shape == (6, 16)
    assert encoder.truncated(PROMPTS) == [False] * 6


@pytest.mark.parametrize("source", ["no-such-folder", "ViT-nope:openai"])
def test_unknown_sources_are_one_clear_line(source: str) -> None:
    with pytest.raises(T2XError, match=r"can't (find|load)") as caught:
        load_clip(source)
    assert "\n" not in str(caught.value)


def test_a_folder_without_weights_is_refused(tiny_clip: Path, tmp_path: Path) -> None:
    (tmp_path / "open_clip_config.json").write_text(
        (tiny_clip / "open_clip_config.json").read_text()
    )
    with pytest.raises(T2XError, match="can't load the CLIP"):
        load_clip(tmp_path)
