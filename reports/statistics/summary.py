"""Means over seeds, and the best and the runner-up of a column."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

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

    The best are beaten by none, runners-up by exactly one. Ties share a mark, and after two that
    tie for the best there is no runner-up (as in the paper). Nothing is marked where fewer than two
    values stand, or where all are equal.
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
