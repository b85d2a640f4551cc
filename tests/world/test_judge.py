"""The judge: exact on clean and on degraded renders, blind to nothing that a scene forbids."""

from __future__ import annotations

import io
import random
from itertools import pairwise

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKL
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from t2x.world.judge import Detection, Judge, color_matches, detect, judge_pictures
from t2x.world.render import Placed, layout, light_background, render, render_scene
from t2x.world.scene import TASKS, Group, Scene, sample_scene
from t2x.world.weights import require_model

NUM_SCENES = 100


def degrade(picture: NDArray[np.uint8], seed: int) -> NDArray[np.uint8]:
    """Blur (sigma 0.7), resample over 48 pixels (half of them), noise (sigma 0.03), JPEG."""
    rng = np.random.default_rng(seed)
    image = Image.fromarray(picture).filter(ImageFilter.GaussianBlur(0.7))
    if seed % 2:
        image = image.resize((48, 48), Image.Resampling.BICUBIC)
        image = image.resize((64, 64), Image.Resampling.BICUBIC)
    noisy = np.asarray(image) / 255 + rng.normal(0, 0.03, (64, 64, 3))
    buffer = io.BytesIO()
    Image.fromarray((noisy.clip(0, 1) * 255).astype(np.uint8)).save(buffer, "JPEG", quality=80)
    return np.asarray(Image.open(buffer).convert("RGB"))


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    rng = random.Random(2024)
    return [sample_scene((*TASKS, "mixed")[i % 7], rng) for i in range(NUM_SCENES)]


def is_exact(placed: list[Placed], found: list[Detection]) -> bool:
    """Whether every object was found at its place, in its colour, and nothing else was."""
    rest = list(found)
    for p in placed:
        near = [
            d
            for d in rest
            if d.cls == p.cls
            and max(abs(d.x - p.x), abs(d.y - p.y)) <= 3
            and (color_matches(p.cls, d.color, p.color) and color_matches(p.cls, p.color, d.color))
        ]
        if not near:
            return False
        rest.remove(near[0])
    return not rest


@pytest.mark.parametrize(("hard", "bar"), [(False, 0.99), (True, 0.97)])
def test_recovers_renders(scenes: list[Scene], hard: bool, bar: float) -> None:
    exact = 0
    for seed, scene in enumerate(scenes):
        rng = random.Random(seed)
        placed = layout(scene, rng)
        picture = render(placed, light_background(rng))
        exact += is_exact(placed, detect(degrade(picture, seed) if hard else picture))
    assert exact >= bar * len(scenes)


def test_recovers_renders_after_vae(scenes: list[Scene]) -> None:
    """Blur, noise and the generator's own autoencoder leave at least 97 % of scenes right."""
    vae = require_model("emoji-flow") / "vae"
    model = AutoencoderKL.from_pretrained(vae, dtype=torch.float32).eval()
    rng = np.random.default_rng(0)
    pictures = []
    for seed, scene in enumerate(scenes):
        image = Image.fromarray(render_scene(scene, seed)).filter(ImageFilter.GaussianBlur(0.7))
        pictures.append((np.asarray(image) / 255 + rng.normal(0, 0.03, (64, 64, 3))).clip(0, 1))
    batch = torch.tensor(np.stack(pictures), dtype=torch.float32).permute(0, 3, 1, 2) * 2 - 1
    with torch.no_grad():
        out = model.decode(model.encode(batch).latent_dist.mode()).sample
    verdicts = judge_pictures(scenes, (out / 2 + 0.5).clamp(0, 1))
    assert np.mean([v.correct for v in verdicts]) >= 0.97


def test_shuffled_prompts_fail(scenes: list[Scene]) -> None:
    judge = Judge()
    wrong = [
        judge.check(other, render_scene(scene, seed)).correct
        for seed, (scene, other) in enumerate(pairwise(scenes[:60]))
    ]
    assert np.mean(wrong) < 0.1


SCENE = Scene((Group("cat", "red"), Group("bus", "blue")), "left of")


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (Scene((Group("cat", "red"), Group("bus", "blue")), "right of"), "not left of"),
        (Scene((Group("cat", "blue"), Group("bus", "red")), "left of"), "colours"),
        (Scene((Group("cat", "red"), Group("truck", "blue")), "left of"), "1 truck"),
        (Scene((Group("cat", "red", 2), Group("bus", "blue")), "left of"), "2 cat"),
        (Scene((Group("cat", "red"),)), "found 1 cat"),
    ],
)
def test_says_what_is_wrong(shown: Scene, words: str) -> None:
    verdict = Judge().check(SCENE, render_scene(shown, 3))
    assert not verdict.correct
    assert words in verdict.reason


def test_right_picture_on_a_dim_background() -> None:
    placed = layout(SCENE, random.Random(5))
    assert Judge().check(SCENE, render(placed, (0.7, 0.66, 0.62))).correct


@pytest.mark.parametrize("kind", ["noise", "mosaic", "scrambled"])
def test_unreadable_objects_are_unknown(kind: str) -> None:
    scene = Scene((Group("elephant", "pink"),))
    picture = render_scene(scene, 1)
    rng = np.random.default_rng(0)
    if kind == "noise":
        picture = rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
    elif kind == "mosaic":
        picture = picture.reshape(8, 8, 8, 8, 3).mean(axis=(1, 3)).astype(np.uint8)
        picture = picture.repeat(8, axis=0).repeat(8, axis=1)
    else:
        tiles = picture.reshape(8, 8, 8, 8, 3).swapaxes(1, 2).reshape(64, 8, 8, 3)
        order = np.arange(64).reshape(8, 8)
        order[2:6, 2:6] = rng.permutation(order[2:6, 2:6].ravel()).reshape(4, 4)
        tiles = tiles[order.ravel()].reshape(8, 8, 8, 8, 3).swapaxes(1, 2)
        picture = tiles.reshape(64, 64, 3)
    assert not Judge().check(scene, picture).correct


def test_unexplained_blob_is_an_extra_object() -> None:
    scene = Scene((Group("cat"),))
    picture = render_scene(scene, 2).copy()
    picture[0:12, 50:64] = (40, 90, 200)
    assert len(detect(picture)) > 1
    assert not Judge().check(scene, picture).correct


def test_empty_picture_shows_nothing() -> None:
    assert detect(np.full((64, 64, 3), 240, np.uint8)) == []


def test_natural_colours() -> None:
    assert color_matches("apple", None, "red")
    assert color_matches("apple", "green", None)
    assert not color_matches("apple", None, "green")
    assert not color_matches("apple", "orange", "red")


def test_bad_picture_is_refused() -> None:
    with pytest.raises(ValueError, match="64"):
        detect(np.zeros((32, 32, 3), np.uint8))


def test_media(scenes: list[Scene]) -> None:
    torch = pytest.importorskip("torch")
    pictures = np.stack([render_scene(s, i) for i, s in enumerate(scenes[:4])])
    media = torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 255
    verdicts = judge_pictures(scenes[:4], media)
    assert verdicts == Judge().check_batch(scenes[:4], list(pictures))
    assert all(v.correct for v in verdicts)
