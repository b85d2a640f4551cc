"""Preference scores: scales, softmax over two pictures, replaced preprocessing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch

from t2x.errors import T2XError
from t2x.functional.scores import hps_preference_loss
from t2x.registry import import_attr, load_reward
from t2x.scoring.resize import Preprocess

from .hps_checkpoint import narrow_hps

HPS_PREPROCESS = import_attr("t2x.rewards.preference:HPS_PREPROCESS")


@pytest.fixture
def pictures() -> torch.Tensor:
    """Two pictures that are not square."""
    return torch.rand(2, 3, 40, 80, generator=torch.Generator().manual_seed(0))


def test_scales(clip: tuple[Any, Any], pictures: torch.Tensor) -> None:
    score = {
        s: load_reward("hps", source=clip, scale=s).score(["a cat"] * 2, pictures)
        for s in ("cos", "x100", "logit")
    }
    assert torch.allclose(score["x100"], 100 * score["cos"], rtol=1e-5)
    temperature = clip[0].logit_scale.exp()
    assert torch.allclose(score["logit"], temperature * score["cos"], rtol=1e-5)


def test_logits_of_two_pictures_are_the_odds_of_preference(
    clip: tuple[Any, Any], pictures: torch.Tensor
) -> None:
    logits = load_reward("hps", source=clip, scale="logit").score(["a cat"] * 2, pictures)
    loss = hps_preference_loss(logits[None], torch.tensor([[1.0, 0.0]]))
    assert torch.allclose((-loss).exp(), logits.softmax(0)[:1])


def test_preprocessing_can_be_replaced_without_touching_the_shared_encoder(
    clip: tuple[Any, Any], pictures: torch.Tensor
) -> None:
    padded = Preprocess((64, 64), (0.5,) * 3, (0.5,) * 3, mode="longest")
    reward = load_reward("hps", source=clip, preprocess=padded)
    plain = load_reward("hps", source=clip)
    assert reward.encoders["clip"].key != plain.encoders["clip"].key
    scores = reward.score(["a cat"] * 2, pictures)
    assert (scores - plain.score(["a cat"] * 2, pictures)).abs().max() > 1e-3
    bars = torch.zeros(2, 3, 80, 80)
    bars[:, :, 20:60] = pictures
    assert torch.allclose(scores, reward.score(["a cat"] * 2, bars), atol=1e-3)


def test_unknown_scale_lists_the_known_ones(clip: tuple[Any, Any]) -> None:
    with pytest.raises(T2XError, match="cos, x100, logit"):
        load_reward("hps", source=clip, scale="clipscore")


@pytest.mark.parametrize("name", ["hpsv2", "hpsv2.1"])
def test_a_published_file_fills_the_architecture(
    name: str, pictures: torch.Tensor, tmp_path: Path
) -> None:
    """Loaded strictly, with the preprocessing of HPSv2, through open_clip's own list."""
    options, model = narrow_hps(tmp_path)
    reward = load_reward(name, **options)
    assert reward.name == name
    padded = torch.zeros(2, 3, 80, 80)
    padded[:, :, 20:60] = pictures
    whole = reward.score(["a cat"] * 2, padded)
    assert torch.allclose(reward.score(["a cat"] * 2, pictures), whole, atol=1e-3)
    with torch.no_grad():
        small = HPS_PREPROCESS(pictures)
        image = torch.nn.functional.normalize(model.encode_image(small), dim=-1)
        ids = open_clip.get_tokenizer("ViT-H-14")(["a cat"])
        text = torch.nn.functional.normalize(model.encode_text(ids), dim=-1)
    scores = reward.score(["a cat"] * 2, pictures)
    assert torch.allclose(scores, (image @ text.T)[:, 0], atol=1e-6)
    torch.save({"state_dict": {"visual.proj": torch.zeros(1)}}, tmp_path / "file2.pt")
    with pytest.raises(T2XError, match="cannot load the CLIP"):
        load_reward(name, **{**options, "source": tmp_path / "file2.pt"})


def test_a_longer_side_of_224_is_padded_like_any_other() -> None:
    """The official code skips resizing and padding there, and its tower refuses the picture."""
    x = torch.rand(1, 3, 112, 224)
    out = HPS_PREPROCESS(x)
    assert out.shape == (1, 3, 224, 224)
    black = -torch.tensor(HPS_PREPROCESS.mean) / torch.tensor(HPS_PREPROCESS.std)
    assert torch.allclose(out[0, :, 0, 0], black)
    assert HPS_PREPROCESS(torch.rand(1, 3, 2, 3000)).shape == (1, 3, 224, 224)


def test_a_missing_file_says_which_one() -> None:
    with pytest.raises(T2XError, match=r"HPS_v2\.1_compressed\.pt"):
        load_reward("hpsv2.1", source="nowhere.pt")
