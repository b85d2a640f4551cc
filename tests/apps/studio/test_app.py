"""The page as it is built: its tabs, its look, and whose page it is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from t2x.studio import Studio
from t2x.studio.history import History

pytestmark = pytest.mark.extra("app")
USER = "guest-" + "0f" * 16


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from t2x.apps.studio.app import build

    home = tmp_path_factory.mktemp("home")
    return build(Studio(home=home), home=home)


def test_the_page_has_every_tab_once(page: Any) -> None:
    labels = [block.label for block in page.blocks.values() if type(block).__name__ == "Tab"]
    assert labels == ["Create", "Edit", "Ask me", "History", "Batch"]


def test_the_look_asks_nothing_of_the_network() -> None:
    from t2x.apps.studio.app import look

    theme, sheet = look()["theme"], Path(look()["css_paths"][0]).read_text(encoding="utf-8")
    assert theme._stylesheets == []
    assert not re.search(r"url\([\"']?(https?:)?//|@import", theme._get_theme_css() + sheet)


def test_copies_of_the_day_before_go_and_the_history_stays(
    page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    from gradio.processing_utils import move_files_to_cache
    from gradio.route_utils import delete_files_created_by_app
    from PIL import Image

    from t2x.apps.studio.history_parts import forget_copies

    every, age = page.delete_cache
    assert every <= age == 86400
    gallery = next(b for b in page.blocks.values() if b.elem_id == "history-gallery")
    monkeypatch.setattr(gallery, "GRADIO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("gradio.processing_utils._check_allowed", lambda path, check: None)
    kept = [tmp_path / f"0123456789abcdef-original-{n}.png" for n in range(2)]
    for n, path in enumerate(kept):
        Image.new("RGB", (8, 8), (n, 0, 0)).save(path)

    def shown() -> list[Path]:
        value = gallery.postprocess([(str(path), "") for path in kept]).model_dump()
        data = move_files_to_cache(value, gallery, postprocess=True)
        return [Path(item["image"]["path"]) for item in data]

    first = shown()
    assert all(path.is_relative_to(tmp_path / "cache") for path in first)
    delete_files_created_by_app(page, age)
    assert all(path.exists() for path in first)
    delete_files_created_by_app(page, 0)
    assert not any(path.exists() for path in first) and all(path.exists() for path in kept)
    again = shown()
    assert all(path.exists() for path in again)
    parts = cast(Any, SimpleNamespace(**dict.fromkeys(
        ("gallery", "shown", "png", "beside", "everything"), gallery
    )))  # fmt: skip
    forget_copies(parts, [kept[0].stem])
    assert [path.exists() for path in again] == [False, True]
    assert os.listdir(again[0].parent) == []


@pytest.mark.parametrize("forged", [None, 3, "", "user-ada", "../../etc", "guest-", USER + "/.."])
def test_a_browser_cannot_choose_who_it_is(forged: Any) -> None:
    from t2x.apps.studio.desk import user_of

    given = user_of(forged, cast(Any, SimpleNamespace(username=None)))
    assert given.startswith("guest-") and len(given) == len(USER) and given != forged


def test_who_has_logged_in_is_known_by_name() -> None:
    from t2x.apps.studio.desk import user_of

    assert user_of(USER, cast(Any, SimpleNamespace(username="ada"))) == "user-ada"
    assert user_of(USER, None) == USER


def test_a_page_without_a_home_is_built_and_says_so(tmp_path: Path) -> None:
    from t2x.apps.studio.app import build
    from t2x.apps.studio.history_tab import _found

    home = tmp_path / "home"
    home.write_text("a file is in the way")
    page = build(Studio(home=home), home=home)
    assert len(page.blocks) > 100
    said = SimpleNamespace(said="said")
    desk = SimpleNamespace(history=History(home))
    shown = _found(cast(Any, desk), cast(Any, said), "ada", "", False, 0, [])
    assert "annot write into the folder" in shown["said"] and "alert" in shown["said"]
    assert list(tmp_path.iterdir()) == [home]


def test_the_browser_s_id_outlives_a_restart(tmp_path: Path) -> None:
    from t2x.apps.studio.app import build

    secrets = []
    for _ in range(2):
        build(Studio(home=tmp_path), home=tmp_path)
        secrets.append((tmp_path / "page-secret").read_text(encoding="utf-8"))
    assert secrets[0] == secrets[1] and len(secrets[0]) == 64


def test_the_page_needs_no_torch_and_leaves_gradios_files_alone():
    """Both made the page, and with it the first picture, seconds later."""
    code = (
        "import sys, t2x.apps.studio.serving, gradio.component_meta as meta; "
        "print('torch' in sys.modules, meta.create_or_modify_pyi.__module__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "t2x.apps.studio.gradio_stubs"], done.stderr


def test_what_ask_me_grew_is_drawn_at_once(page: Any) -> None:
    """After the words are handed over and the tab is open, the Create tab's stage is at work."""
    name = {block._id: block.elem_id for block in page.blocks.values()}
    steps = page.config["dependencies"]
    (press,) = (s for s in steps if any(name.get(t) == "ask-draw" for t, _ in s["targets"]))
    assert {"prompt", "tabs"} == {name[id] for id in press["outputs"]}
    (drawing,) = (s for s in steps if s["trigger_after"] == press["id"])
    assert {"prompt", "seed", "mode"} <= {name[id] for id in drawing["inputs"]}
    assert {"gallery-left", "gallery-right", "status"} <= {name[id] for id in drawing["outputs"]}


def test_each_example_is_rewritten_into_what_it_says() -> None:
    from t2x import load_guarded
    from t2x.apps.studio.create_tab import EXAMPLES

    things = [["red pizza", "cat", "cat"], ["elephant", "red umbrella"], ["green apple"] * 4]
    things += [["bus", "yellow bird"]]
    groups = load_guarded("emoji-rewriter").rewrite(list(EXAMPLES))
    for (found,), wanted in zip(groups, things, strict=True):
        assert found.status == "accepted", found
        assert re.findall(r": an? ([a-z ]+)\.", found.text) == wanted


def test_values_are_judged_before_handlers_see_them(page: Any, tmp_path: Path) -> None:
    """In one line that names no path and no component, and no stubs are written on the way."""
    import asyncio

    import gradio as gr
    from gradio.data_classes import ImageData

    from t2x.apps.studio import given

    event = next(fn for fn in page.fns.values() if fn.api_name == "rewrite")
    for values, said in (
        (["a cat"], "1 values came, and 2 belong here: prompt, seed"),
        (["a cat", None], "seed is null; give a whole number"),
        (["a cat", "x"], "seed is 'x'; give a whole number"),
        (["a cat", 1.5], "seed is 1.5; give a whole number"),
    ):
        with pytest.raises(gr.Error) as caught:
            asyncio.run(page.preprocess_data(event, values, None))
        assert (caught.value.message, caught.value.print_exception) == (said, False)
    picture = next(block for block in page.blocks.values() if block.elem_id == "edit-picture")
    text = tmp_path / "x.png"
    text.write_text("no picture")
    assert picture.preprocess(ImageData(path=str(text), orig_name="x.png")) == str(text)
    assert picture.get_block_name() == "image"
    assert not Path(given.__file__).with_suffix(".pyi").exists()


def test_who_has_logged_in_is_said_with_the_way_out() -> None:
    from t2x.apps.studio.app import _who

    shown = _who(cast(Any, SimpleNamespace(username="<ada>")))
    assert '&lt;ada&gt; · <a href="logout">Log out</a>' in shown.value and shown.visible
    assert not _who(cast(Any, SimpleNamespace(username=None))).visible


def test_the_name_of_a_file_stays_as_it_is_in_a_line() -> None:
    from t2x.apps.studio.live import note_line

    assert ">x.svg is an SVG drawing<" in note_line("x.svg is an SVG drawing")
    assert ">Stopped.<" in note_line("stopped.") and ">Give one<" in note_line("give one")
