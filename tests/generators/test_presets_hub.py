"""Presets against the repositories that they name, where a hub can be reached; and, with a GPU too,
whether each published model draws what it is told with its preset.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from t2x.generators.presets import ModelPreset, presets
from t2x.registry import load_generator, load_reward

ALL = list(presets().values())
DRAWING = [preset for preset in ALL if {"t2i", "t2v"} & preset.pipelines.keys()]


def _named(preset: ModelPreset) -> str:
    return preset.name


@pytest.mark.hub
@pytest.mark.parametrize("preset", ALL, ids=_named)
def test_the_repository_is_what_the_preset_says(preset: ModelPreset) -> None:
    """No weights are fetched: the list of files, the card and the pipeline's index."""
    from huggingface_hub import HfApi, hf_hub_download

    for repository in {*preset.hub, preset.pipeline_source}:
        assert HfApi().repo_exists(repository), repository
    info = HfApi().model_info(preset.hub[0])
    if preset.gated is not None:
        assert bool(info.gated) == preset.gated
    if preset.denoiser_file:
        assert preset.denoiser_file in {file.rfilename for file in info.siblings or ()}
    index = Path(hf_hub_download(preset.pipeline_source, "model_index.json"))
    assert json.loads(index.read_text("utf-8"))["_class_name"] in preset.pipelines.values()


@pytest.mark.hub
@pytest.mark.gpu
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("preset", DRAWING, ids=_named)
def test_a_published_model_draws_what_it_is_told(preset: ModelPreset) -> None:
    """Run first when the gate of a model is open: a preset that spoils its model fails here."""
    prompts = ["a photo of a red apple on a white table", "a photo of a brown dog on green grass"]
    generator = load_generator(preset.name, offload="model", batch_size=1)
    media = generator.generate(prompts, seeds=[0, 1])
    generator.free()
    pictures = media if generator.modality == "image" else media[:, media.shape[1] // 2]
    clip = load_reward("clip", source="ViT-L-14:openai")
    right = clip.score(prompts, pictures)
    wrong = clip.score(prompts[::-1], pictures)
    assert torch.isfinite(right).all()
    assert (right > wrong + 0.03).all(), (right.tolist(), wrong.tolist())
