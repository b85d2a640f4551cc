"""A reward learnt from emoji-vlm's choices between pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.registry import import_attr, load_reward
from t2x.scoring.pair_choice import choose
from t2x.types import RewardModel
from t2x.world.corruption import to_pictures
from t2x.world.prompts import training_prompts
from t2x.world.render import render_scene

from .worlds import caption_auc

fit = import_attr("t2x.rewards.learned_choice:fit")
COUNT = 72


@pytest.fixture(scope="module")
def pairs() -> tuple[list[str], Tensor, Tensor, Tensor]:
    """Training prompts, a picture of each and one of another, and which of them the model chose.

    Every second pair is turned round.
    """
    prompts = training_prompts(COUNT, 3)
    texts = [p.text for p in prompts]
    right = to_pictures([render_scene(p.scene, i) for i, p in enumerate(prompts)])
    wrong = right.roll(1, 0)
    turned = (torch.arange(COUNT) % 2 == 1).view(-1, 1, 1, 1)
    first, second = torch.where(turned, wrong, right), torch.where(turned, right, wrong)
    labels = choose(texts, first, second, source="emoji-vlm", margin=0.2).labels
    assert float((labels == turned.flatten().long()).float().mean()) > 0.7
    return texts, first, second, labels


def test_right_captions_score_above_wrong_ones(pairs: Any) -> None:
    """Held-out prompts; chance is 0.5, and labels turned round give the opposite."""
    texts, first, second, labels = pairs
    good = caption_auc(load_reward("rl-vlm-f", source=fit(texts, first, second, labels)))
    swapped = torch.where(labels >= 0, 1 - labels, labels)
    bad = caption_auc(load_reward("rl-vlm-f", source=fit(texts, first, second, swapped)))
    assert good > 0.8
    assert bad < 0.2


def test_fit_is_deterministic_and_leaves_out_who_cannot_tell(pairs: Any) -> None:
    texts, first, second, labels = pairs
    whole = fit(texts[:24], first[:24], second[:24], labels[:24])
    assert torch.equal(whole.weight, fit(texts[:24], first[:24], second[:24], labels[:24]).weight)
    unsure = labels[:24].clone()
    unsure[12:] = -1
    half = fit(texts[:24], first[:24], second[:24], unsure)
    kept = fit(texts[:12], first[:12], second[:12], labels[:12])
    assert torch.allclose(half.weight, kept.weight, atol=1e-4)
    assert not torch.allclose(half.weight, whole.weight, atol=1e-2)


def test_is_a_reward_and_is_saved(pairs: Any, tmp_path: Path) -> None:
    texts, first, second, labels = (x[:12] for x in pairs)
    model = fit(texts, first, second, labels)
    reward = load_reward("rl-vlm-f", source=model)
    assert isinstance(reward, RewardModel)
    model.save(tmp_path)
    media = first[:3].clone().requires_grad_()
    scores = reward.score(texts[:3], media)
    loaded = load_reward("rl-vlm-f", source=tmp_path).score(texts[:3], first[:3])
    assert torch.allclose(loaded, scores.detach(), atol=1e-5)
    scores.sum().backward()
    assert media.grad is not None
    assert media.grad.flatten(1).norm(dim=1).min() > 0
    assert reward.score(["", texts[1]], first[:2]).isnan().tolist() == [True, False]


def test_bad_calls(pairs: Any, tmp_path: Path) -> None:
    texts, first, second, _ = (x[:2] for x in pairs)
    with pytest.raises(T2XError, match="0, 1 or -1"):
        fit(texts, first, second, [0, 2])
    with pytest.raises(T2XError, match="got 1 for 2 pairs"):
        fit(texts, first, second, [0])
    with pytest.raises(T2XError, match="none of 2 choices"):
        fit(texts, first, second, [-1, -1])
    with pytest.raises(ValueError, match="2 prompts and 1 media"):
        fit(texts, first, second[:1], [0, 1])
    with pytest.raises(T2XError, match="no fitted choice model"):
        load_reward("rl-vlm-f", source=tmp_path)


def test_what_cannot_be_measured_is_left_out_of_the_fit(pairs: Any, caplog: Any) -> None:
    prompts, right, wrong, labels = pairs
    broken = right.clone()
    broken[0, 0, 0, 0] = torch.nan
    found = fit(prompts, broken, wrong, labels)
    assert "1 of" in caplog.text
    without = fit(prompts[1:], right[1:], wrong[1:], labels[1:])
    torch.testing.assert_close(found.weight, without.weight, rtol=1e-3, atol=1e-4)
