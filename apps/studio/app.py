"""The page: one box, and a tab for each thing that can be done with it."""

from __future__ import annotations

import logging
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from t2x.evaluation.html import escaped
from t2x.files import write_whole
from t2x.studio.batches import Batches
from t2x.studio.history import History
from t2x.studio.preferences import TASTE, Tastes

from . import ask_tab, batch_tab, create_tab, edit_tab, history_tab
from .desk import FAST, Desk, new_guest, user_of
from .endpoints import add_endpoints
from .given import Page, PictureFile
from .region import region_box

if TYPE_CHECKING:
    from t2x.studio.engine import Studio

log = logging.getLogger(__name__)

TABS = {
    "create": ("Create", create_tab.tab),
    "edit": ("Edit", edit_tab.tab),
    "ask": ("Ask me", ask_tab.tab),
    "history": ("History", history_tab.tab),
    "batch": ("Batch", batch_tab.tab),
}
# Seconds: gradio's copies of what pages show, and uploads, are looked through every hour, and those
# of the day before are deleted. The history's own files lie elsewhere, and are copied when shown.
COPIES = (3600, 86400)


def build(studio: Studio, *, home: Path) -> gr.Blocks:
    """Lay out the page over ``studio`` (``t2x.studio.engine.Studio``); ``home`` is its folder.

    Launch what comes back with ``**look()``.
    """
    with Page(
        title="t2x studio", analytics_enabled=False, fill_width=True, delete_cache=COPIES
    ) as page:
        guest = gr.BrowserState(None, storage_key="t2x-studio-guest", secret=_page_secret(home))
        page.load(_keep_guest, guest, guest, queue=False, api_visibility="private")
        script = Path(__file__).with_name("page.js").read_text(encoding="utf-8")
        page.load(None, None, None, js=script, **FAST)
        # Whatever stands between the tabs would count as one of them.
        tabs = gr.Tabs(elem_id="tabs", render=False)
        desk = _desk(studio, home, guest, tabs)
        add_endpoints(desk)  # first: names of endpoints are theirs
        tabs.render()
        with tabs:
            for name, (label, tab) in TABS.items():
                with gr.Tab(label, id=name, elem_id=f"tab-{name}"):
                    tab(desk)
        who = gr.HTML(visible=False, elem_id="who")
        page.load(_who, None, who, **FAST)
    return page


def _who(request: gr.Request) -> gr.HTML:
    """Who has logged in, and the way out; nothing where nobody has to."""
    name = getattr(request, "username", None)
    said = f'{escaped(str(name))} · <a href="logout">Log out</a>'
    return gr.HTML(f'<p style="text-align:right">{said}</p>' if name else "", visible=bool(name))


def look() -> dict[str, Any]:
    """Theme and style sheet, as arguments of ``gr.Blocks.launch`` (and of ``mount_gradio_app``).

    Fonts are the system's: the page asks nothing of the network.
    """
    sans = ("ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "sans-serif")
    mono = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")
    theme = gr.themes.Base(
        primary_hue="indigo", neutral_hue="slate", radius_size="lg", font=sans, font_mono=mono
    )
    return {
        "theme": theme,
        "css_paths": [Path(__file__).with_name("style.css")],
        "footer_links": [],
    }


def _keep_guest(guest: str | None, request: gr.Request) -> str:
    name = user_of(guest, request)
    return name if name.startswith("guest-") else new_guest(request)


def _page_secret(home: Path) -> str:
    """The key that the browser's id is kept under; the same after a restart, unless it can't be
    written down."""
    path = home / "page-secret"
    try:
        if not path.is_file():
            home.mkdir(parents=True, exist_ok=True)
            write_whole(path, secrets.token_hex(32))
            path.chmod(0o600)
        return path.read_text(encoding="utf-8")
    except OSError:
        log.warning("%s can't be written: who a browser is will be forgotten", path)
        return secrets.token_hex(32)


def _desk(studio: Studio, home: Path, guest: gr.BrowserState, tabs: gr.Tabs) -> Desk:
    history, tastes = History(home), Tastes(home)
    studio.listen(history.watch)
    studio.offer_reward(TASTE, tastes.reward)
    return Desk(
        studio=studio,
        home=home,
        history=history,
        tastes=tastes,
        batches=Batches(home / "pictures"),
        guest=guest,
        tabs=tabs,
        prompt=gr.Textbox(
            render=False,
            elem_id="prompt",
            label="What do you want to see?",
            show_label=False,
            placeholder="What do you want to see?",
            lines=1,
            max_lines=8,
            autofocus=True,
            container=False,
            scale=1,
        ),
        seed=gr.Number(
            0, render=False, elem_id="seed", label="Seed", precision=0, minimum=0, min_width=90
        ),
        edit_picture=PictureFile(
            render=False,
            elem_id="edit-picture",
            label="Picture",
            type="filepath",
            image_mode=None,
            format="png",  # of pixels that are handed over: no pixel may change on the way
            sources=["upload", "clipboard"],
            height=300,
        ),
        edit_shows=gr.Textbox(
            render=False,
            elem_id="edit-shows",
            label="What the picture shows (source prompt)",
            placeholder="a red cat and a dog",
        ),
        edit_region=region_box(),
        edit_wanted=gr.State(""),
        picked=gr.State(None),
        picked_tools=gr.Row(render=False, elem_id="picked-tools", elem_classes="tools"),
    )
