"""Computes the statistics of the arena independently of `reports.statistics`, as a check."""

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy import integrate, optimize, stats

# For each run of the arena: the end points (`tests.arena_records`) of two algorithms, by seed.
Pairs = list[tuple[dict, dict]]


@dataclass
class Result:
    """An estimate with its 95 % confidence interval.

    Args:
        p: takes a hypothetical value, and returns the two-sided p-value of the test against it.
        scale: the standard error, and the degrees of freedom.
        median: for ratios of seconds, the median of the ratios; None for accuracies.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    p: Callable[[float], float] | None = None
    scale: tuple[float, float] = (math.nan, math.nan)
    median: "Result | None" = None

    def compute_detectable_effect(self, alpha: float, is_equivalence: bool) -> float:
        """Return the smallest effect (or margin of equivalence) that a test detects in 80 % of cases."""
        error, df = self.scale
        if is_equivalence:
            return error * optimize.brentq(lambda m: _power(m, df, alpha) - 0.8, 0, 40)
        critical = stats.t.isf(alpha / 2, df)
        shift = optimize.brentq(
            lambda d: stats.nct.sf(critical, df, d) - 0.8, 0.1, 40 + 10 * critical
        )
        return math.exp(-error * shift) if self.median else error * shift


def _power(margin: float, df: float, alpha: float) -> float:
    """Return the power of two one-sided tests if there is no difference.

    Args:
        margin: the margin of equivalence, in true standard errors.
    """
    critical = stats.t.isf(alpha, df)
    # The distribution of the estimated standard error, in true standard errors.
    errors = stats.chi(df, scale=df**-0.5)

    def power_density(error: float) -> float:
        power = max(0.0, 2 * stats.norm.cdf(margin - critical * error) - 1)
        return power * errors.pdf(error)

    return integrate.quad(power_density, errors.ppf(1e-9), errors.isf(1e-9), limit=200)[0]


def adjust_by_holm(ps: list[float]) -> list[float]:
    """Return p-values adjusted by Holm's method, by its definition."""
    order, adjusted, largest = sorted(range(len(ps)), key=ps.__getitem__), [0.0] * len(ps), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = largest
    return adjusted


def student(value: float, variance: float, df: float) -> Result:
    """Return a value with Student's interval and test. Without variance, both ends are the value."""
    error = math.sqrt(variance)
    if error < 1e-12:
        return Result(value, value, value, lambda at: float(abs(value - at) < 1e-12), (0.0, df))
    low, high = stats.t.interval(0.95, df, value, error)
    return Result(
        value, low, high, lambda at: 2 * stats.t.sf(abs(value - at) / error, df), (error, df)
    )


# Accuracy -----------------------------------------------------------------------------------------


def compute_differences(ours: dict, theirs: dict) -> tuple[list[int], list[str], np.ndarray]:
    """Return the seeds, the ids of problems, and the table (seeds, problems) of score differences."""
    seeds = [seed for seed in ours if seed in theirs]
    ids = [id for id in ours[seeds[0]].scores if id in theirs[seeds[0]].scores]
    if not ids:
        return seeds, ["mean"], np.array([[ours[s].accuracy - theirs[s].accuracy] for s in seeds])
    rows = [[ours[s].scores[id] - theirs[s].scores[id] for id in ids] for s in seeds]
    return seeds, ids, np.array(rows)


def compute_variances(table: np.ndarray, groups: list[str]) -> tuple[dict, dict]:
    """Return the variance of the mean by source, and the degrees of freedom by source.

    Sources are seeds, groups of problems, and the residual ("rest"). The variances are computed
    from sums over the cells of a seed and a group.
    """
    seeds, problems = table.shape
    names = sorted(set(groups))
    deviation = table - table.mean()
    masks = [np.array([group == name for group in groups]) for name in names]
    cells = np.column_stack([deviation[:, mask].sum(axis=1) for mask in masks])
    n, m, total = seeds, len(names), seeds * problems
    of_seeds, of_groups = cells.sum(axis=1), cells.sum(axis=0)
    rest = (cells**2).sum() - (of_groups**2).sum() / n - (of_seeds**2).sum() / m
    df = {"seeds": n - 1, "groups": m - 1, "rest": (n - 1) * (m - 1)}
    variances = {
        "seeds": (of_seeds**2).sum() / total**2 * n / max(1, n - 1),
        "groups": (of_groups**2).sum() / total**2 * m / max(1, m - 1),
        "rest": rest / total**2 * n * m / max(1, df["rest"]),
    }
    return variances, df


def _satterthwaite(variance: float, parts: dict, df: dict) -> float:
    return variance**2 / sum(part**2 / df[name] for name, part in parts.items() if df[name])


def compare_scores(ours: dict, theirs: dict, skeletons: dict | None = None) -> Result:
    """Return the difference in accuracy, with random effects of seeds and of problems.

    There is no estimate if all scores are equal.

    Args:
        skeletons: text without numbers by problem. If present, the random effects are of groups of
            problems with the same skeleton.
    """
    _, ids, table = compute_differences(ours, theirs)
    if not table.any():
        return Result(None)
    groups = ids if skeletons is None or ids == ["mean"] else [skeletons[id] for id in ids]
    return estimate_mean(table, groups)


def estimate_mean(table: np.ndarray, groups: list[str]) -> Result:
    """Return the mean of a table whose rows (seeds) and groups of columns are random.

    The variance is that of seeds plus that of groups minus the residual. If this is not larger than
    each of the three, the largest is used; of equally large ones, the one with the fewest degrees
    of freedom.
    """
    parts, df = compute_variances(table, groups)
    variance = parts["seeds"] + parts["groups"] - parts["rest"]
    largest = max(parts.values())
    if variance > largest * (1 + 1e-9):
        return student(table.mean(), variance, _satterthwaite(variance, parts, df))
    fewest = min(df[name] for name, part in parts.items() if part >= largest * (1 - 1e-9))
    return student(table.mean(), largest, fewest)


def compare_means(
    pairs_by_run: Pairs, by: str, problem_variances: tuple[dict, dict] | None = None
) -> Result:
    """Return the difference in mean accuracy over seeds. Each run of the arena is a block.

    Args:
        by: the end point: "accuracy" or "accuracy_in_time".
        problem_variances: the result of `compute_variances` for one of the runs of the arena.
    """
    blocks = [[getattr(a[s], by) - getattr(b[s], by) for s in a if s in b] for a, b in pairs_by_run]
    n = sum(map(len, blocks))
    within = sum((len(block) - 1) * statistics.variance(block) for block in blocks)
    df = n - len(blocks)
    variance = within / df * sum(1 / len(block) for block in blocks) / len(blocks) ** 2
    value = statistics.fmean(statistics.fmean(block) for block in blocks)
    if problem_variances:
        variances, degrees = problem_variances
        parts = {"within": variance} | {k: variances[k] for k in ("groups", "rest")}
        dfs = {"within": df} | {k: degrees[k] for k in ("groups", "rest")}
        combined = variance + parts["groups"] - parts["rest"]
        if combined > variance:
            return student(value, combined, _satterthwaite(combined, parts, dfs))
    return student(value, variance, df)


# Seconds ------------------------------------------------------------------------------------------


def median(values: list[float]) -> Result:
    """Return the median, with the interval of values that a sign test does not reject."""
    ordered, n = sorted(values), len(values)
    first = next(k for k in range(n) if stats.binom.cdf(k, n, 0.5) >= 0.025)
    if not first:  # too few values for an interval
        return Result(statistics.median(ordered))
    return Result(statistics.median(ordered), ordered[first - 1], ordered[n - first])


def compare_seconds(pairs_by_run: Pairs) -> Result:
    """Return the ratio of seconds, with the interval of Wilcoxon's signed-rank test.

    The pairs are the seeds of all runs of the arena. A seed with which neither algorithm reaches
    the target accuracy is left out.
    """
    pairs = [(a[s].seconds, b[s].seconds) for a, b in pairs_by_run for s in a if s in b]
    pairs = [pair for pair in pairs if min(pair) < math.inf]
    logs, finite = [], []
    for first, second in pairs:
        infinite = math.inf in (first, second)
        logs.append(math.copysign(1e6, first - second) if infinite else math.log(first / second))
        finite += [] if infinite else [logs[-1]]
    n = len(logs)
    averages = sorted((logs[i] + logs[j]) / 2 for i in range(n) for j in range(i, n))
    counts = [1]  # by sum: the number of subsets of the ranks 1 to n with this sum
    for number in range(1, n + 1):
        counts = [
            (counts[w] if w < len(counts) else 0) + (counts[w - number] if w >= number else 0)
            for w in range(len(counts) + number)
        ]
    cumulative = [Fraction(c, 2**n) for c in np.cumsum(np.array(counts, dtype=object))]
    rank = next(w for w, share in enumerate(cumulative) if share > Fraction(25, 1000))

    def p(at: float) -> float:
        shifted = np.array(logs) - math.log(at)
        ranks = stats.rankdata(np.abs(shifted))
        smaller = min(ranks[shifted > 0].sum(), ranks[shifted < 0].sum())
        return float(min(1, 2 * cumulative[math.ceil(smaller - 1e-9)]))

    low, high = averages[rank - 1], averages[-rank]
    error = statistics.stdev(finite) / math.sqrt(3 * n / math.pi)
    median_log = median(logs)
    ends = (_exp(x) for x in (median_log.value, median_log.low, median_log.high))
    return Result(
        *(_exp(x) for x in (statistics.median(averages), low, high)),
        p,
        (error, n - 1),
        Result(*ends),
    )


def _exp(log: float) -> float:
    """Return the exponential of a log ratio, which is infinite for a pair with an infinite time."""
    return math.exp(log) if log < 1e4 else math.inf
