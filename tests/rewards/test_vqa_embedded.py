"""The embedded emoji-vlm as a reward: right texts score above wrong ones, on clean renders."""

from __future__ import annotations

import random
from dataclasses import replace

import torch

from t2x.registry import load_reward
from t2x.types import RewardModel
from t2x.world.corruption import to_pictures
from t2x.world.prompts import held_out_prompts
from t2x.world.render import render_scene
from t2x.world.reward_auc import auc
from t2x.world.scene import COLORS


def _reward() -> RewardModel:
    return load_reward("vqa")


def test_prompts_of_other_pictures_score_lower() -> None:
    """Held-out prompts on clean pictures of their scenes, against the same prompts dealt anew."""
    prompts = held_out_prompts(90, 5)
    pictures = to_pictures([render_scene(p.scene, i) for i, p in enumerate(prompts)])
    texts = [p.text for p in prompts]
    right = _reward().score(texts, pictures)
    wrong = _reward().score(texts[6:] + texts[:6], pictures)  # of the same task
    labels = torch.arange(180) < 90
    assert auc(torch.cat([right, wrong]), labels) > 0.9
    assert float(right.mean()) > float(wrong.mean()) + 0.3


def test_a_wrong_color_scores_lower() -> None:
    rng = random.Random(0)
    prompts = [p for p in held_out_prompts(300, 6) if p.task == "colors"][:40]
    right = to_pictures([render_scene(p.scene, i) for i, p in enumerate(prompts)])
    scenes = []
    for p in prompts:
        (group,) = p.scene.groups
        other = rng.choice([c for c in COLORS if c != group.color])
        scenes.append(replace(p.scene, groups=(replace(group, color=other),)))
    wrong = to_pictures([render_scene(scene, i) for i, scene in enumerate(scenes)])
    texts = [p.text for p in prompts]
    reward = _reward()
    assert float((reward.score(texts, right) > reward.score(texts, wrong)).float().mean()) > 0.8


def test_gradient_reaches_the_picture() -> None:
    picture = to_pictures([render_scene(held_out_prompts(1, 7)[0].scene, 0)]).requires_grad_()
    _reward().score(["two dogs"], picture).sum().backward()
    assert picture.grad is not None
    assert bool(torch.isfinite(picture.grad).all())
    assert float(picture.grad.abs().max()) > 0
