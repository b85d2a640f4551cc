"""Folders and files that results are written into."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from t2x.files import checkpoints, take_lock, write_metrics


def test_metrics_are_written_and_given_back(tmp_path: Path) -> None:
    assert write_metrics(tmp_path, {"steps": 3, "loss": 0.25}) == {"steps": 3, "loss": 0.25}
    assert json.loads((tmp_path / "metrics.json").read_text()) == {"steps": 3, "loss": 0.25}


def test_checkpoints_are_in_the_order_of_their_steps(tmp_path: Path) -> None:
    for name in ("checkpoint-20", "checkpoint-100", "checkpoint-3", "checkpoint-last", "model"):
        (tmp_path / name).mkdir()
    assert [p.name for p in checkpoints(tmp_path)] == [f"checkpoint-{n}" for n in (3, 20, 100)]
    assert checkpoints(tmp_path / "nothing") == []


def test_a_lock_is_held_once_while_its_file_is_open(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as first, path.open("w") as second:
        assert take_lock(first)
        assert not take_lock(second)
    with path.open("w") as third:
        assert take_lock(third.fileno())


def test_where_the_system_has_no_locks_files_are_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with (tmp_path / "a").open("w") as file:
        assert take_lock(file)
