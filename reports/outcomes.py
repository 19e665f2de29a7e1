"""The end points of each algorithm's runs on a benchmark, by seed, which the arena compares."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from rapid.algorithms import PLAIN
from rapid.artifacts.files import BadFile
from rapid.config.arena import ArenaField, Claim, Measure
from reports.measured import Measured
from reports.statistics import crossed, curves, pairs, times
from reports.statistics.decisions import detectable, provable
from reports.statistics.estimates import Estimate

METRIC = "pass@1"
RESULTS = "results.csv"  # of every run of the fields
SHARE = 0.5  # of PG's mean time, after which accuracy in equal time is read
EQUAL = {"seconds": 1.0, "accuracy": 0.0, "accuracy_in_time": 0.0}  # of two that are alike


@dataclass(frozen=True)
class Outcome:
    """The end points of the runs of one algorithm, with a row for each seed.

    Args:
        runs: seeds and runtimes, and what is shown of the weights.
        seconds: until the accuracy is reached; infinite where it never is.
        accuracy: after equal completions: a column for each problem, or one.
        accuracy_in_time: in equal time, in one column. A run that has ended keeps its last one.
    """

    runs: pd.DataFrame
    seconds: pd.Series
    accuracy: pd.DataFrame
    accuracy_in_time: pd.DataFrame


def on_record(rows: pd.DataFrame, scale: float) -> Outcome:
    """Return the end points in rows of `record`; `scale` seconds here are one there."""
    runs = rows.assign(runtime=rows.runtime * scale).reset_index()
    accuracies = [_in_one_column(rows[name]) for name in ("accuracy", "accuracy_in_time")]
    return Outcome(runs, rows.seconds * scale, *accuracies)


@dataclass(frozen=True)
class FieldOutcomes:
    """The runs of a field on one benchmark."""

    benchmark: str
    field: ArenaField
    measured: Measured

    @property
    def label(self) -> str:
        """The benchmark and what its problems are."""
        return self.measured.label(self.benchmark)

    @cached_property
    def outcomes(self) -> dict[str, Outcome]:
        """The end points of each algorithm, by its name in the field."""
        measured = self._measure()
        if not self.measured.params.arena.only:
            return measured
        file = self.measured.root / self.measured.params.arena.record
        rows = pd.read_csv(file)
        recorded = {
            name: rows_of_name.set_index("seed")
            for name, rows_of_name in rows[rows.benchmark == self.benchmark].groupby("algorithm")
        }
        needed = sorted({*self.field.rates} - {*measured} | {PLAIN.name})
        if missing := [name for name in needed if name not in recorded]:
            raise BadFile(f"{file}: no runs of {', '.join(missing)} on {self.benchmark}")
        for name in needed:
            expected = (self.field.run_name(name), self.field.reach)
            on_file = {*zip(recorded[name].run, recorded[name].reach, strict=True)}
            if unexpected := on_file - {expected}:
                raise BadFile(
                    f"{file}: its results of {name} on {self.benchmark} are of "
                    f"{min(unexpected)} (run, reach), but the parameters have {expected}: "
                    "run the whole arena again, then make arena-record"
                )
        runtimes = measured[PLAIN.name].runs.set_index("seed").runtime.dropna()
        shared = runtimes.index.intersection(recorded[PLAIN.name].index)
        scale = runtimes[shared].mean() / recorded[PLAIN.name].runtime[shared].mean()
        return {
            name: measured.get(name) or on_record(recorded[name], scale)
            for name in self.field.rates
        }

    def _measure(self) -> dict[str, Outcome]:
        names = self.measured.params.arena.list_algorithms(self.field)
        by_name = {name: self.runs(self.field.run_name(name)) for name in names}
        before, plain = self.runs(self.measured.params.training.start), by_name[PLAIN.name]
        completions, seconds = plain.completions.mean(), SHARE * plain.runtime.mean()
        outcomes = {}
        for name, runs in by_name.items():
            by_seed = pd.Series(curves.read(runs, before, METRIC, self.measured.root), dtype=object)
            until = by_seed.map(lambda curve: curve.reaches(self.field.reach)).astype(float)
            accuracy = pairs.scores(runs, METRIC)
            if (runs.completions > completions).any():  # then it is read on the way
                accuracy = _in_one_column(by_seed.map(lambda curve: curve.after(completions)))
            in_time = _in_one_column(by_seed.map(lambda curve: curve.within(seconds)))
            outcomes[name] = Outcome(runs, until.fillna(math.inf), accuracy, in_time)
        return outcomes

    def runs(self, algorithm: str) -> pd.DataFrame:
        """Return the runs of an algorithm."""
        seeds = sorted(set(self.measured.frame.seed))
        return self.measured.contest(self.benchmark, [algorithm], seeds).runs

    def compare(self, ours: str, reference: str, by: Measure) -> Estimate:
        """Return one algorithm against another, as `compare` does."""
        return compare(self.outcomes[ours], self.outcomes[reference], by)

    def seen(self, claim: Claim, estimate: Estimate, alpha: float) -> float | None:
        """Return the least difference, or the ratio nearest to 1, that would mostly be seen.

        Of a claim of the same it is the least margin that would mostly be shown.
        """
        if claim.by != "seconds":
            least = provable if claim.expect == "same" else detectable
            return None if estimate.error is None else least(estimate, alpha)
        first, second = (self.outcomes[name].seconds for name in (claim.ours, claim.theirs))
        seeds = first.index.intersection(second.index)
        return times.detectable(first[seeds], second[seeds], alpha)


def compare(ours: Outcome, reference: Outcome, by: Measure) -> Estimate:
    """Return ours against the reference, by seed: a ratio of seconds, a difference of accuracy."""
    first, second = getattr(ours, by), getattr(reference, by)
    seeds = first.index.intersection(second.index)
    if len(seeds) < 2:
        return Estimate(
            None, reason=f"only {len(seeds)} seeds have both, but a comparison needs two"
        )
    if by == "seconds":
        return times.ratio(first[seeds], second[seeds])
    shared = first.columns.intersection(second.columns)
    if shared.empty:  # one of them was read on the way, where problems are not told apart
        first, second, shared = means(first), means(second), ["mean"]
    matrix = first.loc[seeds, shared].to_numpy() - second.loc[seeds, shared].to_numpy()
    if not matrix.any():
        return Estimate(None, reason="runs differ in no score: the part never acted")
    return crossed.estimate(matrix, pairs.DIFFERENCES)


def means(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over problems, in one column."""
    return _in_one_column(scores.mean(axis=1))


def _in_one_column(by_seed: pd.Series) -> pd.DataFrame:
    return by_seed.astype(float).to_frame("mean")


def by_run(outcome: Outcome) -> np.ndarray:
    """Return accuracy after equal completions: (runs, 1)."""
    return means(outcome.accuracy).to_numpy()


def record(measured: Measured) -> pd.DataFrame:
    """Return the end points of all runs of the fields: a row for each."""
    return pd.DataFrame(
        {
            "benchmark": of_field.benchmark,
            "algorithm": name,
            "run": of_field.field.run_name(name),
            "reach": of_field.field.reach,
            "seed": run.seed,
            "runtime": run.runtime,
            "staleness": run.staleness,
            "clip_fraction": run.clip_fraction,
            "seconds": outcome.seconds[run.seed],
            "accuracy": means(outcome.accuracy)["mean"][run.seed],
            "accuracy_in_time": outcome.accuracy_in_time["mean"][run.seed],
        }
        for of_field in fields(measured)
        for name, outcome in of_field.outcomes.items()
        for run in outcome.runs.itertuples()
        if run.seed in outcome.seconds
    )


def fields(measured: Measured) -> list[FieldOutcomes]:
    """Return the outcomes of each field."""
    arena = measured.params.arena
    return [FieldOutcomes(name, field, measured) for name, field in arena.fields.items()]
