"""Recipes of the CLIP family: losses by hand, deterministic batches, two steps, resume, stock
formats.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from t2x.registry import import_attr, load_reward
from t2x.scoring.clip_encoder import load_clip
from t2x.world.weights import model_dir

recipe = import_attr("t2x.train.emoji_clip:main").__globals__
Batch, contrastive_loss, family_loss = (
    recipe[n] for n in ("Batch", "contrastive_loss", "family_loss")
)


@pytest.fixture(scope="module")
def small() -> Any:
    """The recipe at a hundredth of its size."""
    patch = pytest.MonkeyPatch()
    patch.setitem(recipe, "FAMILIES", 2)
    patch.setitem(recipe, "VISION", {**recipe["VISION"], "width": 48, "layers": 1})
    patch.setitem(recipe, "near_miss_metrics", lambda folder: {"validation/clean": 0.5})
    patch.setitem(recipe, "is_present", lambda name: False)
    yield patch
    patch.undo()


@pytest.fixture(scope="module")
def trained(
    small: Any, tmp_path_factory: pytest.TempPathFactory, check_resume: Callable[..., None]
) -> Path:
    out = tmp_path_factory.mktemp("emoji-clip")
    check_resume(recipe["main"], out, steps=2, killed=1)
    return out / "whole"


def make_batch(owner: list[int], pictures: int) -> Any:
    fits = torch.zeros(len(owner), pictures, dtype=torch.bool)
    return Batch(torch.zeros(pictures, 1), torch.zeros(1, 1), torch.tensor(owner), fits)


def test_contrastive_loss_closed_form() -> None:
    # Two texts of picture 0, one of picture 1; cosine 1 with the own picture, 0 else; scale s.
    batch = make_batch([0, 0, 1], 2)
    cos = F.one_hot(batch.owner, 2).float()
    s = 2.0
    by_text = math.log(1 + math.exp(-s))
    first = math.log(2 * math.exp(s) + 1) - s
    second = math.log(math.exp(s) + 2) - s
    expected = (by_text + (first + second) / 2) / 2
    assert contrastive_loss(cos, torch.tensor(s), batch).item() == pytest.approx(expected)


def test_accidental_matches_are_left_out() -> None:
    batch = make_batch([0, 1], 2)
    batch.fits[0, 1] = True
    cos = torch.tensor([[0.2, 0.9], [0.1, 0.8]], requires_grad=True)
    contrastive_loss(cos, torch.tensor(3.0), batch).backward()
    assert cos.grad is not None
    assert cos.grad[0, 1] == 0
    assert cos.grad[1, 0] != 0


def test_family_loss_looks_inside_families_only() -> None:
    batch = make_batch([0, 3], 6)
    aux = torch.nn.ParameterDict({"scale": torch.tensor(0.0), "bias": torch.tensor(0.0)})
    cos = torch.zeros(2, 6)
    assert family_loss(cos, aux, batch).item() == pytest.approx(math.log(2))
    cos[0, 3:] = 5
    assert family_loss(cos, aux, batch).item() == pytest.approx(math.log(2))
    cos[0, 1] = 5
    assert family_loss(cos, aux, batch).item() > 1


def test_batches_depend_on_their_number_alone(trained: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(trained / "model")
    draw = recipe["draw_batch"]
    a, b, c = draw(5, tokenizer), draw(5, tokenizer), draw(6, tokenizer)
    assert torch.equal(a.pixels, b.pixels)
    assert torch.equal(a.ids, b.ids)
    assert not torch.equal(a.pixels, c.pixels)
    assert not a.fits[torch.arange(len(a.owner)), a.owner].any()


def test_the_folder_is_stock_open_clip(trained: Path) -> None:
    import open_clip

    name = f"local-dir:{trained / 'model'}"
    model, _, _ = open_clip.create_model_and_transforms(name)
    tokenizer = open_clip.get_tokenizer(name)
    texts = ["two red cats left of a dog", "a " * 90]
    ids = tokenizer(texts)
    end = tokenizer.tokenizer.eos_token_id
    assert model.text_eos_id == end
    assert model.text_pool_type == "eos"
    assert (ids == end).any(1).all()
    assert ids[1, -1] == end
    with torch.no_grad():
        fast = recipe["text_features"](model.eval(), ids)
        assert torch.allclose(fast, model.encode_text(ids), atol=1e-4)
        # Pooled at the end token: what stands behind it does not count, the token itself does.
        place = int((ids[0] == end).nonzero()[0])
        tail, cut = ids[:1].clone(), ids[:1].clone()
        tail[0, place + 1 :], cut[0, place] = 9, 9
        whole = model.encode_text(ids[:1])
        assert torch.allclose(whole, model.encode_text(tail), atol=1e-5)
        assert not torch.allclose(whole, model.encode_text(cut), atol=1e-3)


def test_training_moves_everything(trained: Path) -> None:
    """Away from the weights that seed 0 gives, and not far in two steps."""
    trained_state = torch.load(trained / "checkpoint.pt", weights_only=True)["state"]["model"]
    config = json.loads((trained / "model/open_clip_config.json").read_text())
    torch.manual_seed(0)
    fresh = recipe["build_clip"](config).state_dict()
    moved = {k: (v - fresh[k]).abs().max().item() for k, v in trained_state.items()}
    assert max(moved.values()) < 0.01
    assert min(v for k, v in moved.items() if k.endswith("weight") and "ln" not in k) > 0
    assert json.loads((trained / "metrics.json").read_text())["steps"] == 2


def test_hps_starts_from_it(
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    check_resume: Callable[..., None],
) -> None:
    hps = import_attr("t2x.train.emoji_hps:main").__globals__
    monkeypatch.setitem(hps, "PAIRS", 3)
    monkeypatch.setitem(hps, "preference_accuracy", lambda *_: 0.5)
    monkeypatch.setitem(hps, "near_miss_metrics", lambda folder: {})
    check_resume(partial(hps["main"], start=trained / "model"), tmp_path, steps=2, killed=1)
    out = tmp_path / "whole"
    media = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    before = load_reward("hps", source=trained / "model").score(["a cat"] * 2, media)
    after = load_reward("hps", source=out / "model").score(["a cat"] * 2, media)
    assert not torch.allclose(before, after, atol=1e-4)


def test_aesthetic_learns_its_ratings(
    small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check_resume: Callable[..., None]
) -> None:
    """On the pictures that it is trained on, half the error of the head that it starts as."""
    aesthetic = import_attr("t2x.train.emoji_aesthetic:main").__globals__
    monkeypatch.setitem(aesthetic, "HELD_OUT", 60)
    folder = model_dir("emoji-clip")  # one of random weights gives all pictures the same embedding
    check_resume(partial(aesthetic["main"], pictures=60), tmp_path, steps=400, killed=300)
    clip = load_clip(folder)
    data, ratings = aesthetic["embed"](clip, 60, 60)
    heads = [aesthetic["build_head"](data.shape[1]) for _ in range(2)]
    state = torch.load(tmp_path / "whole" / "checkpoint.pt", weights_only=True)["state"]
    heads[1].load_state_dict(state["head"])
    before, after = (aesthetic["measure"](head, data, ratings)["mae"] for head in heads)
    assert after < 0.5 * before
    reward = load_reward("aesthetic", source=tmp_path / "whole/model", encoder=folder)
    media = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    own = aesthetic["predict"](heads[1], clip.encode_image(media))
    assert torch.allclose(reward.score(["x"] * 2, media), own, atol=0.02)  # half precision
