"""CLIPScore, LAION v1 and v2, PickScore, HPSv2.0 and v2.1 against their official code.

``make_clip_goldens.py`` ran that code once, on towers of reduced depth and width with weights from
generators seeded by the tensors' names; here t2x's rewards get the same weights. Errors are
relative to the spread over pictures, the standard deviation of the official scores. What must not
be the same (another filter, crop, mean, activation, token limit, ...) is run as well and must fail.

Blank prompts: the official code scores them, t2x gives NaN; the numbers behind the NaN agree too.
Files that are transparent, of 16 bits or have a palette are compared as the RGB pictures that
``t2x.load_picture`` makes of them; :func:`test_odd_files` says what the official code makes of the
files themselves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from t2x.registry import load_reward
from t2x.scoring import resize as resizing
from t2x.scoring.reward import EncoderReward

from . import clip_cases as cases
from .clip_models import (
    TOLERANCE,
    Material,
    changed,
    error,
    fill,
    other_gelu,
    preprocessing,
    transformers_clip,
    write_clip,
    write_head,
)

GOLDENS = json.loads(Path(__file__).with_name("clip_goldens.json").read_text("utf-8"))
NAMES = ("clipscore", "laion-v1", "laion-v2", "pickscore", "hpsv2", "hpsv2.1")
LAION = ("laion-v1", "laion-v2")
_models: dict[str, tuple[Any, Any]] = {}


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    folder = tmp_path_factory.mktemp("parity")
    (folder / "ViT-H-14-reduced.json").write_text(json.dumps(cases.VIT_H14))
    open_clip.add_model_config(folder / "ViT-H-14-reduced.json")
    return Material.write(folder)


@pytest.fixture(scope="module")
def rewards(material: Material) -> dict[str, EncoderReward]:
    return {name: build(name, material.folder) for name in NAMES}


def build(name: str, folder: Path) -> EncoderReward:
    """The reward with the weights of the goldens."""
    made: Any
    if name == "pickscore":
        made = load_reward("pickscore", source=transformers_clip(name, cases.PICKSCORE))
    elif name.startswith("hpsv2"):
        write_clip(name, cases.VIT_H14, folder / name)
        made = load_reward(name, source=folder / name, architecture="ViT-H-14-reduced")
    elif name in LAION:
        write_head(name, folder / f"{name}.pth")
        clip = filled_clip("laion", cases.OPENAI_L14)
        made = load_reward(name, source=folder / f"{name}.pth", encoder=clip)
    else:
        source = filled_clip(name, cases.OPENAI_B32)
        made = load_reward("clip", source=source, scale="clipscore", prefix="A photo depicts ")
    return made


def filled_clip(tag: str, config: dict[str, Any]) -> tuple[Any, Any]:
    """(open_clip model, its tokenizer)."""
    if tag not in _models:
        model = open_clip.CLIP(**config)
        fill(tag, model)
        _models[tag] = model, open_clip.get_tokenizer("ViT-H-14")
    return _models[tag]


def official(name: str, prompt: str, names: tuple[str, ...]) -> Tensor:
    return torch.tensor([GOLDENS[name]["rgb"][n][prompt] for n in names], dtype=torch.float64)


def scored(name: str) -> tuple[str, ...]:
    """Pictures that the official code can score: HPSv2's can't with a longer side of 224."""
    return tuple(n for n, row in GOLDENS[name]["rgb"].items() if not isinstance(row["short"], str))


@pytest.mark.parametrize("name", NAMES)
def test_parity(name: str, material: Material, rewards: dict[str, EncoderReward]) -> None:
    names = scored(name)
    assert len(names) >= 10
    rows = material.scores(rewards[name], list(cases.PROMPTS.values()), names)
    for prompt, ours in zip(cases.PROMPTS, rows, strict=True):
        theirs = official(name, prompt, names)
        assert theirs.std() > 0.05 * theirs.abs().max()  # pictures are told apart
        assert error(ours, theirs) < TOLERANCE, prompt


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_what_the_head_gives_but_for_blank_prompts(
    name: str, material: Material, rewards: dict[str, EncoderReward]
) -> None:
    names = ("square", "wide")
    media = [material.media[n] for n in names]
    for key in ("short", "empty"):
        scores = rewards[name].score([cases.PROMPTS[key]] * 2, media)
        if key == "short" or name in LAION:
            off = (scores.double() - official(name, key, names)).abs()
            assert off.max() < TOLERANCE * official(name, key, scored(name)).std()
        else:
            assert scores.isnan().all()


def test_odd_files() -> None:
    """What the official code makes of files that are no plain RGB. CLIP's own preprocessing resizes
    before it converts to RGB, a palette by its nearest entries, and fails on 16 bits; it drops
    transparency, as transformers does. HPSv2 fails on transparency. Both whiten 16 bits.
    """
    for name in NAMES:
        raw, rgb = GOLDENS[name]["as opened"], GOLDENS[name]["rgb"]
        spread = official(name, "short", scored(name)).std().item()
        for picture in ("clear", "sixteen"):
            value = raw[picture]
            assert isinstance(value, str) or abs(value - rgb[picture]["short"]) > 0.01 * spread
        if name in ("clipscore", *LAION):
            assert abs(raw["palette"] - rgb["palette"]["short"]) > TOLERANCE * spread
        else:
            assert raw["palette"] == rgb["palette"]["short"]


# Controls: each changes one thing, and then parity must be lost.


def one(
    material: Material, reward: EncoderReward, names: tuple[str, ...], prompt: str = "short"
) -> Tensor:
    return material.scores(reward, [cases.PROMPTS[prompt]], names)[0]


def other_mode(reward: EncoderReward) -> Any:
    is_crop = reward.encoders["clip"].preprocess.mode == "shortest"  # type: ignore[attr-defined]
    return preprocessing(mode="longest" if is_crop else "shortest")(reward)


def other_centre(reward: EncoderReward) -> Any:
    is_round = reward.encoders["clip"].preprocess.centre == "round"  # type: ignore[attr-defined]
    return preprocessing(centre="floor" if is_round else "round")(reward)


@contextmanager
def no_antialias(reward: EncoderReward) -> Iterator[None]:
    class Plain:
        pad = staticmethod(F.pad)

        @staticmethod
        def interpolate(x: Tensor, *, antialias: bool, **options: Any) -> Tensor:
            return F.interpolate(x, **options)

    kept = resizing.F
    resizing.F = Plain  # type: ignore[assignment]
    try:
        with preprocessing(rounded=False)(reward):
            yield
    finally:
        resizing.F = kept


PREPROCESSING: dict[str, Callable[[EncoderReward], Any]] = {
    "bilinear": preprocessing(filter="bilinear"),
    "no antialias": no_antialias,
    "crop for pad, or pad for crop": other_mode,
    "squash": preprocessing(mode="squash"),
    "wrong mean": preprocessing(mean=(0.5, 0.5, 0.5)),
    "wrong deviation": preprocessing(std=(0.25, 0.25, 0.25)),
}


@pytest.mark.parametrize("control", PREPROCESSING)
@pytest.mark.parametrize("name", ["clipscore", "laion-v1", "pickscore", "hpsv2"])
def test_other_preprocessing_fails(
    name: str, control: str, material: Material, rewards: dict[str, EncoderReward]
) -> None:
    names = tuple(n for n in scored(name) if n != "huge")
    with PREPROCESSING[control](rewards[name]):
        ours = one(material, rewards[name], names)
    assert error(ours, official(name, "short", names)) > 10 * TOLERANCE


@pytest.mark.parametrize("name", ["clipscore", "laion-v1", "pickscore"])
def test_the_other_rounding_of_the_crop_fails(
    name: str, material: Material, rewards: dict[str, EncoderReward]
) -> None:
    """One pixel, of *wide* and *tall* alone; *tall* shows it on small patches."""
    names = tuple(n for n in scored(name) if n != "huge")
    theirs = official(name, "short", names)
    with other_centre(rewards[name]):
        ours = one(material, rewards[name], names)
    off = (ours.double() - theirs).abs() / theirs.std()
    failed = {n for n, e in zip(names, off, strict=True) if e > TOLERANCE}
    assert failed == ({"wide"} if name == "clipscore" else {"wide", "tall"})


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("clipscore", {"rounded": False}),
        ("laion-v1", {"rounded": False}),
        ("pickscore", {"rounded": False}),
        ("hpsv2", {"rounded": True}),
        ("hpsv2", {"cut": True}),
    ],
)
def test_the_other_rounding_fails(
    name: str,
    changes: dict[str, bool],
    material: Material,
    rewards: dict[str, EncoderReward],
) -> None:
    """PIL rounds to 8 bits, torchvision on HPSv2's floats neither rounds nor cuts."""
    names = tuple(n for n in scored(name) if n != "huge")
    with preprocessing(**changes)(rewards[name]):
        ours = one(material, rewards[name], names)
    assert error(ours, official(name, "short", names)) > TOLERANCE


@pytest.mark.parametrize("name", ["clipscore", "laion-v2", "pickscore", "hpsv2"])
def test_the_other_gelu_fails(
    name: str, material: Material, rewards: dict[str, EncoderReward]
) -> None:
    names = ("square", "wide", "grey", "stripes")
    with other_gelu(rewards[name]):
        ours = one(material, rewards[name], names)
    assert error(ours, official(name, "short", names)) > 10 * TOLERANCE


@pytest.mark.parametrize("limit", ["64 tokens", "no end token"])
@pytest.mark.parametrize("name", ["clipscore", "pickscore", "hpsv2"])
def test_another_token_limit_fails(
    name: str, limit: str, material: Material, rewards: dict[str, EncoderReward]
) -> None:
    """On the long prompt; the short one does not mind."""
    reward, names = rewards[name], ("square", "wide", "grey", "stripes")
    encoder: Any = reward.encoders["clip"]
    right = encoder._tokenize

    def wrong(texts: list[str]) -> Tensor:
        ids = right(texts)
        end = ids[0, (ids[0] == ids[0].max()).nonzero()[0, 0]]
        full = (ids[:, -1] == end) & (ids[:, -2] != end)
        ids[full, -1] = ids[full, -2]
        if limit == "64 tokens":
            ids[full, 63] = end
        return ids

    with changed(encoder, _tokenize=wrong):
        for prompt in ("short", "long"):
            ours = one(material, reward, names, prompt)
            off = error(ours, official(name, prompt, names))
            assert off > 10 * TOLERANCE if prompt == "long" else off < TOLERANCE


def test_a_missing_prefix_fails(material: Material) -> None:
    names = ("square", "wide", "grey", "stripes")
    source = filled_clip("clipscore", cases.OPENAI_B32)
    plain: Any = load_reward("clip", source=source, scale="clipscore")
    ours = one(material, plain, names)
    assert error(ours, official("clipscore", "short", names)) > 10 * TOLERANCE


def test_heads_without_normalisation_or_with_activations_fail(
    material: Material, rewards: dict[str, EncoderReward]
) -> None:
    names = ("square", "wide", "grey", "stripes")
    for name in LAION:
        encoder: Any = rewards[name].encoders["clip"]
        image = encoder.encode_image([material.media[n] for n in names])
        layers = list(cases.weights(name, cases.HEADS[name]).values())
        x = image
        for weight, bias in zip(layers[::2], layers[1::2], strict=True):
            x = F.linear(x, torch.from_numpy(weight), torch.from_numpy(bias))
        assert error(x[:, 0], official(name, "short", names)) > 10 * TOLERANCE
    file = material.folder / "laion-v2.pth"
    clip = filled_clip("laion", cases.OPENAI_L14)
    relu: Any = load_reward("laion-v2", source=file, encoder=clip, activation="relu")
    ours = one(material, relu, names)
    assert error(ours, official("laion-v2", "short", names)) > 10 * TOLERANCE


def test_the_weights_are_those_of_the_goldens() -> None:
    """Generators give the same numbers on every platform; first and last of a known tensor."""
    model = open_clip.CLIP(**cases.VIT_H14)
    shapes = {k: v.shape for k, v in model.state_dict().items() if "resblocks.0" in k}
    assert cases.checksum(cases.weights("hpsv2", shapes)) == pytest.approx(GOLDENS["checksum"])


def test_hps_versions_are_not_comparable() -> None:
    a, b = (official(name, "short", scored("hpsv2")) for name in ("hpsv2", "hpsv2.1"))
    assert (a - b).abs().max() > a.std()
