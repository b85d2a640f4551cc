"""Pictures of the studio in use, for the README and to look at: each tab at two widths, light, and
the first one dark.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.files import made_folder

from .driving import choose, draw, open_tab, opened_browser, running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["take"]

WIDTHS = {1280: 900, 390: 844}  # and the heights of such windows, in pixels
TABS = ("create", "steer", "edit", "ask", "history", "batch")
PATIENCE = 180_000  # milliseconds


def take(
    folder: Path, *, options: tuple[str, ...] = (), say: Callable[[str], None] = lambda text: None
) -> list[Path]:
    """Start ``t2x app`` with ``options``, use every tab, and save ``TAB-WIDTH.png`` of each.

    ``say`` hears each file. Raises T2XError where there is no Chromium, and for a folder that can't
    be made.
    """
    made_folder(folder, option="--screenshots")
    made: list[Path] = []
    with (
        tempfile.TemporaryDirectory(prefix="t2x-shots-", ignore_cleanup_errors=True) as home,
        opened_browser() as browser,
        running(*options, home=Path(home)) as app,
    ):
        shots = [(tab, width, False) for width in WIDTHS for tab in TABS]
        for tab, width, dark in [*shots, ("create", 1280, True)]:
            made.append(_shot(browser, app.url, tab, width, folder, dark=dark))
            say(str(made[-1]))
    return made


def _shot(
    browser: Browser, url: str, tab: str, width: int, folder: Path, *, dark: bool = False
) -> Path:
    scheme: Any = "dark" if dark else "light"
    size: Any = {"width": width, "height": WIDTHS[width]}
    context = browser.new_context(viewport=size, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(url)
    page.wait_for_selector("#draw")
    _USES[tab](page)
    page.wait_for_timeout(500)  # until what moves stands still
    path = folder / f"{tab}{'-dark' if dark else ''}-{width}.png"
    page.screenshot(path=path, full_page=True)
    context.close()
    return path


def _steer(page: Page) -> None:
    choose(page, "Steer")
    draw(page)


def _edit(page: Page) -> None:
    draw(page)
    page.locator("#gallery-right button").first.click()
    page.click("#edit-this")
    page.fill("#edit-instruction textarea", "make the pizza green")
    page.click("#edit-draw")
    page.wait_for_selector("#edit-stop", state="visible")
    page.wait_for_selector("#edit-draw", state="visible")


def _history(page: Page) -> None:
    draw(page)
    open_tab(page, "History")
    page.wait_for_timeout(1500)


def _ask(page: Page) -> None:
    open_tab(page, "Ask me")
    page.fill("#ask-prompt textarea", "an animal and a vehicle")
    page.click("#ask-begin")
    page.wait_for_selector("#ask-option-0:enabled")
    first = page.locator("#ask-question p").inner_text()
    page.click("#ask-option-0")
    changed = "old => document.querySelector('#ask-question p')?.innerText !== old"
    page.wait_for_function(changed, arg=first)
    page.wait_for_selector("#ask-option-0:enabled")


def _batch(page: Page) -> None:
    open_tab(page, "Batch")
    prompts = "".join(f"{prompt}\n" for prompt in _PROMPTS)
    page.set_input_files(
        "#batch-file input[type=file]",
        {"name": "prompts.txt", "mimeType": "text/plain", "buffer": prompts.encode()},
    )
    page.wait_for_function("document.querySelector('#batch-file').innerText.includes('prompts')")
    page.click("#batch-add")
    page.wait_for_selector("#batch-jsonl", state="visible")


_PROMPTS = ("two kittens", "a crimson slice of pizza", "a dog to the left of a blue car")
_USES: dict[str, Callable[[Page], None]] = {
    "create": draw,
    "steer": _steer,
    "edit": _edit,
    "ask": _ask,
    "history": _history,
    "batch": _batch,
}
