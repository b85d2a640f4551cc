"""Jobs for the fake command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from t2x.claims.jobs import Job

FAKE = (sys.executable, str(Path(__file__).with_name("fake_t2x.py")))
WORK = Path("work")


def training(key: str, *words: str, seed: int = 0, **options: Any) -> Job:
    out = f"run.out={{work}}/{key}/run"
    return Job(key, key, ("train", key, *words, out, f"run.seed={seed}"), **options)


def evaluation(key: str, after: str) -> Job:
    arguments = ("eval", "world", "--arms", f"arm={{work}}/{after}/run/model", "--n", "12")
    return Job(key, key, arguments, (after,))
