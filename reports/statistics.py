"""Means over seeds, ranks in a column, and correlations: numbers in, numbers out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

Mark = Literal["", "best", "runner-up"]


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation (n - 1) of n values; `None` where there are too few."""

    mean: float | None
    deviation: float | None
    n: int


def spread(values: Sequence[float]) -> Spread:
    """Summarize the values that are finite; the others count as absent."""
    finite = np.array([value for value in values if math.isfinite(value)], dtype=float)
    n = len(finite)
    return Spread(
        mean=float(finite.mean()) if n else None,
        deviation=float(finite.std(ddof=1)) if n > 1 else None,
        n=n,
    )


def marks(values: Sequence[float | None], higher_is_better: bool) -> list[Mark]:
    """Mark the best of a column and its runner-up; `None` takes no part.

    The best are beaten by none, runners-up by exactly one: ties share a mark, and after two that
    tie for the best there is no runner-up (as in the paper). Nothing is marked where fewer than
    two values stand, or where all are equal.
    """
    standing = [value for value in values if value is not None]
    if len(set(standing)) < 2:
        return [""] * len(values)

    def mark(value: float | None) -> Mark:
        if value is None:
            return ""
        better = sum(other > value if higher_is_better else other < value for other in standing)
        return ("best", "runner-up")[better] if better < 2 else ""

    return [mark(value) for value in values]


@dataclass(frozen=True)
class Correlation:
    """Pearson's r over n points, or `None` and the reason that it has no value."""

    r: float | None
    n: int
    reason: str = ""


def correlate(x: Sequence[float], y: Sequence[float]) -> Correlation:
    """Pearson correlation over the points that are finite in both."""
    points = [(a, b) for a, b in zip(x, y, strict=True) if math.isfinite(a) and math.isfinite(b)]
    n = len(points)
    if n < 3:
        return Correlation(None, n, f"{n} runs with a value, and a correlation needs 3")
    xs, ys = zip(*points, strict=True)
    if len(set(xs)) == 1:
        return Correlation(None, n, "all runs have the same H: no correlation")
    if len(set(ys)) == 1:
        return Correlation(None, n, "all runs have the same value: no correlation")
    r = float(stats.pearsonr(xs, ys).statistic)
    if not math.isfinite(r):
        return Correlation(None, n, "the values differ by less than rounding: no correlation")
    return Correlation(r, n)
