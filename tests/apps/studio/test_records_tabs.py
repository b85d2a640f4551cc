"""History, Batch and taste: what strangers wrote stays text, and whose clicks they are."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("gradio")

import gradio as gr
from PIL import Image

from t2x.apps.studio import app, batch_tab, history_parts, history_picture, taste_buttons
from t2x.apps.studio.album import Album
from t2x.apps.studio.desk import user_of
from t2x.studio import Studio
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


def test_a_batch_says_what_became_of_a_rewrite_as_the_create_tab_does() -> None:
    rewrites = [{"text": "a cat", "status": "reverted"}]
    state = BatchState(2, 1, 1, 0)
    assert "<td>Not used</td>" in batch_tab._table([{"prompt": "a", "rewrites": rewrites}], state)
    assert state.said == "1 of 2 lines rewritten, 1 left out."


def test_a_table_says_that_it_is_a_part() -> None:
    records = [{"prompt": "a", "rewrites": [{"text": "b", "status": "accepted"}]}] * 12
    said = "the first 12 of 23 lines"
    assert said in batch_tab._table(records, BatchState(23, 23, 0, 0))
    assert said not in batch_tab._table(records, BatchState(23, 12, 0, 0))


def test_what_was_deleted_is_said(tmp_path: Path) -> None:
    page, history = app.build(Studio(home=tmp_path), home=tmp_path), History(tmp_path)
    request = SimpleNamespace(username="cleo")
    for seed in range(2):
        history.add(drawn("original", seed), user="user-cleo", job="0123456789abcdee")
    named = {block.elem_id: block for block in page.blocks.values()}
    sure, said = named["history-delete-all-sure"]._id, named["history-said"]
    (press,) = [fn for fn in page.fns.values() if (sure, "click") in fn.targets]
    changes = press.fn(request, [], [], "", False, 0, None)
    assert "2 pictures deleted." in changes[said] and "What you draw is kept" in changes[said]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """Desk and History tab of a studio that has loaded nothing."""
    home = tmp_path_factory.mktemp("home")
    with gr.Blocks():
        desk = app._desk(Studio(home=home), home, gr.BrowserState(None), gr.Tabs())
        return desk, history_parts.layout()


def test_a_picture_that_was_removed_by_hand_leaves_its_recipe(built: tuple[Any, Any]) -> None:
    desk, parts = built
    ids = [
        desk.history.add(drawn("original", seed), user="ada", job="0123456789abcdef")
        for seed in range(2)
    ]
    desk.history.files.path("ada", ids[0]).unlink()
    page = desk.history.page("ada")
    shown = history_parts.listed(desk, parts, page, searched=False, marked=[ids[1]])
    assert "its file is gone" in shown[parts.said] and shown[parts.lost].visible
    assert (shown[parts.ids], shown[parts.gone]) == ([ids[1]], [ids[0]])
    assert shown[parts.marked_said] == "1 selected" and shown[parts.marking].visible
    (item,) = shown[parts.gallery].value
    assert item["caption"] == "✓ Your words, seed 1\na cat"
    kept = desk.history.get("ada", ids[0])
    detail = history_picture.kept_detail(desk, parts, "ada", kept)
    assert detail[parts.shown] is None and detail[parts.again].visible
    assert not detail[parts.edit].visible and not detail[parts.png].visible
    assert "file is gone; its recipe can draw it again" in detail[parts.status]
    pixels, recipe = history_picture._loaded(desk, detail[parts.picked], "ada")
    assert pixels is None and recipe.seed == 0
    assert set(shown) <= set(parts.listing) and set(detail) <= set(parts.detail)


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
