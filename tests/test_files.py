"""Folders and files that results are written into."""

from __future__ import annotations

import json
from pathlib import Path

from t2x.files import write_metrics


def test_metrics_are_written_and_given_back(tmp_path: Path) -> None:
    assert write_metrics(tmp_path, {"steps": 3, "loss": 0.25}) == {"steps": 3, "loss": 0.25}
    assert json.loads((tmp_path / "metrics.json").read_text()) == {"steps": 3, "loss": 0.25}
