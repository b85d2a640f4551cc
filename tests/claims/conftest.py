"""A ledger of what the fake command did, and jobs for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Names of the runs that have begun or ended."""
    path = tmp_path / "ledger.txt"
    monkeypatch.setenv("LEDGER", str(path))

    def read(word: str) -> list[str]:
        lines = path.read_text().splitlines() if path.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(word)]

    return read
