"""The suite itself: torch computes on a fixed number of threads, whatever tests before this did."""

from __future__ import annotations

import os

from t2x.devices import set_threads


def threads() -> tuple[int, int]:
    import torch

    return torch.get_num_threads(), int(os.environ["OMP_NUM_THREADS"].partition(",")[0])


def test_threads_are_those_of_the_environment():
    now, wanted = threads()
    assert now == wanted
    set_threads(wanted + 1)
    assert threads()[0] == wanted + 1


def test_a_test_leaves_no_threads_behind():
    now, wanted = threads()
    assert now == wanted
