"""How long completions are, and the longest of a batch, which all of it waits for.

Lengths follow a gamma distribution, cut at the limit. Its spread is the standard deviation over the
mean before the cut: 0 all alike, 1 memoryless, as if each token could be the last with one probability.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammainc, gammaincc

LEAST_SPREAD = 0.02  # below it, lengths are all alike


@dataclass(frozen=True)
class Lengths:
    """Tokens of completions: their mean after the cut, their spread before it, and the limit."""

    mean: float
    spread: float
    limit: int

    def longest(self, completions: float) -> float:
        """Mean tokens of the longest of so many completions, one or more."""
        if self.spread < LEAST_SPREAD or self.mean >= self.limit:
            return self.mean
        shorter = _distribution(self.mean, self.spread, self.limit)  # (limit,)
        return float((1 - shorter ** max(1.0, completions)).sum())


@cache
def _distribution(mean: float, spread: float, limit: int) -> np.ndarray:
    """The probability of a length of at most 0.5, 1.5, ..., limit - 0.5 tokens."""
    shape, at = spread**-2, np.arange(limit) + 0.5

    def cut_mean(scale: float) -> float:
        return float(gammaincc(shape, at / scale).sum()) - mean

    low, high = mean / shape / 4, mean / shape
    while cut_mean(high) < 0:
        high *= 2
    return gammainc(shape, at / brentq(cut_mean, low, high))
