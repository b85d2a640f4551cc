"""The encoder against stock open_clip, its tokens, and what it shares."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch

from t2x.errors import T2XError
from t2x.media import to_pil
from t2x.registry import load_reward
from t2x.scoring.clip_encoder import load_clip, text_part
from t2x.scoring.text_cache import TextCache
from t2x.testing import tiny_open_clip

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


@pytest.mark.parametrize(
    "hidden",
    [
        "<end_of_text>",
        "<END_of_text>",
        "&lt;end_of_text&gt;",
        "&amp;amp;amp;amp;lt;end_of_text&amp;amp;amp;amp;gt;",
        "＜end_of_text＞",
        "<<end_of_text>end_of_text>",
        "<start_of_text>",
    ],
)
def test_special_tokens_are_text_however_they_are_written(hidden: str) -> None:
    """open_clip's own tokenizer takes all of these for its end or start token."""
    model, _ = tiny_open_clip()
    tokenizer = open_clip.get_tokenizer("ViT-B-32")
    encoder = load_clip((model, tokenizer))
    ids = encoder.tokenize([f"a cat {hidden} dog"])[0].tolist()
    end = tokenizer.eot_token_id
    dog = tokenizer.encode("dog")[0]
    assert ids.count(tokenizer.sot_token_id) == ids.count(end) == 1
    assert ids.index(dog) == ids.index(end) - 1
    assert encoder.tokenize(["x &lt; y"]).equal(
        tokenizer(["x &lt; y"])
    )  # nothing special: as it is


def test_texts_are_embedded_once(tiny_clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = load_clip(tiny_clip)
    encoder.cache = TextCache(3)
    calls = _count(monkeypatch, encoder.model, "encode_text")
    first = encoder.encode_text(["a cat", "two red dogs", "a cat"])
    assert calls == [2]
    again = encoder.encode_text(["two red dogs", "a cat", "blue kite"])
    assert calls == [2, 1]
    assert torch.equal(again[:2], first[[1, 0]])
    encoder.encode_text(["a tie and a cup"])  # the fourth: the one asked for longest ago goes
    assert len(encoder.cache) == 3
    encoder.encode_text(["a cat", "blue kite"])
    assert calls == [2, 1, 1]
    encoder.encode_text(["two red dogs"])
    assert calls == [2, 1, 1, 1]


def test_a_cached_truncation_is_reported_again(
    tiny_clip: Path, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = load_clip(tiny_clip)
    for _ in range(2):
        caplog.clear()
        encoder.encode_text(["y" * 90])
        assert "1 of 1 prompts exceed 24 tokens" in caplog.text


def test_cached_texts_follow_the_weights(tiny_clip: Path) -> None:
    """Another dtype, other values and a replaced parameter: never the features of before."""
    encoder = load_clip((open_clip.create_model(f"local-dir:{tiny_clip}"), _tokenizer(tiny_clip)))
    before = encoder.encode_text(PROMPTS)
    encoder.model.double()
    wide = encoder.encode_text(PROMPTS)
    assert wide.dtype == torch.float64
    assert torch.allclose(wide.float(), before, atol=1e-5)
    encoder.model.float()
    assert encoder.encode_text(PROMPTS).dtype == torch.float32
    with torch.no_grad():
        encoder.model.text_projection.mul_(2)
    assert torch.allclose(encoder.encode_text(PROMPTS), 2 * before, atol=1e-5)
    state = {k: v.clone() for k, v in encoder.model.state_dict().items()}
    state["text_projection"] *= 2
    encoder.model.load_state_dict(state, assign=True)
    assert torch.allclose(encoder.encode_text(PROMPTS), 4 * before, atol=1e-5)


def test_texts_of_inference_mode_serve_a_graph(tiny_clip: Path, pictures: torch.Tensor) -> None:
    reward = load_reward("clip", source=tiny_clip)
    prompts = ["seen first in inference mode"] * 2
    with torch.inference_mode():
        expected = reward.score(prompts, pictures[:2])
    media = pictures[:2].clone().requires_grad_()
    scores = reward.score(prompts, media)
    scores.sum().backward()
    assert torch.allclose(scores.detach(), expected, atol=1e-6)
    assert media.grad is not None and bool((media.grad != 0).any())


def test_openai_tags_get_quick_gelu(monkeypatch: pytest.MonkeyPatch) -> None:
    """open_clip 3 builds plain GELU for them and warns; both ways of writing it are one encoder."""
    asked: list[tuple[str, bool]] = []

    def create(name: str, *, force_quick_gelu: bool, **options: Any) -> Any:
        asked.append((name, force_quick_gelu))
        return tiny_open_clip()[0]

    monkeypatch.setattr(open_clip, "create_model", create)
    first = load_clip("ViT-L-14:openai")
    assert load_clip("ViT-L-14-quickgelu:openai") is first
    other = load_clip("ViT-H-14:laion2b_s32b_b79k")
    assert asked == [("ViT-L-14", True), ("ViT-H-14", False)]
    assert other is not first


def test_a_loaded_object_is_taken(pictures: torch.Tensor) -> None:
    encoder = load_clip(tiny_open_clip(size=64))
    features = encoder.encode(PROMPTS, pictures)
    assert features["image"].shape == features["text"].shape == (6, 16)
    assert encoder.truncated(PROMPTS) == [False] * 6


@pytest.mark.parametrize("source", ["no-such-folder", "ViT-nope:openai"])
def test_unknown_sources_are_one_clear_line(source: str) -> None:
    with pytest.raises(T2XError, match=r"can(not|'t) (find|load)") as caught:
        load_clip(source)
    assert "\n" not in str(caught.value)


def test_a_folder_without_weights_is_refused(tiny_clip: Path, tmp_path: Path) -> None:
    (tmp_path / "open_clip_config.json").write_text(
        (tiny_clip / "open_clip_config.json").read_text()
    )
    with pytest.raises(T2XError, match="cannot load the CLIP"):
        load_clip(tmp_path)


def _count(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[int]:
    """Batch sizes with which a method is called from now on."""
    calls: list[int] = []
    method = getattr(owner, name)

    def counted(batch: torch.Tensor, **options: Any) -> torch.Tensor:
        calls.append(len(batch))
        return method(batch, **options)

    monkeypatch.setattr(owner, name, counted)
    return calls


def _tokenizer(folder: Path) -> Any:
    return open_clip.get_tokenizer(f"local-dir:{folder}")


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


def test_prefix_is_another_text_and_the_same_pictures(
    tiny_clip: Path, pictures: torch.Tensor
) -> None:
    encoder = load_clip(tiny_clip)
    parts = frozenset({"image", text_part(), text_part("A photo depicts ")})
    features = encoder.encode(PROMPTS, pictures, parts=parts)
    told = encoder.encode_text([f"A photo depicts {p}" for p in PROMPTS])
    assert torch.equal(features["text:A photo depicts "], told)
    assert torch.equal(features["text"], encoder.encode_text(PROMPTS))


def test_other_preprocessing_shares_weights_and_texts(
    tiny_clip: Path, pictures: torch.Tensor
) -> None:
    plain = load_clip(tiny_clip)
    squashed = plain.with_preprocess(replace(plain.preprocess, mode="squash"))
    assert squashed.key != plain.key
    assert squashed.model is plain.model and squashed.cache is plain.cache
    assert plain.with_preprocess(plain.preprocess) is plain
    difference = squashed.encode_image(pictures) - plain.encode_image(pictures)
    assert difference.abs().max() > 0.01
