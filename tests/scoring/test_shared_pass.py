"""Rewards that share a tower share one pass of it, whatever their scale, prefix or head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from t2x.registry import load_reward
from t2x.scoring.ensemble import RewardEnsemble
from t2x.scoring.resize import Preprocess

from .conftest import PROMPTS


@pytest.fixture
def heads(tmp_path: Path) -> dict[str, Path]:
    """LAION's two layouts for embeddings of width 16."""
    generator = torch.Generator().manual_seed(7)

    def layer(out: int, width: int) -> dict[str, torch.Tensor]:
        return {
            "weight": torch.randn(out, width, generator=generator),
            "bias": torch.randn(out, generator=generator),
        }

    torch.save(layer(1, 16), tmp_path / "v1.pth")
    second = {
        f"layers.{i}.{k}": v for i, o, w in ((0, 8, 16), (2, 1, 8)) for k, v in layer(o, w).items()
    }
    torch.save(second, tmp_path / "v2.pth")
    return {"laion-v1": tmp_path / "v1.pth", "laion-v2": tmp_path / "v2.pth"}


def test_clipscore_laion_v1_v2_and_vlm_rm_run_the_image_tower_once(
    tiny_clip: Path,
    heads: dict[str, Path],
    pictures: torch.Tensor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rewards: list[Any] = [
        load_reward("clip", source=tiny_clip),
        load_reward(
            "clip",
            source=tiny_clip,
            scale="clipscore",
            prefix="A photo depicts ",
            name="clipscore",
        ),
        *(load_reward(name, source=path, encoder=tiny_clip) for name, path in heads.items()),
        load_reward("vlm-rm", source=tiny_clip),
    ]
    model = rewards[0].encoders["clip"].model
    passes: list[int] = []
    encode = model.encode_image

    def counted(pixels: torch.Tensor) -> torch.Tensor:
        passes.append(len(pixels))
        return encode(pixels)

    monkeypatch.setattr(model, "encode_image", counted)
    together = RewardEnsemble(rewards).components(PROMPTS, pictures)
    assert passes == [6]
    assert len(together) == 5
    alone = {r.name: r.score(PROMPTS, pictures) for r in rewards}
    assert passes == [6] * 6
    for name, scores in alone.items():
        assert torch.allclose(together[name], scores, atol=1e-6)
    values = torch.stack(list(alone.values()))
    assert torch.unique(values, dim=0).shape[0] == 5  # five rewards, not one five times


def test_other_preprocessing_is_another_pass(
    tiny_clip: Path, pictures: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    padded = Preprocess((32, 32), (0.4, 0.5, 0.6), (0.2, 0.3, 0.25), mode="longest")
    rewards = [
        load_reward("clip", source=tiny_clip),
        load_reward("hps", source=tiny_clip, preprocess=padded),
    ]
    model = rewards[0].encoders["clip"].model
    passes: list[int] = []
    encode = model.encode_image
    monkeypatch.setattr(model, "encode_image", lambda x: passes.append(len(x)) or encode(x))
    RewardEnsemble(rewards).components(PROMPTS, pictures)
    assert passes == [6, 6]
