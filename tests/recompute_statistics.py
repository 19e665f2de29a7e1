"""Statistics and formats of the tables of results, without the code of the reports."""

import math
import statistics
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from scipy import stats

from tests.arena_statistics import Result, estimate_mean, student

DASH = "\N{EM DASH}"
Scores = list[dict[str, tuple[int, int]]]  # of each seed: problem -> graded and correct completions


# Formats ------------------------------------------------------------------------------------------


def adjust_minus(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}")


def format_percent(share: float) -> str:
    return f"{math.floor(1000 * Fraction(f'{float(share):.11f}') + Fraction(1, 2)) / 10:.1f}%"


def format_points(share: float) -> str:
    size = math.floor(1000 * Fraction(f"{abs(float(share)):.11f}") + Fraction(1, 2)) / 10
    return "0.0" if size == 0 else adjust_minus(f"{math.copysign(size, share):+.1f}")


def format_ratio(value: float) -> str:
    return f"{value:.2f}"


def format_p(p: float) -> str:
    if p < 0.001:
        return "< 0.001"
    return next(t for d in range(3, 9) if (t := f"{p:.{d}f}").rstrip("0") != "0.05" or p == 0.05)


def format_result(show: Callable, result: Result) -> str:
    """Return an estimate with its interval, if it has one; a dash without an estimate."""
    if result.value is None:
        return DASH
    text = show(result.value)
    return text if result.low is None else f"{text} [{show(result.low)}, {show(result.high)}]"


def format_duration(means: list[float]) -> Callable[[float, float], str]:
    """Return the format of a column of durations: one unit, three digits of the shortest mean."""
    if max(means) < 0.1:
        name, unit = "ms", 0.001
    elif max(means) < 600:
        name, unit = "s", 1
    elif max(means) < 36000:
        name, unit = "min", 60
    else:
        name, unit = "h", 3600
    digits_before = len(str(int(min(means) / unit))) if min(means) >= unit else 0
    decimals = min(3, max(0, 3 - digits_before))
    return lambda seconds, mean: f"{seconds / unit:,.{decimals}f}{name}"


# Estimates ----------------------------------------------------------------------------------------


def pass_at_k(n: int, correct: int, k: int) -> Fraction:
    """Return pass@k in product form: 1 - prod (1 - k / i), for i from n - correct + 1 to n."""
    return 1 - math.prod(1 - Fraction(k, i) for i in range(n - correct + 1, n + 1))


def estimate_accuracy(runs: Scores, k: int) -> Result:
    """Return the mean pass@k over seeds and problems."""
    return _estimate(_tabulate(runs, k), 0.0, 1.0)


def compare_accuracy(ours: Scores, theirs: Scores, k: int) -> Result:
    """Return the difference of pass@k, paired by seed and problem; of one seed without interval."""
    differences = _tabulate(ours, k) - _tabulate(theirs, k)
    if len(differences) == 1:
        return Result(float(differences.mean()))
    return _estimate(differences, -1.0, 1.0)


def _tabulate(runs: Scores, k: int) -> np.ndarray:
    return np.array([[float(pass_at_k(*counts, k)) for counts in run.values()] for run in runs])


def _estimate(table: np.ndarray, least: float, most: float) -> Result:
    """Return the mean of a table of seeds and problems, with its interval within the bounds."""
    value, n = float(table.mean()), table.shape[1]
    if table.max() - table.min() > 1e-12:
        result = estimate_mean(table, [str(column) for column in range(n)])
        result.low, result.high = max(result.low, least), min(result.high, most)
        return result
    # All n problems have the same value: the interval follows from the share that may differ.
    equal_share = 0.025 ** (1 / n)  # smallest share of equal values that fits n equal ones

    def p(at: float) -> float:
        if abs(at - value) < 1e-12:
            return 1.0
        room = (most if at > value else least) - value
        return min(1.0, 2 * max(0.0, 1 - (at - value) / room) ** n) if room else 0.0

    low, high = (value + (1 - equal_share) * (bound - value) for bound in (least, most))
    return Result(value, low, high, p)


def compare_durations(pairs: list[tuple[float, float]]) -> Result:
    """Return the ratio of geometric means, by a paired t-test of logarithms."""
    if not pairs:
        return Result(None)
    logs = [math.log(a / b) for a, b in pairs]
    mean_log, n = statistics.fmean(logs), len(logs)
    if n == 1:
        return Result(math.exp(mean_log))
    result = student(mean_log, statistics.variance(logs) / n, n - 1)
    ends = (math.exp(x) for x in (mean_log, result.low, result.high))
    return Result(*ends, lambda at: result.p(math.log(at)))


def correlate(points: list[tuple[float, float]]) -> Result:
    """Return Pearson's correlation, which needs three points, with Fisher's interval."""
    n = len(points)
    if n < 3 or any(len(set(values)) == 1 for values in zip(*points, strict=True)):
        return Result(None)
    r = statistics.correlation(*zip(*points, strict=True))
    if n == 3:
        return Result(r)
    error, normal = 1 / math.sqrt(n - 3), stats.norm
    low, high = (math.tanh(math.atanh(r) + d * normal.isf(0.025) * error) for d in (-1, 1))
    return Result(
        r, low, high, lambda at: 2 * normal.sf(abs(math.atanh(r) - math.atanh(at)) / error)
    )


def estimate_share(values: list[float]) -> Result:
    """Return the mean of shares, with Student's interval if there are at least two."""
    n = len(values)
    mean = statistics.fmean(values) if values else None
    if n < 2:
        return Result(mean)
    result = student(mean, statistics.variance(values) / n, n - 1)
    result.low, result.high = max(0.0, result.low), min(1.0, result.high)
    return result
