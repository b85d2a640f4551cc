"""What threads that import and load at the same time owe each other: the page, the worker that
loads models, and requests that look at pictures.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["LOADING", "hurry"]

OBJECTS = 100_000  # new ones before the collector looks; what imports make stays anyway
TURN = 0.0005  # seconds that a thread keeps the interpreter to itself while others wait

LOADING = threading.RLock()
"""Held by whoever may be the first to import torch's libraries or loads a model. Two threads that
import transformers and diffusers from different ends are given each other's half-made modules.
"""
_lock = threading.Lock()
_inside = 0
_before: tuple[tuple[int, int, int], float] = ((0, 0, 0), 0.0)


@contextmanager
def hurry() -> Iterator[None]:
    """Import and load inside: the garbage collector looks less often through the hundreds of
    thousands of objects that imports make, and a thread that answers the browser gets its turn ten
    times sooner. Both belong to the process, so contexts may overlap, in several threads too; the
    last one that ends puts things back.
    """
    global _inside, _before
    with _lock:
        if not _inside:
            _before = (gc.get_threshold(), sys.getswitchinterval())
            gc.set_threshold(OBJECTS, *_before[0][1:])
            sys.setswitchinterval(TURN)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                gc.set_threshold(*_before[0])
                sys.setswitchinterval(_before[1])
