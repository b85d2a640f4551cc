"""BLIP-ITM against transformers' own forward pass, its scales, and what its rewards share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from t2x.errors import T2XError
from t2x.registry import load_reward
from t2x.rewards import blip_itm
from t2x.scoring.ensemble import RewardEnsemble
from t2x.testing import tiny_blip

from .blip_checkpoint import blip_state, save

PROMPTS = ["a cat", "two dogs", "a red bus above a dog"]


@pytest.fixture(scope="module")
def blip() -> tuple[Any, Any]:
    return tiny_blip()


@pytest.fixture
def pictures() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(3, 3, 32, 32, generator=generator).mul(255).round() / 255


def stock(blip: tuple[Any, Any], pictures: torch.Tensor, *, itm: bool) -> torch.Tensor:
    model, processor = blip
    inputs = processor(
        images=[(p * 255).byte() for p in pictures],
        text=PROMPTS,
        padding="max_length",
        max_length=35,
        return_tensors="pt",
    )
    with torch.no_grad():
        return model(**inputs, use_itm_head=itm).itm_score


def test_equals_transformers(blip: tuple[Any, Any], pictures: torch.Tensor) -> None:
    score = {
        s: load_reward("blip-itm", source=blip, scale=s).score(PROMPTS, pictures)
        for s in ("logit", "itm", "itc")
    }
    logits = stock(blip, pictures, itm=True)
    assert torch.allclose(score["logit"], logits[:, 1] - logits[:, 0], atol=1e-4)
    assert torch.allclose(score["itm"], logits.softmax(1)[:, 1], atol=1e-5)
    assert torch.allclose(score["itc"], stock(blip, pictures, itm=False).diag(), atol=1e-5)
    assert all(s.std() > 1e-3 for s in score.values())


def test_a_saved_folder_loads(
    blip: tuple[Any, Any], pictures: torch.Tensor, tmp_path: Path
) -> None:
    for part in blip:
        part.save_pretrained(tmp_path)
    by_folder = load_reward("blip-itm", source=tmp_path).score(PROMPTS, pictures)
    assert torch.equal(by_folder, load_reward("blip-itm", source=blip).score(PROMPTS, pictures))
    file = tmp_path / "model.safetensors"
    state = load_file(file)
    del state["itm_head.weight"]
    save_file(state, file, metadata={"format": "pt"})
    with pytest.raises(T2XError, match=r"itm_head\.weight of Blip"):
        load_reward("blip-itm", source=str(tmp_path) + "/.")


def test_the_authors_file_loads_and_is_checked(pictures: torch.Tensor, tmp_path: Path) -> None:
    state = blip_state()
    path = save(state, tmp_path / "retrieval.pth")
    reward = load_reward("blip-itm", source=path, tokenizer=tmp_path)
    assert reward.score(PROMPTS, pictures).unique().numel() == 3
    del state["itm_head.bias"]
    with pytest.raises(T2XError, match=r"itm_head\.weight or itm_head\.bias"):
        load_reward("blip-itm", source=save(state, tmp_path / "b.pth"), tokenizer=tmp_path)
    with pytest.raises(T2XError, match="no BLIP checkpoint"):
        load_reward("blip-itm", source=save({}, tmp_path / "c.pth"), tokenizer=tmp_path)


def test_scales_share_one_pass(
    blip: tuple[Any, Any], pictures: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = blip[0]
    runs = []
    plain = model.vision_model.forward
    monkeypatch.setattr(
        model.vision_model, "forward", lambda *a, **k: runs.append(1) or plain(*a, **k)
    )
    rewards = [blip_itm.load(blip, scale=s, name=s) for s in ("logit", "itc")]
    assert rewards[0].encoders["blip"] is rewards[1].encoders["blip"]
    parts = RewardEnsemble(rewards).components(PROMPTS, pictures)
    assert len(runs) == 1
    for reward in rewards:
        assert torch.allclose(parts[reward.name], reward.score(PROMPTS, pictures), atol=1e-6)


def test_gradients_and_batches(blip: tuple[Any, Any], pictures: torch.Tensor) -> None:
    for scale in ("logit", "itm", "itc"):
        reward = load_reward("blip-itm", source=blip, scale=scale)
        media = torch.nn.functional.interpolate(pictures, (40, 24)).requires_grad_()
        scores = reward.score(PROMPTS, media)
        scores.sum().backward()
        assert (media.grad.flatten(1).norm(dim=1) > 0).all()
        apart = [reward.score([p], media[i : i + 1]) for i, p in enumerate(PROMPTS)]
        assert torch.allclose(scores, torch.cat(apart), atol=1e-5)


def test_whole_pictures_are_seen(blip: tuple[Any, Any]) -> None:
    """Squashed, not cropped: the sides count."""
    reward = load_reward("blip-itm", source=blip)
    wide = torch.rand(1, 3, 32, 96, generator=torch.Generator().manual_seed(0))
    other = wide.clone()
    other[..., :16] = 0
    assert not torch.equal(reward.score(["a cat"], wide), reward.score(["a cat"], other))


def test_what_is_wrong_is_said(blip: tuple[Any, Any], tmp_path: Path) -> None:
    with pytest.raises(T2XError, match="logit, itm, itc"):
        load_reward("blip-itm", source=blip, scale="cos")
    with pytest.raises(T2XError, match="cannot load the BLIP"):
        load_reward("blip-itm", source=tmp_path)
