"""Published weights, where a hub can be reached: what they say about a cat and a bus."""

from __future__ import annotations

import pytest
import torch
from PIL import Image

from t2x.media import from_pil
from t2x.registry import load_reward
from t2x.world.render import render_scene
from t2x.world.scene import Group, Scene

CASES = {
    "clip": {"source": "ViT-L-14:openai"},
    "siglip": {},
    "pickscore": {},
    "hpsv2": {},
    "hpsv2.1": {},
    "vlm-rm": {"source": "ViT-L-14:openai"},
}


@pytest.mark.hub
@pytest.mark.parametrize("name", CASES)
def test_the_right_picture_wins(name: str) -> None:
    scenes = [Scene((Group("cat"),)), Scene((Group("bus"),))]
    drawn = [Image.fromarray(render_scene(scene, seed=0)) for scene in scenes]
    media = from_pil([picture.resize((256, 256)) for picture in drawn])
    reward = load_reward(name, **CASES[name])
    cat = reward.score(["a picture of a cat"] * 2, media)
    bus = reward.score(["a picture of a bus"] * 2, media)
    assert torch.isfinite(torch.stack([cat, bus])).all()
    assert cat[0] > cat[1] and bus[1] > bus[0]
