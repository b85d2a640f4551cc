"""Slopes of noisy curves with their standard errors, and levels that one outlier does not move."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_ROUNDING = 1e-12  # of sums in double precision, by the size of the values

__all__ = ["Curve", "Trend", "level", "trend"]


@dataclass(frozen=True)
class Curve:
    """Values at rising ``steps``; all of them were measured."""

    steps: tuple[float, ...] = ()
    values: tuple[float, ...] = ()

    def __len__(self) -> int:
        return len(self.steps)

    def between(self, first: float, last: float) -> Curve:
        """The part from step ``first`` to ``last``, both included."""
        kept = [(s, v) for s, v in zip(self.steps, self.values, strict=True) if first <= s <= last]
        return Curve(tuple(s for s, _ in kept), tuple(v for _, v in kept))


@dataclass(frozen=True)
class Trend:
    """``slope`` per step and its standard ``error``; NaN for fewer than three values."""

    slope: float
    error: float

    @property
    def errors(self) -> float:
        """The slope in standard errors: 0 for a flat line, infinite for a straight rising one."""
        if self.slope == 0 or math.isnan(self.slope):
            return 0.0
        return self.slope / self.error if self.error > 0 else math.copysign(math.inf, self.slope)


def trend(curve: Curve) -> Trend:
    """Least squares through a curve: slope = Sxy / Sxx, error = sqrt(SSE / (n - 2) / Sxx).

    Neighbours in time are alike, which this error does not know: it is widened by sqrt((1 + r) / (1
    - r)), r the residuals' correlation with their neighbours (Bartlett 1935, Journal of the Royal
    Statistical Society 98, 536-543). Residuals of a line through white noise have r = -2 / n, which
    is added; r is kept in [0, 0.9].
    """
    n = len(curve)
    if n < 3:
        return Trend(math.nan, math.nan)
    x0, y0 = statistics.fmean(curve.steps), statistics.fmean(curve.values)
    x = [s - x0 for s in curve.steps]
    y = [v - y0 for v in curve.values]
    sxx = sum(a * a for a in x)
    if sxx == 0:
        return Trend(math.nan, math.nan)
    slope = sum(a * b for a, b in zip(x, y, strict=True)) / sxx
    left = [b - slope * a for a, b in zip(x, y, strict=True)]
    rounding = _ROUNDING * max(map(abs, curve.values))
    if abs(slope) * (x[-1] - x[0]) <= rounding:
        slope = 0.0
    sse = sum(e * e for e in left)
    if sse <= n * rounding**2:  # a straight line
        return Trend(slope, 0.0)
    r = sum(a * b for a, b in pairwise(left)) / sse + 2 / n
    r = min(max(r, 0.0), 0.9)
    return Trend(slope, math.sqrt(sse / (n - 2) / sxx * (1 + r) / (1 - r)))


def level(values: Sequence[float]) -> float:
    """The median of what was measured; NaN of nothing."""
    known = [v for v in values if not math.isnan(v)]
    return statistics.median(known) if known else math.nan
