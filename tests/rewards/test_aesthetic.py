"""Aesthetic heads in LAION's layouts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from t2x.errors import T2XError
from t2x.registry import import_attr, load_reward
from t2x.testing import tiny_open_clip


def _layer(out: int, width: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(out, width, generator=generator), torch.randn(out, generator=generator)


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    """Version 1: one layer, in a file of its own."""
    weight, bias = _layer(1, 16, 0)
    torch.save({"weight": weight, "bias": bias}, tmp_path / "linear.pth")
    return tmp_path / "linear.pth"


def _embeddings(clip: tuple[Any, Any], pictures: torch.Tensor) -> torch.Tensor:
    reward = load_reward("clip", source=clip)
    image = reward.encoders["clip"].encode_image(pictures)
    return torch.nn.functional.normalize(image, dim=-1)


def test_linear_head_on_the_normalised_embedding(
    clip: tuple[Any, Any], pictures: torch.Tensor, linear: Path
) -> None:
    scores = load_reward("aesthetic", source=linear, encoder=clip).score(["x"] * 3, pictures)
    weight, bias = _layer(1, 16, 0)
    expected = (_embeddings(clip, pictures) @ weight.T + bias).squeeze(1)
    assert torch.allclose(scores, expected, atol=1e-5)


def test_layers_are_read_in_order_of_their_numbers(
    clip: tuple[Any, Any], pictures: torch.Tensor, tmp_path: Path
) -> None:
    """Numbers with gaps and two digits: "10" comes after "2"."""
    layers = {0: _layer(8, 16, 0), 2: _layer(8, 8, 1), 10: _layer(1, 8, 2)}
    weights = {f"layers.{i}.weight": w for i, (w, _) in layers.items()}
    weights |= {f"layers.{i}.bias": b for i, (_, b) in layers.items()}
    save_file(weights, tmp_path / "head.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"activation": "relu"}))
    x = _embeddings(clip, pictures)
    for activation in ("relu", "none"):
        y = x
        for i, (w, b) in layers.items():
            y = y @ w.T + b
            y = y.relu() if activation == "relu" and i != 10 else y
        reward = load_reward("aesthetic", source=tmp_path, encoder=clip, activation=activation)
        assert torch.allclose(reward.score(["x"] * 3, pictures), y.squeeze(1), atol=1e-4)
    by_config = load_reward("aesthetic", source=tmp_path, encoder=clip)
    relu = load_reward("aesthetic", source=tmp_path, encoder=clip, activation="relu")
    assert torch.equal(by_config.score(["x"], pictures[:1]), relu.score(["x"], pictures[:1]))


def test_the_prompt_plays_no_part_even_if_blank(
    clip: tuple[Any, Any], pictures: torch.Tensor, linear: Path
) -> None:
    reward = load_reward("aesthetic", source=linear, encoder=clip)
    scores = reward.score(["", "a cat", "x" * 900], pictures)
    assert torch.equal(scores, reward.score(["y"] * 3, pictures))
    assert not scores.isnan().any()


def test_what_does_not_fit_is_said(
    clip: tuple[Any, Any], pictures: torch.Tensor, linear: Path, tmp_path: Path
) -> None:
    with pytest.raises(T2XError, match="which CLIP"):
        load_reward("aesthetic", source=linear)
    with pytest.raises(T2XError, match="no aesthetic head at"):
        load_reward("aesthetic", source=tmp_path / "nothing", encoder=clip)
    with pytest.raises(T2XError, match="none, relu"):
        load_reward("aesthetic", source=linear, encoder=clip, activation="gelu")
    torch.save({"weight": torch.zeros(1, 5), "bias": torch.zeros(1)}, tmp_path / "narrow.pth")
    narrow = load_reward("aesthetic", source=tmp_path / "narrow.pth", encoder=clip)
    with pytest.raises(T2XError, match="width 5"):
        narrow.score(["x"] * 3, pictures)
    torch.save({"conv": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(T2XError, match="its tensors: conv"):
        load_reward("aesthetic", source=tmp_path / "other.pth", encoder=clip)


def test_pickles_are_not_run(clip: tuple[Any, Any], tmp_path: Path) -> None:
    torch.save({"weight": Path("x")}, tmp_path / "bad.pth")
    with pytest.raises(T2XError, match="is a pickle that names"):
        load_reward("aesthetic", source=tmp_path / "bad.pth", encoder=clip)


def test_half_precision_heads_compute_in_float32(
    clip: tuple[Any, Any], pictures: torch.Tensor, linear: Path
) -> None:
    exact = load_reward("aesthetic", source=linear, encoder=tiny_open_clip())
    expected = exact.score(["x"] * 3, pictures)
    half = load_reward("aesthetic", source=linear, encoder=tiny_open_clip(), dtype=torch.bfloat16)
    features = {"clip": {"image": exact.encoders["clip"].encode_image(pictures)}}
    assert torch.allclose(half.head(features), expected, atol=1e-6)
    assert torch.allclose(half.score(["x"] * 3, pictures), expected, atol=0.2)


@pytest.mark.parametrize("name", ["laion-v1", "laion-v2"])
def test_published_heads_come_by_name_with_their_encoder(
    name: str, clip: tuple[Any, Any], linear: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their own name and as a source; the address is fixed to a commit and a SHA-256."""
    aesthetic = import_attr("t2x.rewards.aesthetic:load").__globals__
    asked: list[Any] = []

    def web_file(url: str, sha256: str) -> Path:
        asked.append((url, sha256))
        return linear

    def load_clip(source: Any, **options: Any) -> Any:
        asked.append(source)
        return from_anything(clip, **options)

    from_anything = aesthetic["load_clip"]
    monkeypatch.setitem(aesthetic, "web_file", web_file)
    monkeypatch.setitem(aesthetic, "load_clip", load_clip)
    reward = load_reward(name)
    assert reward.name == name
    assert load_reward("aesthetic", source=name).name == "aesthetic"
    (url, sha256), encoder = asked[:2]
    assert asked[2:] == asked[:2] and encoder == "ViT-L-14:openai"
    assert re.search("/[0-9a-f]{40}/", url) and re.fullmatch("[0-9a-f]{64}", sha256)


@pytest.mark.hub
@pytest.mark.parametrize("name", ["laion-v1", "laion-v2"])
def test_published_heads_on_their_own_encoder(name: str) -> None:
    """Between 1 and 10, and the whole picture better than noise."""
    noise = torch.rand(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    slope = torch.linspace(0.2, 0.8, 224).expand(1, 3, 224, 224)
    bad, good = load_reward(name).score(["x"] * 2, torch.cat([noise, slope])).tolist()
    assert 1 < bad < good < 10
