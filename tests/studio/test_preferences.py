"""Tastes: clicks become pairs, pairs become a reward that orders pictures as the user does."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import pytest
import torch
from PIL import Image, ImageDraw

from t2x.errors import T2XError
from t2x.media import from_pil
from t2x.registry import load_reward
from t2x.studio import Studio
from t2x.studio.events import Finished
from t2x.studio.hurry import LOADING
from t2x.studio.preferences import LEAST, TASTE, Tastes
from t2x.studio.requests import CompareRequest
from t2x.studio.taste_trial import trial


def picture(colour: str, place: int) -> Image.Image:
    image = Image.new("RGB", (64, 64), "white")
    ImageDraw.Draw(image).ellipse((8 + place, 12, 36 + place, 44), colour, "black")
    return image


def test_pairs_make_a_reward_of_ones_own(tmp_path: Path) -> None:
    tastes = Tastes(tmp_path)
    with pytest.raises(T2XError, match=f"from {LEAST} pairs on, and there are 0"):
        tastes.reward("ada")
    for i in range(LEAST):
        state = tastes.choose("ada", "a ball", picture("red", i), picture("blue", i))
        tastes.choose("ben", "a ball", picture("blue", i), picture("red", i))
    assert (state.pairs, state.missing) == (LEAST, 0) and "known from 5" in state.said
    assert tastes.thumb("ada", "a ball", picture("red", 0), liked=True).counted == "6 choices"
    assert tastes.thumb("ada", "a ball", picture("red", 0), liked=None).counted == "5 choices"
    unseen = from_pil([picture("red", 20), picture("blue", 20)])
    scores = {user: tastes.reward(user).score(["", ""], unseen) for user in ("ada", "ben")}
    assert scores["ada"][0] > scores["ada"][1] and scores["ben"][0] < scores["ben"][1]
    by_name = load_reward(f"pal:{tastes.folder('ada')}")
    assert torch.allclose(by_name.score(["", ""], unseen), scores["ada"])
    again = Tastes(tmp_path)  # after a restart
    assert again.state("ada").pairs == LEAST
    again.choose("ada", "a secret birthday cake", picture("red", 1), picture("green", 2))
    again.forget("ada")
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept and not any(b"secret birthday" in path.read_bytes() for path in kept)
    assert again.state("ada").pairs == 0 and again.state("ben").pairs == LEAST
    assert not again.folder("ada").exists()


def test_thumbs_become_pairs_within_one_prompt(tmp_path: Path) -> None:
    tastes = Tastes(tmp_path)
    for i in range(2):
        tastes.thumb("ada", "a ball", picture("red", i), liked=True)
        state = tastes.thumb("ada", "a ball", picture("blue", i), liked=False)
    assert (state.pairs, state.liked, state.disliked) == (4, 2, 2)
    assert tastes.thumb("ada", "a box", picture("green", 1), liked=False).pairs == 4
    assert tastes.thumb_of("ada", picture("red", 0)) is True
    assert tastes.thumb_of("ada", picture("blue", 1)) is False
    assert tastes.thumb_of("ben", picture("red", 0)) is None
    assert tastes.thumb("ada", "a ball", picture("red", 0), liked=False).pairs == 3
    assert tastes.thumb("ada", "a ball", picture("red", 0), liked=None).pairs == 2
    with pytest.raises(T2XError, match="same picture"):
        tastes.choose("ada", "a ball", picture("red", 0), picture("red", 0))


def test_choices_of_the_version_before_count(tmp_path: Path) -> None:
    """Its tables had no column for the look, and no number."""
    tastes = Tastes(tmp_path)
    for i in range(LEAST):
        tastes.choose("ada", "", picture("red", i), picture("blue", i))
    with closing(sqlite3.connect(tmp_path / "tastes/tastes.sqlite")) as db:
        for table in ("pairs", "thumbs"):
            db.execute(f"ALTER TABLE {table} DROP COLUMN look")
        db.execute("PRAGMA user_version = 0")
    again = Tastes(tmp_path)
    again.choose("ada", "", picture("red", 9), picture("green", 9))
    unseen = from_pil([picture("red", 20), picture("blue", 20)])
    scores = again.reward("ada").score(["", ""], unseen)
    assert again.state("ada").pairs == LEAST + 1 and scores[0] > scores[1]


def test_the_first_look_waits_for_a_model_that_loads(tmp_path: Path) -> None:
    tastes, told = Tastes(tmp_path), Event()

    def thumb() -> None:
        tastes.thumb("ada", "a cat", picture("red", 8), liked=True)
        told.set()

    with LOADING:
        Thread(target=thumb, daemon=True).start()
        assert not told.wait(0.5)
    assert told.wait(60)
    with LOADING:  # what is loaded is not waited for again
        told.clear()
        Thread(target=thumb, daemon=True).start()
        assert told.wait(60)


def test_tastes_that_can_not_be_used_are_told_and_the_studio_starts(tmp_path: Path) -> None:
    (tmp_path / "tastes").write_text("a file is in the way")
    tastes = Tastes(tmp_path)
    with pytest.raises(T2XError, match="cannot write into"):
        tastes.state("ada")
    (tmp_path / "tastes").unlink()
    assert tastes.state("ada").clicks == 0
    with closing(sqlite3.connect(tmp_path / "tastes/tastes.sqlite")) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(T2XError, match=r"newer t2x.*upgrade"):
        Tastes(tmp_path).state("ada")


def test_a_choice_that_is_taken_back_counts_once(tmp_path: Path) -> None:
    tastes = Tastes(tmp_path)
    for _ in range(3):
        tastes.choose("ada", "", picture("red", 0), picture("blue", 0))
        state = tastes.choose("ada", "", picture("blue", 0), picture("red", 0))
    assert state.pairs == 1


def test_the_studio_scores_by_it(tmp_path: Path) -> None:
    tastes = Tastes(tmp_path)
    for i in range(LEAST):
        tastes.choose("ada", "", picture("red", i), picture("blue", i))
    studio = Studio(generator="emoji-flow-turbo", rewriter="none", rewards=())
    studio.offer_reward(TASTE, tastes.reward)
    request = CompareRequest("a cat", num=1, rewrite=False, rewards=(TASTE,))
    found = {}
    for user in ("ada", "ben"):
        last = list(studio.run(request, user=user))[-1]
        assert isinstance(last, Finished)
        (found[user],) = last.entry.scores
    studio.close()
    assert found["ada"].values["original"][0] < 0
    assert "pairs on, and there are" in found["ben"].problem


def test_a_taste_orders_unseen_items_better_than_chance() -> None:
    """Items in 16 dimensions, of which the user likes one direction: 10 noisy choices."""
    stream = torch.Generator().manual_seed(0)
    items = torch.randn(48, 8, 16, generator=stream)
    items = torch.nn.functional.normalize(items, dim=-1)
    liked = items[..., 0] * 4
    shares = [trial(items, liked, choices=10, seed=seed) for seed in range(8)]
    assert sum(shares) / 8 > 0.6
