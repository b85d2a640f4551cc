"""PAL on the embedded world: users who like other colours, and a new one with six choices."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.look import picture_look
from t2x.registry import import_attr, load_reward
from t2x.testing import check_reward
from t2x.types import Context
from t2x.world.corruption import to_pictures
from t2x.world.render import render_scene
from t2x.world.scene import CLASSES, COLORS, Group, Scene

fit, add_user, own_taste = (
    import_attr(f"t2x.rewards.pal:{n}") for n in ("fit", "add_user", "own_taste")
)
TASTES = {"ada": ("red", "pink"), "ben": ("blue", "purple"), "cleo": ("green", "yellow")}


def _choices(taste: Sequence[str], n: int, seed: int) -> tuple[Tensor, Tensor]:
    """One object in a colour that is liked, and another in one that is not."""
    rng = random.Random(seed)
    others = [c for c in COLORS if c not in taste]

    def draw(colors: Sequence[str]) -> Tensor:
        scenes = [Scene((Group(rng.choice(CLASSES), rng.choice(colors)),)) for _ in range(n)]
        return to_pictures([render_scene(s, rng.randrange(10**6)) for s in scenes])

    return draw(list(taste)), draw(others)


@pytest.fixture(scope="module")
def model() -> Any:
    rows = [_choices(taste, 16, i) for i, taste in enumerate(TASTES.values())]
    users = [name for name in TASTES for _ in range(16)]
    chosen, rejected = (torch.cat(part) for part in zip(*rows, strict=True))
    return fit(users, chosen, rejected, prototypes=3, width=4)


def _right(model: Any, user: str, taste: str) -> float:
    """Share of 30 fresh choices of a taste that the reward of ``user`` gets right."""
    reward = load_reward("pal", source=model)
    chosen, rejected = _choices(TASTES[taste], 30, 100)
    context = Context(user=[user] * 30)
    better = reward.score(["x"] * 30, chosen, context=context)
    return float((better > reward.score(["x"] * 30, rejected, context=context)).float().mean())


def test_each_user_is_scored_by_their_own_taste(model: Any) -> None:
    """Fresh choices: measured 1.0 by one's own weights; by another's it is far from that."""
    assert min(_right(model, name, name) for name in TASTES) > 0.9
    others = [_right(model, a, b) for a in TASTES for b in TASTES if a != b]
    assert sum(others) / len(others) < 0.6


@pytest.mark.parametrize("taste", TASTES)
def test_a_new_user_from_six_choices(model: Any, taste: str) -> None:
    known = add_user(model, "new", *_choices(TASTES[taste], 6, 50))
    assert _right(known, "new", taste) > 0.9
    assert float(known.users["new"].sum()) == pytest.approx(1, abs=1e-6)
    assert torch.equal(known.prototypes, model.prototypes)
    assert "new" not in model.users


def test_the_prompt_has_no_say(model: Any) -> None:
    reward = load_reward("pal", source=model)
    media, context = _choices(TASTES["ada"], 3, 7)[0], Context(user=["ada", "ben", "ada"])
    scores = reward.score(["", "a", "b"], media, context=context)
    assert torch.equal(scores, reward.score(["z"] * 3, media, context=context))
    assert not scores.isnan().any()


def test_save_and_load(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path)
    media, context = _choices(TASTES["ben"], 2, 8)[0], Context(user=["ben", "ada"])
    loaded = load_reward("pal", source=tmp_path).score(["x"] * 2, media, context=context)
    assert torch.equal(
        loaded, load_reward("pal", source=model).score(["x"] * 2, media, context=context)
    )


def test_one_choice_points_from_worse_to_better() -> None:
    """Scaled by its own length the difference is a unit vector; the ideal point is ten of it from
    the mean, and what is the same in all choices has no say."""
    chosen, rejected = torch.tensor([[0.6, 0.8, 0.0]]), torch.tensor([[0.6, 0.0, 0.8]])
    same = torch.full((1, 8), 0.5)
    taste = own_taste("ada", chosen, rejected, looks=(same, same))
    length = (2 * 0.8**2) ** 0.5
    wanted = torch.tensor([0.6, 0.4, 0.4]) / length + 10 * torch.tensor([0, 1, -1]) / 2**0.5
    assert torch.allclose(taste.prototypes[0, :3], wanted, atol=1e-5)
    assert torch.equal(taste.project[3:], torch.zeros(8, 11))
    assert torch.equal(taste.prototypes[0, 3:], torch.zeros(8))


def test_a_taste_in_looks_alone(tmp_path: Path) -> None:
    """Same embedding, brighter is better; one choice's look is not known. Saved and read back it
    scores the same, and keeps the contract of rewards."""
    pictures = torch.rand(12, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    bright, dark = picture_look(0.5 + pictures / 2), picture_look(pictures / 2)
    bright[3] = torch.nan
    same = torch.nn.functional.normalize(torch.ones(12, 128), dim=-1)
    taste = own_taste("ada", same, same, looks=(bright, dark))
    taste.save(tmp_path)
    fresh = torch.stack([torch.full((3, 48, 80), value) for value in (0.3, 0.6, 0.9)])
    scores = load_reward("pal", source=taste).score([""] * 3, fresh)
    assert scores[0] < scores[1] < scores[2]
    reward = load_reward("pal", source=tmp_path)
    assert torch.equal(reward.score([""] * 3, fresh), scores)
    check_reward(reward, ["a", "b", "c"], 0.2 + 0.6 * pictures[:3], step=0.05)
    with pytest.raises(T2XError, match="one user's own"):
        add_user(taste, "ben", pictures, pictures)


def test_users_have_to_be_known(model: Any, tmp_path: Path) -> None:
    reward = load_reward("pal", source=model)
    media = torch.rand(2, 3, 64, 64)
    with pytest.raises(T2XError, match="give Context"):
        reward.score(["x"] * 2, media)
    with pytest.raises(T2XError, match="with 2 ids"):
        reward.score(["x"] * 2, media, context=Context(user=["ada"]))
    with pytest.raises(T2XError, match="does not know 'eve'; it knows 'ada', 'ben', 'cleo'"):
        reward.score(["x"] * 2, media, context=Context(user=["ada", "eve"]))
    with pytest.raises(T2XError, match="no PAL model"):
        load_reward("pal", source=tmp_path)
    with pytest.raises(T2XError, match="no PAL model"):
        load_reward("pal")
    with pytest.raises(T2XError, match="each choice"):
        fit(["ada"], media, media)


def test_choices_that_cannot_be_measured_are_refused(model: Any) -> None:
    chosen, rejected = _choices(["red"], 3, 1)
    chosen[1, 0, 0, 0] = torch.inf
    with pytest.raises(T2XError, match=r"choices \[1\] hold pixels"):
        add_user(model, "new", chosen, rejected)
