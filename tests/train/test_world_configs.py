"""Configurations of the world measure alike, so that curves of two recipes can be compared."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import yaml

CONFIGS = Path(str(files("t2x.configs")))


def test_a_held_out_reward_weighs_the_same_in_every_recipe() -> None:
    """PromptEcho, whose values are logarithms, weighed ten times as much in three of four."""
    found: dict[str, set[str]] = {}
    for path in sorted((CONFIGS / "train" / "world").glob("*.yaml")):
        watch = yaml.safe_load(path.read_text("utf-8")).get("watch", {})
        if "held_out" in watch:
            found.setdefault(str(watch["held_out"]["rewards"]), set()).add(path.stem)
    assert len(found) == 1, found
