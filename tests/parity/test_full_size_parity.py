"""The rewards on towers of published size against their official code: CLIPScore (ViT-B/32 and
L/14), LAION v1 (either) and v2, PickScore and HPSv2.1 (ViT-H/14), ImageReward v1.0, BLIP-ITM (base
and large, 384 pixels).

``make_clip_goldens.py`` and ``make_blip_goldens.py`` ran that code once, with ``--size full``. The
controls are few, for each costs a pass; ``test_clip_parity.py`` and ``test_blip_parity.py`` have
them all, on reduced towers. HPSv3, of 8 billion parameters, is compared at reduced depth alone.

    pytest -m slow tests/parity --log-level=INFO -rP     prints the errors that it measures

One model is in memory at a time; ViT-H/14 takes 8 GiB and some minutes on one core.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import open_clip
import pytest
import torch
from torch import Tensor

from t2x.media import from_pil
from t2x.registry import load_reward
from t2x.scoring.reward import EncoderReward

from . import blip_cases, blip_models, clip_cases
from .clip_models import (
    TOLERANCE,
    Material,
    error,
    head_scores,
    other_gelu,
    preprocessing,
    swapped_gelu,
    transformers_clip,
    write_clip,
    write_head,
)
from .remembering import remember

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
log = logging.getLogger(__name__)
CLIP_GOLDENS, BLIP_GOLDENS = (
    json.loads(Path(__file__).with_name(f"{kind}_goldens_full.json").read_text("utf-8"))
    for kind in ("clip", "blip")
)
FEW = ("square", "wide", "stripes")  # enough to show that something is wrong


@pytest.fixture
def folder() -> Iterator[Path]:
    """Checkpoints take gigabytes: none is kept."""
    with TemporaryDirectory() as path:
        yield Path(path)


def openai_rewards(tower: str, folder: Path) -> dict[str, EncoderReward]:
    """The rewards of one of OpenAI's towers, which is loaded once, by open_clip's own
    configuration.
    """
    architecture = {"b32": "ViT-B-32-quickgelu", "l14": "ViT-L-14-quickgelu"}[tower]
    file = folder / "clip.pt"
    write_clip(f"openai-{tower}", open_clip.get_model_config(architecture), file)
    source = f"{architecture}:{file}"
    made: dict[str, Any] = {
        f"clipscore-{tower}": load_reward(
            "clip", source=source, scale="clipscore", prefix="A photo depicts "
        )
    }
    heads = {"b32": ("laion-v1-b32",), "l14": ("laion-v1", "laion-v2")}[tower]
    for head in heads:
        write_head(head, folder / head)
        name = head.removesuffix("-b32")
        made[f"{name}-{tower}"] = load_reward(name, source=folder / head, encoder=source)
    return made


def hps_rewards(tower: str, folder: Path) -> dict[str, EncoderReward]:
    file = folder / "HPS_v2.1_compressed.pt"
    write_clip("hpsv2.1", open_clip.get_model_config("ViT-H-14"), file)
    made: Any = load_reward("hpsv2.1", source=file)
    return {"hpsv2.1": made}


def pickscore_rewards(tower: str, folder: Path) -> dict[str, EncoderReward]:
    source = transformers_clip("pickscore", clip_cases.FULL_PICKSCORE)
    made: Any = load_reward("pickscore", source=source)
    return {"pickscore": made}


CLIP_TOWERS: dict[str, Callable[[str, Path], dict[str, EncoderReward]]] = {
    "b32": openai_rewards,
    "l14": openai_rewards,
    "hpsv2.1": hps_rewards,
    "pickscore": pickscore_rewards,
}


def clip_official(name: str, prompt: str, pictures: tuple[str, ...]) -> Tensor:
    rgb = CLIP_GOLDENS[name]["rgb"]
    return torch.tensor([rgb[p][prompt] for p in pictures], dtype=torch.float64)


@pytest.mark.parametrize("tower", CLIP_TOWERS)
def test_clip_towers(tower: str, folder: Path) -> None:
    material = Material.write(folder)
    rewards = CLIP_TOWERS[tower](tower, folder)
    first = next(iter(rewards.values()))
    # HPSv2's own code can't score pictures with a longer side of 224.
    rows = CLIP_GOLDENS[next(iter(rewards))]["rgb"]
    pictures = tuple(p for p, row in rows.items() if not isinstance(row["short"], str))
    assert len(pictures) >= 7
    image = material.embed(first, pictures)
    for name, reward in rewards.items():
        for prompt in clip_cases.PLAIN:
            theirs = clip_official(name, prompt, pictures)
            assert theirs.std() > 0.05 * theirs.abs().max()  # pictures are told apart
            off = error(head_scores(reward, clip_cases.PROMPTS[prompt], image), theirs)
            log.info("%s, %s prompt: error over spread %.1e", name, prompt, off)
            assert off < TOLERANCE, (name, prompt)
    controls = {"bilinear": preprocessing(filter="bilinear"), "the other GELU": other_gelu}
    for control, change in controls.items():
        with change(first):
            image = material.embed(first, FEW)
            for name, reward in rewards.items():
                ours = head_scores(reward, clip_cases.PROMPTS["short"], image)
                off = error(ours, clip_official(name, "short", FEW))
                log.info("%s, %s: error over spread %.1e", name, control, off)
                assert off > TOLERANCE, (name, control)


def load_blip(name: str, folder: Path) -> dict[str, EncoderReward]:
    """Rewards by the scale that is compared."""
    blip_cases.write_vocabulary(folder, full=True)
    file = folder / ("ImageReward.pt" if name == "imagereward" else "retrieval.pth")
    blip_models.write_checkpoint(BLIP_GOLDENS[name], file)
    made: dict[str, Any]
    if name == "imagereward":
        made = {"imagereward": load_reward("imagereward", source=folder)}
    else:
        made = {
            scale: load_reward("blip-itm", source=file, scale=scale, tokenizer=folder)
            for scale in ("logit", "itc")
        }
    return made


@pytest.mark.parametrize("name", ["imagereward", "blip-itm-base", "blip-itm-large"])
def test_blip_towers(name: str, folder: Path) -> None:
    rewards = load_blip(name, folder)
    encoder: Any = next(iter(rewards.values())).encoders["blip"]
    remember(encoder.vision)
    media = {p: from_pil([x]) for p, x in blip_cases.pictures().items()}
    scores = BLIP_GOLDENS[name]["scores"]

    def off(
        kind: str, reward: EncoderReward, prompt: str, pictures: tuple[str, ...] = tuple(scores)
    ) -> float:
        theirs = torch.tensor([blip_models.KINDS[kind](scores[p][prompt]) for p in pictures])
        assert theirs.std() > 0.05 * theirs.abs().max()
        found = blip_models.head_scores(reward, prompt, [media[p] for p in pictures])
        return error(found, theirs)

    for prompt in blip_cases.PLAIN:
        for kind, reward in rewards.items():
            measured = off(kind, reward, prompt)
            log.info("%s (%s), %s prompt: error over spread %.1e", name, kind, prompt, measured)
            assert measured < blip_models.BOUND, (kind, prompt)
    for kind, reward in rewards.items():
        other = blip_models.with_encoder(reward, blip_models.preparing(filter="bilinear"))
        assert off(kind, other, "short", FEW) > blip_models.BOUND
        with swapped_gelu(encoder.vision, encoder.text):
            assert off(kind, reward, "short", FEW) > 10 * blip_models.BOUND
