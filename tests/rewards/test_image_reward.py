"""ImageReward: loading, pairs, tokens, gradients; its numbers are in tests/parity."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import torch

from t2x.errors import T2XError
from t2x.functional.matching import image_reward
from t2x.registry import load_reward
from t2x.scoring.reward import EncoderReward
from t2x.types import RewardModel

from .blip_checkpoint import image_reward_state, save

PROMPTS = ["a cat", "two dogs", "a red bus above a dog", "a cat", "white pizza"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(image_reward_state(), tmp_path_factory.mktemp("ir") / "ImageReward.pt").parent


@pytest.fixture(scope="module")
def reward(folder: Path) -> EncoderReward:
    return load_reward("imagereward", source=folder)


@pytest.fixture
def pictures() -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.rand(5, 3, 40, 56, generator=generator).mul(255).round() / 255


def test_a_folder_and_its_file_are_the_same(
    folder: Path, reward: EncoderReward, pictures: torch.Tensor
) -> None:
    assert isinstance(reward, RewardModel)
    by_file = load_reward("imagereward", source=folder / "ImageReward.pt", tokenizer=folder)
    assert torch.equal(by_file.score(PROMPTS, pictures), reward.score(PROMPTS, pictures))


def test_small_inner_batches_change_nothing(
    folder: Path, reward: EncoderReward, pictures: torch.Tensor
) -> None:
    small = load_reward("imagereward", source=folder, batch_size=2)
    expected = reward.score(PROMPTS, pictures)
    assert torch.allclose(small.score(PROMPTS, pictures), expected, atol=1e-5)


def test_text_and_picture_both_count(reward: EncoderReward, pictures: torch.Tensor) -> None:
    one = pictures[:1].expand(2, -1, -1, -1)
    assert reward.score(["a cat", "two dogs"], one).diff().abs() > 1e-3
    assert reward.score(["a cat"] * 2, pictures[:2]).diff().abs() > 1e-3


def test_sides_of_a_wide_picture_are_cropped(reward: EncoderReward) -> None:
    wide = torch.rand(1, 3, 32, 96, generator=torch.Generator().manual_seed(0))
    other = wide.clone()
    other[..., :32] = 0
    assert torch.equal(reward.score(["a cat"], wide), reward.score(["a cat"], other))
    other[..., 40:48] = 0
    assert not torch.equal(reward.score(["a cat"], wide), reward.score(["a cat"], other))


def test_truncation_keeps_the_end_token_and_is_reported(
    reward: EncoderReward, pictures: torch.Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = reward.encoders["blip"]
    fits, over, far = (" ".join(["cat"] * n) for n in (33, 34, 200))
    ids, mask = encoder.tokenize([fits, over, far, "cat"])
    assert ids.shape == mask.shape == (4, 35)
    end = encoder.tokenizer.sep_token_id
    assert ids[:3, -1].tolist() == [end] * 3
    assert (ids[:, 0] == encoder.tokenizer.cls_token_id).all()
    assert mask.sum(1).tolist() == [35, 35, 35, 3]
    assert encoder.truncated([fits, over, far, "cat"]) == [False, True, True, False]
    with caplog.at_level(logging.WARNING):
        scores = reward.score([fits, over, far], pictures[:1].expand(3, -1, -1, -1))
    assert "2 of 3 prompts exceed 35 tokens" in caplog.text
    assert torch.allclose(scores, scores[:1].expand(3), atol=1e-5)


def test_special_tokens_in_a_prompt_are_text(reward: EncoderReward) -> None:
    encoder = reward.encoders["blip"]
    ids, _ = encoder.tokenize(["a [SEP] cat [MASK] [CLS][PAD] \ud800"])
    special = torch.tensor(encoder.tokenizer.all_special_ids)
    inside = ids[0, 1 : int((ids[0] == encoder.tokenizer.sep_token_id).nonzero()[0])]
    unknown = encoder.tokenizer.unk_token_id
    assert not torch.isin(inside, special[special != unknown]).any()
    assert len(inside) > 12


def test_half_precision_gives_float32(folder: Path, pictures: torch.Tensor) -> None:
    half = load_reward("imagereward", source=folder, dtype=torch.bfloat16)
    scores = half.score(PROMPTS, pictures)
    assert scores.dtype == torch.float32
    exact = load_reward("imagereward", source=folder).score(PROMPTS, pictures)
    assert (scores - exact).abs().max() < 0.1


def test_the_head_is_the_files(folder: Path, reward: EncoderReward) -> None:
    state = image_reward_state()
    layers = [tuple(state[f"mlp.layers.{i}.{n}"] for n in ("weight", "bias")) for i in (0, 2)]
    fused = torch.randn(4, 64, generator=torch.Generator().manual_seed(0))
    found = reward.head({"blip": {"fused": fused}})
    assert torch.allclose(found, image_reward(fused, layers), atol=1e-6)


def _without(name: str) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda state: state.pop(name)


@pytest.mark.parametrize(
    "name",
    [
        "blip.visual_encoder.cls_token",
        "blip.visual_encoder.norm.bias",
        "blip.visual_encoder.blocks.0.attn.qkv.bias",
        "blip.text_encoder.embeddings.LayerNorm.weight",
        "blip.text_encoder.encoder.layer.0.crossattention.self.query.weight",
        "blip.text_encoder.encoder.layer.0.crossattention.self.key.weight",
        "mlp.layers.0.bias",
    ],
)
def test_no_tensor_may_be_missing(name: str, tmp_path: Path) -> None:
    state = image_reward_state()
    del state[name]
    with pytest.raises(T2XError, match=r"ImageReward\.pt"):
        load_reward("imagereward", source=save(state, tmp_path / "ImageReward.pt"))


def test_no_tensor_of_the_towers_may_be_left_over(tmp_path: Path) -> None:
    state = image_reward_state()
    state["blip.text_encoder.pooler.dense.weight"] = torch.zeros(64, 64)
    with pytest.raises(T2XError, match=r"pooler\.dense"):
        load_reward("imagereward", source=save(state, tmp_path / "ImageReward.pt"))


def test_other_heads_and_a_missing_buffer_are_no_matter(
    tmp_path: Path, reward: EncoderReward, pictures: torch.Tensor
) -> None:
    state = image_reward_state()
    del state["blip.text_encoder.embeddings.position_ids"]
    state["blip.temp"] = torch.zeros(())
    other = load_reward("imagereward", source=save(state, tmp_path / "ImageReward.pt"))
    assert torch.equal(other.score(PROMPTS, pictures), reward.score(PROMPTS, pictures))


def test_what_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(T2XError, match="holds no ImageReward checkpoint"):
        load_reward("imagereward", source=tmp_path)

    def offline(repository: str, name: str, **_: object) -> str:
        raise OSError(f"no route to {repository}/{name}\nmore")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(T2XError, match=r"ImageReward\.pt of 'THUDM/ImageReward': no route"):
        load_reward("imagereward")
    torch.save(image_reward_state(), tmp_path / "ImageReward.pt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(T2XError, match="BERT tokenizer"):
        load_reward("imagereward", source=tmp_path, tokenizer=tmp_path / "empty")
    (tmp_path / "empty" / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    with pytest.raises(T2XError, match=r"has 6 tokens, its text tower \d+"):
        load_reward("imagereward", source=tmp_path, tokenizer=tmp_path / "empty")


def test_pickles_are_not_run(tmp_path: Path) -> None:
    torch.save({"mlp.layers.0.weight": Path("x")}, tmp_path / "ImageReward.pt")
    with pytest.raises(T2XError, match="is a pickle that names"):
        load_reward("imagereward", source=tmp_path)
