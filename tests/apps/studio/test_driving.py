"""The commands that drive the studio from outside, without a browser: what they take and give.

One is driven in ``tests/apps/browser/test_measuring.py``.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from t2x.cli import run
from t2x.errors import T2XError

pytestmark = pytest.mark.extra("app")
MEASURED = {
    "first_picture_s": 9.5,
    "ready_s": 4.0,
    "keystroke_ms": {"median": 12.0, "largest": 40.0},
    "stop_s": 0.2,
    "browser": True,
    "cores": 2,
    "prompt": "a cat",
}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The options that the measurement was started with."""
    asked: list[tuple[str, ...]] = []

    def measure(*options: str) -> dict[str, Any]:
        asked.append(options)
        return dict(MEASURED)

    monkeypatch.setattr("t2x.registry.load_app", {"studio-bench": measure}.__getitem__)
    return asked


def test_the_measurement_is_one_json_object(measured: Any, capsys: Any) -> None:
    assert run(["bench", "app", "--generator", "emoji-flow-turbo", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == MEASURED
    assert measured == [("--generator", "emoji-flow-turbo")]


@pytest.mark.parametrize("keys", [MEASURED["keystroke_ms"], None])
def test_the_measurement_is_a_table(
    measured: Any, capsys: Any, keys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MEASURED, "keystroke_ms", keys)
    assert run(["bench", "app"]) == 0
    said = capsys.readouterr().out
    assert "first_picture_s" in said and "9.5" in said
    assert ("keystroke_ms, median" in said) == (keys is not None)


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A browser of no pages, and a studio that does not run; gives its options."""
    from t2x.apps.studio import screenshots

    asked: list[tuple[str, ...]] = []

    def page() -> Any:
        made = MagicMock()
        made.screenshot.side_effect = lambda path, **how: Path(path).write_bytes(b"png")
        return made

    @contextmanager
    def opened() -> Any:
        yield SimpleNamespace(new_context=lambda **how: MagicMock(new_page=page))

    @contextmanager
    def started(*options: str, home: Path) -> Any:
        asked.append(options)
        yield SimpleNamespace(url="http://127.0.0.1:1")

    monkeypatch.setattr(screenshots, "opened_browser", opened)
    monkeypatch.setattr(screenshots, "running", started)
    return asked


def test_every_tab_is_taken_at_every_width(browser: Any, tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "new/shots"
    given = ["--generator", "emoji-flow-turbo", "--rewriter", "none"]
    assert run(["app", "--screenshots", str(folder), *given]) == 0
    tabs = ("create", "steer", "edit", "ask", "history", "batch")
    names = {f"{tab}-{width}.png" for tab in tabs for width in (1280, 390)}
    names |= {"create-dark-1280.png"}
    assert {path.name for path in folder.iterdir()} == names
    assert browser == [tuple(given)]
    said = capsys.readouterr()
    assert all(name in said.out + said.err for name in names)


def test_a_folder_that_can_not_be_made_is_told_before_anything_starts(
    browser: Any, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "file").write_text("no folder")
    for folder in (tmp_path / "file", tmp_path / "file/shots"):
        assert run(["app", "--screenshots", str(folder)]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error:") and "--screenshots" in line
    assert not browser


def test_no_browser_is_one_line(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("T2X_BROWSER", str(tmp_path / "none"))
    assert run(["app", "--screenshots", str(tmp_path)]) == 1
    assert "T2X_BROWSER" in capsys.readouterr().err
    monkeypatch.delenv("T2X_BROWSER")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["app", "--screenshots", str(tmp_path)]) == 1
    assert "no Chromium" in capsys.readouterr().err


def test_a_studio_that_does_not_start_is_told_with_what_it_said(tmp_path: Path) -> None:
    from t2x.apps.studio.driving import running

    with (
        pytest.raises(T2XError, match=r"did not start.*no-such"),
        running("--generator", "no-such-generator", home=tmp_path),
    ):
        pytest.fail("it runs")
