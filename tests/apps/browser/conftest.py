"""One studio and one Chromium for all tests of this folder; each test has a page of its own, of a
new visitor, and fails if the page says an error or asks another host for something."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from t2x.errors import T2XError

pytest.importorskip("gradio", reason="needs pip install 't2x[app]'")
pytest.importorskip("playwright", reason="needs pip install playwright")

from t2x.apps.studio.driving import BROWSER, Running, find_browser, opened_browser, running

SIZES = {"wide": (1280, 900), "narrow": (390, 844)}
PATIENCE = 60_000  # milliseconds: CI's cores are shared


@pytest.fixture(scope="session")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """``t2x app`` with the fast generator."""
    home = tmp_path_factory.mktemp("studio")
    # gradio lets out what lies in the folder for temporary files, which a home is not in.
    apart = {"TMPDIR": str(tmp_path_factory.mktemp("temporary"))}
    options = ("--generator", "emoji-flow-turbo", "--max-num", "4")
    with running(*options, home=home, environment=apart) as app:
        yield app
        said = app.log.read_text("utf-8")
    # gradio logs what it refuses of a client with a traceback of its own; none may pass our code.
    ours = re.findall(r'File ".*/(?:t2x|apps/studio)/.*', said)
    assert not ours, said[-3000:]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    if find_browser() is None:
        pytest.skip(f"there is no Chromium here; give its path in {BROWSER}")
    with opened_browser() as browser:
        yield browser


@pytest.fixture
def visit(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Open the studio as a new visitor: ``visit(app, size="wide", allow=())`` gives a page.

    At the end no page may have said an error, but with a part in ``allow``, or asked another host.
    """
    contexts: list[Any] = []
    wrong: list[str] = []

    def open_page(app: Running, *, size: str = "wide", allow: tuple[str, ...] = ()) -> Any:
        width, height = SIZES[size]
        context = chromium.new_context(viewport={"width": width, "height": height})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)

        def heard(text: str) -> None:
            if not any(part in text for part in allow):
                wrong.append(text)

        page.on("console", lambda m: heard(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: heard(str(error)))
        page.on("dialog", lambda dialog: (wrong.append("a script ran"), dialog.dismiss()))
        page.on("request", lambda request: _check_host(request.url, app.url, wrong))
        page.goto(app.url)
        page.wait_for_selector("#draw")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong, wrong


def _check_host(url: str, own: str, wrong: list[str]) -> None:
    if not url.startswith((own, "data:", "blob:")):
        wrong.append(f"asked for {url}")


def stopped(app: Running) -> float:
    """End a studio, and tell how long it took."""
    try:
        return app.stop()
    except T2XError as error:
        pytest.fail(str(error))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"
