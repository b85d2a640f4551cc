"""``t2x bench app`` on a small studio, over its API and in a browser, and a picture of a tab."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from t2x.apps.studio import bench, screenshots
from t2x.apps.studio.driving import PROMPT
from t2x.cli import run

SMALL = ("--generator", "emoji-flow-turbo", "--rewriter", "none", "--rewards", "clip")


def check(found: dict[str, Any]) -> None:
    assert 0 < found["ready_s"] < found["first_picture_s"] and 0 <= found["stop_s"] < 30
    assert found["cores"] >= 1 and found["prompt"] == PROMPT


def test_without_a_browser_the_api_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "find_browser", lambda: None)
    found = bench.bench_studio(*SMALL)
    check(found)
    assert found["browser"] is False and found["keystroke_ms"] is None


def test_in_a_browser_keys_are_measured_too(
    chromium: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """As the command does it; the session's browser is taken, of two playwright would complain."""
    from contextlib import nullcontext

    monkeypatch.setattr(bench, "opened_browser", lambda: nullcontext(chromium))
    monkeypatch.setattr(bench, "KEYS", 5)
    assert run(["bench", "app", "--generator", "emoji-flow-turbo", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    check(found)
    keys = found["keystroke_ms"]
    assert found["browser"] is True and 0 < keys["median"] <= keys["largest"] < 60_000


def test_a_picture_of_a_tab_is_as_wide_as_its_name_says(
    studio: Any, chromium: Any, tmp_path: Path
) -> None:
    path = screenshots._shot(chromium, studio.url, "batch", 390, tmp_path)
    assert path == tmp_path / "batch-390.png"
    with Image.open(path) as image:
        assert image.width == 390 and len(image.convert("RGB").getcolors(1 << 24) or ()) > 10
