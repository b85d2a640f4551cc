"""The studio from outside: ``t2x app`` as a process of its own, and a real browser before it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = [
    "BROWSER",
    "PROMPT",
    "Running",
    "choose",
    "draw",
    "find_browser",
    "open_tab",
    "opened_browser",
    "running",
    "start_drawing",
]

BROWSER = "T2X_BROWSER"
PROMPT = "two kittens to the left of a crimson slice of pizza"
_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_SAID = "studio: "


@dataclass
class Running:
    """``t2x app``, up and serving at ``url``; ``begun`` is when it was started, in seconds of
    ``time.perf_counter``; ``log`` is what it said."""

    url: str
    process: subprocess.Popen[bytes]
    begun: float
    log: Path

    def stop(self, how: int = signal.SIGINT, patience: float = 30) -> float:
        """Tell it to end; gives the seconds that it took. Raises T2XError if it does not."""
        begun = time.perf_counter()
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired as error:
            self.process.kill()
            raise T2XError(f"the studio did not end in {patience:g} seconds") from error
        return time.perf_counter() - begun


@contextmanager
def running(
    *options: str,
    home: Path,
    environment: Mapping[str, str] | None = None,
    patience: float = 180,
) -> Iterator[Running]:
    """Start ``t2x app`` with ``options``, on a free port without ``--port``, and wait until it
    serves; it ends with the context.

    Raises T2XError, with what it said, if it ends before or takes more than ``patience`` seconds.
    """
    home.mkdir(parents=True, exist_ok=True)
    log = home / "app.log"
    port = () if "--port" in options else ("--port", "0")
    command = [sys.executable, "-m", "t2x", "app", *port, "--home", str(home), *options]
    begun = time.perf_counter()
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, stdout=said, stderr=said, env={**os.environ, **(environment or {})}
        )
    app = Running("", process, begun, log)
    try:
        while not app.url:
            lines = log.read_text("utf-8", "replace").splitlines(keepends=True)
            found = [line for line in lines if line.startswith(_SAID) and line.endswith("\n")]
            if found:
                app.url = found[0].removeprefix(_SAID).strip()
            elif process.poll() is not None or time.perf_counter() - begun > patience:
                raise T2XError(f"the studio did not start: {''.join(lines[-3:])}")
            else:
                time.sleep(0.02)
        yield app
    finally:
        app.stop()


def find_browser() -> str | None:
    """The Chromium of this machine: T2X_BROWSER, or the first with a usual name; None without.

    Raises T2XError if T2X_BROWSER names no file.
    """
    if given := os.environ.get(BROWSER):
        if not Path(given).is_file():
            raise T2XError(f"{BROWSER} names {given!r}, which is no file; give Chromium's path")
        return given
    return next(filter(None, map(shutil.which, _NAMES)), None)


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """A headless Chromium, driven by playwright.

    Raises T2XError where there is none, and MissingDependencyError without playwright.
    """
    path = find_browser()
    if path is None:
        raise T2XError(f"there is no Chromium here; install one, or give its path in {BROWSER}")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError as error:
        from t2x.registry import missing_dependency

        raise missing_dependency(error) from error
    arguments: dict[str, Any] = {"executable_path": path, "args": ["--no-sandbox"]}
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(**arguments)
        try:
            yield chromium
        finally:
            chromium.close()


# ---- what a person does on the page ----------------------------------------------------------


def open_tab(page: Page, name: str) -> None:
    """Bring a tab to the front; at every width each has room, none is in gradio's menu."""
    page.get_by_role("tab", name=name).locator("visible=true").first.click()


def choose(page: Page, mode: str) -> None:
    """Choose "Compare", "Best of many" or "Steer" on the Create tab."""
    page.click(f"#mode label:has-text('{mode}')")
    if mode == "Steer":
        page.wait_for_selector("#guidance", state="visible")


def _fill_number(page: Page, num: int) -> None:
    """Write the number of pictures; again if the page, which sets it by mode, was later."""
    shown = "document.querySelector('#num input[type=range]').value"
    for _ in range(20):
        page.fill("#num input[type=number]", str(num))
        page.keyboard.press("Tab")
        page.wait_for_timeout(1000)
        if page.evaluate(shown) == str(num):
            return
    page.wait_for_function(f"{shown} == '{num}'")


def write_request(page: Page, prompt: str = PROMPT, *, num: int | None = None) -> None:
    """Fill in the form for ``num`` pictures, the page's own number without."""
    if num is not None:
        if not page.is_visible("#num"):
            page.click("#settings > button")
        _fill_number(page, num)
    page.fill("#prompt textarea", prompt)


def start_drawing(page: Page, prompt: str = PROMPT, *, num: int | None = None) -> None:
    """The same, and wait until the pictures are begun."""
    write_request(page, prompt, num=num)
    page.click("#draw")
    page.wait_for_selector("#stop", state="visible")


def draw(page: Page, prompt: str = PROMPT, *, num: int | None = None) -> None:
    """The same, and wait until all is done."""
    start_drawing(page, prompt, num=num)
    page.wait_for_selector("#draw", state="visible")
