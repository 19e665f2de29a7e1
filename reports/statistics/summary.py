"""Marks for the best value and the runner-up of a table's column."""

from collections.abc import Sequence
from typing import Literal

import pandas as pd

Mark = Literal["", "best", "runner-up"]


def mark_best(values: Sequence[float | None], higher_is_better: bool) -> list[Mark]:
    """Return the mark of each value of a column: "best", "runner-up" or "".

    Equal values share a mark. If two are best there is no runner-up, as in the paper. Nothing is
    marked if there are fewer than two values, or if all are equal.

    Args:
        values: `None` is not ranked.
    """
    ranks = pd.Series(values).rank(method="min", ascending=not higher_is_better)
    names = {1: "best", 2: "runner-up"} if ranks.nunique() > 1 else {}
    return [names.get(rank, "") for rank in ranks]
