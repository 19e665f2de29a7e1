"""The best and the runner-up of a column."""

from collections.abc import Sequence
from typing import Literal

import pandas as pd

Mark = Literal["", "best", "runner-up"]


def marks(values: Sequence[float | None], higher_is_better: bool) -> list[Mark]:
    """Mark the best of a column and its runner-up; `None` takes no part.

    The best are beaten by none, runners-up by exactly one. Ties share a mark, and after two that
    tie for the best there is no runner-up (as in the paper). Nothing is marked where fewer than two
    values stand, or where all are equal.
    """
    ranks = pd.Series(values).rank(method="min", ascending=not higher_is_better)
    names = {1: "best", 2: "runner-up"} if ranks.nunique() > 1 else {}
    return [names.get(rank, "") for rank in ranks]
