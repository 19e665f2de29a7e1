"""Medians with quartiles, percentiles, ratios, and the phases of a sample."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

PHASES = ("sampling", "grading", "sync", "backpropagation", "other")


@dataclass(frozen=True)
class Middle:
    """The median of some values with the quartiles; of one value all three are that value."""

    median: float
    low: float
    high: float

    def text(self, digits: int = 2, unit: str = "") -> str:
        """As in "1.72 (1.65–1.80)"."""
        low, high = f"{self.low:.{digits}f}", f"{self.high:.{digits}f}"
        return f"{self.median:.{digits}f}{unit} ({low}–{high})"


def middle(values: Sequence[float]) -> Middle:
    """The median and the quartiles.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no values, no median")
    if len(values) == 1:
        return Middle(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Middle(median, low, high)


def percentile(values: Sequence[float], share: int) -> float:
    """Return the value that `share` percent of `values`, of which there are two or more, lie below."""
    return statistics.quantiles(values, n=100, method="inclusive")[share - 1]


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """The ratio of each pair."""
    return [a / b for a, b in zip(over, under, strict=True)]


def phase(sample: dict, name: str) -> float:
    """Seconds of a sample in a phase; "other" is all that is in no other phase.

    The trainer's clock has an "other" too. What happens outside of its phases is added to that here.
    """
    if name == "other":
        return sample["seconds"] - sum(phase(sample, one) for one in PHASES if one != "other")
    return sample["phases"].get(name, 0.0)
