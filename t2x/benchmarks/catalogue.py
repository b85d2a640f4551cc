"""Benchmarks by name."""

from __future__ import annotations

import difflib

from t2x.benchmarks import dpg, genai_bench, geneval, parti, t2i_compbench, vbench
from t2x.benchmarks.layout import Benchmark
from t2x.errors import UnknownNameError

__all__ = ["BENCHMARKS", "benchmark_named"]

_ALL = (
    geneval.BENCHMARK,
    t2i_compbench.BENCHMARK,
    dpg.BENCHMARK,
    parti.BENCHMARK,
    genai_bench.BENCHMARK,
    vbench.BENCHMARK,
)
BENCHMARKS: dict[str, Benchmark] = {one.name: one for one in _ALL}


def benchmark_named(name: str) -> Benchmark:
    """Give a benchmark by name, or raise ``UnknownNameError`` with the closest one."""
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    close = difflib.get_close_matches(name, BENCHMARKS, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise UnknownNameError(f"unknown benchmark {name!r}; {hint}known are: {', '.join(BENCHMARKS)}")
