"""How long the studio takes from the command to the first picture, and a keystroke to be seen while
pictures are made: measured from outside, on a process and in a browser of its own.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from .driving import PROMPT, find_browser, opened_browser, running, start_drawing

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["bench_studio"]

KEYS = 40
PATIENCE = 180_000  # milliseconds
# From the key going down to the frame that shows what it typed.
_WATCH = """() => {
    const box = document.querySelector('#prompt textarea');
    window.keystrokes = [];
    let down = 0;
    box.addEventListener('keydown', () => { down = performance.now(); }, true);
    box.addEventListener('input', () => requestAnimationFrame(() => {
        const channel = new MessageChannel();  // answers once the frame is drawn
        channel.port1.onmessage = () => window.keystrokes.push(performance.now() - down);
        channel.port2.postMessage(0);
    }));
}"""


def bench_studio(*options: str) -> dict[str, Any]:
    """Start ``t2x app`` with ``options`` and measure it.

    Gives ``first_picture_s`` from the start of the process to the first picture on the page (to the
    answer of the API where there is no Chromium), ``ready_s`` to where it serves, ``keystroke_ms``
    with "median" and "largest" from a key to the frame that shows it while pictures are made (None
    without Chromium), ``stop_s`` that Ctrl-C took, and what it was measured on.
    """
    with tempfile.TemporaryDirectory(prefix="t2x-bench-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        seen = find_browser() is not None
        found = _in_browser(home, options) if seen else _by_client(home, options)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {**found, "browser": seen, "cores": cores, "prompt": PROMPT}


def _in_browser(home: Path, options: tuple[str, ...]) -> dict[str, Any]:
    with opened_browser() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(PATIENCE)
        with running(*options, home=home) as app:
            ready = time.perf_counter() - app.begun
            page.goto(app.url)
            start_drawing(page)
            page.wait_for_selector("#gallery-left img")
            first = time.perf_counter() - app.begun
            page.wait_for_selector("#draw", state="visible")
            keys = _keystrokes(page)
            page.close()
            return {
                "first_picture_s": round(first, 3),
                "ready_s": round(ready, 3),
                "keystroke_ms": keys,
                "stop_s": round(app.stop(), 3),
            }


def _keystrokes(page: Page) -> dict[str, float]:
    """Type while pictures are made; raises nothing if they are done before the last key."""
    page.evaluate(_WATCH)
    page.click("#new-seeds")
    page.wait_for_selector("#stop", state="visible")
    page.focus("#prompt textarea")
    for key in (" and a yellow bird" * KEYS)[:KEYS]:
        page.keyboard.type(key)
        page.wait_for_timeout(30)
    page.wait_for_function(f"window.keystrokes.length >= {KEYS}")
    times = [float(value) for value in page.evaluate("window.keystrokes")]
    return {"median": round(median(times), 1), "largest": round(max(times), 1)}


def _by_client(home: Path, options: tuple[str, ...]) -> dict[str, Any]:
    from gradio_client import Client

    with running(*options, home=home) as app:
        ready = time.perf_counter() - app.begun
        client = Client(app.url, verbose=False, analytics_enabled=False)
        client.predict(PROMPT, api_name="/generate")
        return {
            "first_picture_s": round(time.perf_counter() - app.begun, 3),
            "ready_s": round(ready, 3),
            "keystroke_ms": None,
            "stop_s": round(app.stop(), 3),
        }
