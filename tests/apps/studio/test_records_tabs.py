"""History, Batch and taste: what strangers wrote stays text, and whose clicks they are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("gradio")

from PIL import Image

from t2x.apps.studio import batch_tab, history_picture, taste_buttons
from t2x.apps.studio.album import Album
from t2x.apps.studio.desk import user_of
from t2x.studio.batches import BatchState
from t2x.studio.events import Drawn
from t2x.studio.history import History
from t2x.studio.recipes import Recipe
from t2x.studio.requests import CompareRequest, EditRequest

pytestmark = pytest.mark.extra("app")
SCRIPT = "<script>alert(1)</script>"


def drawn(arm: str, seed: int, text: str = "a cat") -> Drawn:
    record = Recipe(text, text, seed=seed, model=text).record()
    return Drawn(arm, seed, seed, Image.new("RGB", (8, 8), (seed, 0, 0)), record)


def test_a_script_in_a_recipe_or_a_batch_stays_text(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.add(drawn("original", 0, SCRIPT), user="ada", job="0123456789abcdef")
    (kept,) = history.page("ada").items
    state = BatchState(2, 1, 1, 0, errors=((2, SCRIPT),))
    records = [{"prompt": SCRIPT, "rewrites": [{"text": SCRIPT, "status": SCRIPT}]}]
    for html in (history_picture._about(kept), batch_tab._table(records, state)):
        assert "&lt;script&gt;" in html and "<script" not in html


def test_pairs_are_of_one_seed() -> None:
    album = Album(request=CompareRequest("a cat", num=3))
    for event in (drawn("original", 0), drawn("original", 1), drawn("rewritten", 1)):
        album.add(event)
    (pair,) = taste_buttons._pairs(album)
    assert [Path(path).name for path in pair] == ["original-seed1-2.png", "rewritten-seed1-2.png"]
    album.request = EditRequest(instruction="make it blue")
    assert taste_buttons._pairs(album) == [] and taste_buttons._pairs(None) == []
    album.remove()


def test_a_page_is_one_guest_from_its_first_click() -> None:
    page, other = (SimpleNamespace(session_hash=name, username=None) for name in ("a", "b"))
    assert user_of(None, page) == user_of("../user-ada", page) != user_of(None, other)
    assert user_of(None, None) != user_of(None, None)
    assert user_of(None, SimpleNamespace(session_hash="a", username="ada")) == "user-ada"
