"""Means over seeds, and the best and the runner-up of a column."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

Mark = Literal["", "best", "runner-up"]


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation (n - 1) of n values; `None` where there are too few."""

    mean: float | None
    deviation: float | None
    n: int


def spread(values: Sequence[float]) -> Spread:
    """Summarize the values that are finite; the others count as absent."""
    finite = np.array([value for value in values if math.isfinite(value)])
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
    ranks = pd.Series(values).rank(method="min", ascending=not higher_is_better)
    names = {1: "best", 2: "runner-up"} if ranks.nunique() > 1 else {}
    return [names.get(rank, "") for rank in ranks]
