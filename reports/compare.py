"""Runs beside runs: accuracy paired by problem and seed, runtime paired by seed."""

from dataclasses import dataclass

import pandas as pd

from rapid.algorithms import ALGORITHMS, RAPID
from rapid.config.specs import BASE
from rapid.stages.evaluate import pass_at_k
from reports.bootstrap import Estimate, estimate
from reports.statistics import Ratio, paired_ratio, spread

SHARES, DIFFERENCES = (0.0, 1.0), (-1.0, 1.0)
# Their runtime is shown but wins nothing: the one does not train, the other does not explore.
UNRANKED_RUNTIME = (BASE, *(name for name, one in ALGORITHMS.items() if one.imitates))


def scores(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """pass@k of each problem: a row for each seed, a column for each problem.

    Runs without scores, or with fewer completions than k, are left out; so are problems that not all
    of the others have.
    """
    k = int(metric.removeprefix("pass@"))
    rows = {
        seed: {name: pass_at_k(n, c, k) for name, (n, c) in found.items() if n >= k}
        for seed, found in zip(runs.seed, runs.scores, strict=True)
    }
    rows = {seed: row for seed, row in rows.items() if row}
    return pd.DataFrame.from_dict(rows, orient="index").dropna(axis="columns")


def accuracy(runs: pd.DataFrame, metric: str) -> Estimate | None:
    """Mean accuracy with its interval; `None` where no run has scores by problem."""
    matrix = scores(runs, metric)
    return None if matrix.empty else estimate(matrix.to_numpy(), SHARES)


def difference(a: pd.DataFrame, b: pd.DataFrame, metric: str) -> Estimate | None:
    """Accuracy of a less that of b, over the problems and seeds that both have."""
    of_a, of_b = scores(a, metric), scores(b, metric)
    seeds, problems = of_a.index.intersection(of_b.index), of_a.columns.intersection(of_b.columns)
    if seeds.empty or problems.empty:
        return None
    paired = of_a.loc[seeds, problems] - of_b.loc[seeds, problems]
    return estimate(paired.to_numpy(), DIFFERENCES)


def ratio(a: pd.DataFrame, b: pd.DataFrame, column: str = "runtime") -> Ratio | None:
    """How many times as long a takes as b, over the seeds that both have."""
    pairs = a.set_index("seed")[column].to_frame("a").join(b.set_index("seed")[column].rename("b"))
    return paired_ratio(list(pairs.a), list(pairs.b))


def within_noise(runs: pd.DataFrame, best: pd.DataFrame, metric: str) -> bool:
    """Whether the paired 95 % interval against the best holds no difference. False where there is no
    interval: nothing is said then."""
    if metric == "runtime":
        found = ratio(runs, best)
        return bool(found and found.covers_one)
    found = difference(runs, best, metric)
    return bool(found and found.covers_zero)


@dataclass(frozen=True)
class Field:
    """The runs of one benchmark and model, by algorithm."""

    runs: pd.DataFrame
    algorithms: list[str]

    @property
    def rapids(self) -> list[str]:
        return [name for name in self.algorithms if RAPID.named(name)]

    @property
    def baselines(self) -> list[str]:
        """RL algorithms other than RAPID."""
        left_out = (*UNRANKED_RUNTIME, *self.rapids)
        return [name for name in self.algorithms if name not in left_out]

    def of(self, algorithm: str) -> pd.DataFrame:
        return self.runs[self.runs.algorithm == algorithm]

    def mean(self, algorithm: str, metric: str) -> float | None:
        return spread(self.of(algorithm)[metric]).mean

    def order(self, algorithms: list[str], metric: str) -> list[str]:
        """Those that have the metric, best first: by least runtime, or highest accuracy."""
        known = [name for name in algorithms if self.mean(name, metric) is not None]
        sign = 1 if metric == "runtime" else -1
        return sorted(known, key=lambda name: sign * self.mean(name, metric))

    def first(self, algorithms: list[str], metric: str) -> str | None:
        return next(iter(self.order(algorithms, metric)), None)


def field(
    frame: pd.DataFrame, benchmark: str, model: str, algorithms: list[str], seeds: list[int]
) -> Field:
    chosen = (frame.benchmark == benchmark) & (frame.model == model) & frame.seed.isin(seeds)
    return Field(frame[chosen & frame.algorithm.isin(algorithms)], algorithms)
