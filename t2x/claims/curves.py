"""When a training came to a score, read from the curve that its log leaves.

A held-out curve is noisy, and its first lucky point is no arrival: the mean of three points in a
row is what has to come there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from t2x.claims.protocol import Curve

__all__ = ["points", "target_score", "when_reached"]

Columns: TypeAlias = "Mapping[str, Sequence[float | None]]"
Array: TypeAlias = "NDArray[np.floating[Any]]"
_WINDOW = 3


def points(columns: Columns, keys: Curve, *, smooth: bool = True) -> tuple[Array, Array]:
    """What was spent and the score there, (T,) each, where both were measured; ``smooth`` gives
    means of three scores in a row, at the last of them."""
    if keys.x not in columns or keys.y not in columns:
        return np.empty(0), np.empty(0)
    pairs = zip(columns[keys.x], columns[keys.y], strict=True)
    known = [(x, y) for x, y in pairs if x is not None and y is not None]
    if not known:
        return np.empty(0), np.empty(0)
    x, y = (np.array(column, float) for column in zip(*known, strict=True))
    if smooth:
        y = np.array([y[max(0, i + 1 - _WINDOW) : i + 1].mean() for i in range(len(y))])
    return x, y


def target_score(curves: Sequence[Columns], keys: Curve) -> float:
    """The score that lies ``share`` of the way from the start to the end of the mean of curves,
    which are another arm's; NaN without any."""
    ends = [(y[0], y[-1]) for columns in curves if len(y := points(columns, keys)[1])]
    if not ends:
        return math.nan
    start, end = np.mean(ends, axis=0)
    return float(start + keys.share * (end - start))


def when_reached(columns: Columns, keys: Curve, target: float) -> float:
    """What was spent when the score first came to ``target``, on the line between two points; NaN
    where it never did."""
    x, y = points(columns, keys)
    above = np.flatnonzero(y >= target)
    if not len(above):
        return math.nan
    at = int(above[0])
    if at == 0:
        return float(x[0])
    part = (target - y[at - 1]) / (y[at] - y[at - 1])
    return float(x[at - 1] + part * (x[at] - x[at - 1]))
