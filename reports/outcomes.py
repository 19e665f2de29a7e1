"""The end points that the arena compares, for each algorithm, benchmark and seed.

The arena is a preregistered comparison of algorithms on several benchmarks, each algorithm with a
tuned learning rate (docs/arena.md). A field of the arena has the algorithms that are compared on
one benchmark. The end points are the training time until a target accuracy (`reach`), the accuracy
after equally many completions, and the accuracy after equal training time. The accuracy during
training is that of snapshots of the model, which the runs save. PG is policy gradient,
the baseline.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from rapid.algorithms import PG
from rapid.artifacts.files import BadFile
from rapid.config.arena import ArenaField, Claim, Measure
from reports.measured import Measured
from reports.statistics import crossed, curves, pairs, times
from reports.statistics.decisions import detectable, provable
from reports.statistics.estimates import Estimate
from reports.targets import Target, find_target

METRIC = "pass@1"
RESULTS = "results.csv"  # the file of the table that `record` returns
SHARE = 0.5  # accuracy in equal time is read after this share of PG's mean training time
# The value of a comparison if both algorithms are equal: 1 for a ratio of seconds, 0 for a
# difference of accuracies.
EQUAL = {"seconds": 1.0, "accuracy": 0.0, "accuracy_in_time": 0.0}


@dataclass(frozen=True)
class Outcome:
    """The end points of the runs of one algorithm, with a row for each seed.

    Args:
        runs: the columns seed, runtime (seconds), staleness and clip_fraction, and more.
        seconds: training time until the target accuracy; infinite if a run never reaches it.
        accuracy: after as many completions as PG samples. It has a column for each problem, or one
            column with the mean.
        accuracy_in_time: after equal training time, in one column. A run that ended earlier counts
            with its final accuracy.
    """

    runs: pd.DataFrame
    seconds: pd.Series
    accuracy: pd.DataFrame
    accuracy_in_time: pd.DataFrame


def on_record(rows: pd.DataFrame, scale: float) -> Outcome:
    """Return the end points of an algorithm, from the record of an earlier arena.

    Args:
        rows: rows of `record` for the algorithm, with the seed as index.
        scale: factor that converts recorded seconds to seconds on this machine.
    """
    runs = rows.assign(runtime=rows.runtime * scale).reset_index()
    accuracies = [_in_one_column(rows[name]) for name in ("accuracy", "accuracy_in_time")]
    return Outcome(runs, rows.seconds * scale, *accuracies)


@dataclass(frozen=True)
class FieldOutcomes:
    """The end points of all algorithms of a field, on its benchmark."""

    benchmark: str
    field: ArenaField
    measured: Measured

    @property
    def label(self) -> str:
        """The benchmark and the kind of its problems, such as MBPP+ (made)."""
        return self.measured.label(self.benchmark)

    @cached_property
    def target(self) -> Target:
        """The target accuracy that follows from the test problems."""
        field = self.field
        untrained = self.runs(self.measured.params.training.start)
        plain = self.runs(field.run_name(PG.name))
        return find_target(untrained, plain, METRIC, field.reach, field.snapshots + 1)

    @property
    def reach(self) -> float:
        """The target accuracy; NaN if it is not in the parameters and there are no runs."""
        return self.target.level if self.field.reach is None else self.field.reach

    @cached_property
    def outcomes(self) -> dict[str, Outcome]:
        """The end points of each algorithm, by its name in the field.

        If only some algorithms are run (`arena.only`), the others are read from the record of an
        earlier arena. Their seconds are scaled by the runtimes of PG here and in the record.
        """
        measured = self._measure()
        if not self.measured.params.arena.only:
            return measured
        file = self.measured.root / self.measured.params.arena.record
        rows = pd.read_csv(file)
        recorded = {
            name: rows_of_name.set_index("seed")
            for name, rows_of_name in rows[rows.benchmark == self.benchmark].groupby("algorithm")
        }
        needed = sorted({*self.field.rates} - {*measured} | {PG.name})
        if missing := [name for name in needed if name not in recorded]:
            raise BadFile(f"{file}: no runs of {', '.join(missing)} on {self.benchmark}")
        for name in needed:
            expected = (self.field.run_name(name), self.reach)
            on_file = {*zip(recorded[name].run, recorded[name].reach, strict=True)}
            if unexpected := on_file - {expected}:
                raise BadFile(
                    f"{file}: its results of {name} on {self.benchmark} are of "
                    f"{min(unexpected)} (run, reach), but the parameters have {expected}: "
                    "run the whole arena again, then make arena-record"
                )
        runtimes = measured[PG.name].runs.set_index("seed").runtime.dropna()
        shared = runtimes.index.intersection(recorded[PG.name].index)
        scale = runtimes[shared].mean() / recorded[PG.name].runtime[shared].mean()
        return {
            name: measured.get(name) or on_record(recorded[name], scale)
            for name in self.field.rates
        }

    def _measure(self) -> dict[str, Outcome]:
        names = self.measured.params.arena.list_algorithms(self.field)
        by_name = {name: self.runs(self.field.run_name(name)) for name in names}
        before, plain = self.runs(self.measured.params.training.start), by_name[PG.name]
        completions = plain.completions.mean()
        # Seconds are compared on one make of processor only.
        equal_times = {
            machine: SHARE * plain.runtime[plain.hardware == machine].mean()
            for machine in plain.hardware.unique()
        }
        outcomes = {}
        for name, runs in by_name.items():
            by_seed = pd.Series(curves.read(runs, before, METRIC, self.measured.root), dtype=object)
            until = by_seed.map(lambda curve: curve.reaches(self.reach)).astype(float)
            accuracy = pairs.scores(runs, METRIC)
            # DAPO samples more completions than PG, so its accuracy is read from each run's curve.
            if (runs.completions > completions).any():
                accuracy = _in_one_column(by_seed.map(lambda curve: curve.after(completions)))
            machines = runs.set_index("seed").hardware
            in_time = pd.Series(
                {
                    seed: curve.within(equal_times[machines[seed]])
                    for seed, curve in by_seed.items()
                    if machines[seed] in equal_times
                },
                dtype=float,
            )
            until = until.fillna(math.inf)
            outcomes[name] = Outcome(runs, until, accuracy, _in_one_column(in_time))
        return outcomes

    def runs(self, algorithm: str) -> pd.DataFrame:
        """Return the rows of an algorithm in the data frame of all runs."""
        seeds = sorted(set(self.measured.frame.seed))
        return self.measured.contest(self.benchmark, [algorithm], seeds).runs

    def compare(self, ours: str, reference: str, by: Measure) -> Estimate:
        """Return the comparison of two algorithms by an end point, see the function `compare`."""
        return compare(self.outcomes[ours], self.outcomes[reference], by)

    def compute_detectable(self, claim: Claim, estimate: Estimate, alpha: float) -> float | None:
        """Return the smallest effect that the test of a claim detects with a power of 80 %.

        The effect is a difference in accuracy, or a ratio of seconds below 1. For a claim of
        equivalence, the smallest margin is returned within which the test shows two equal
        algorithms to be equivalent. None if the estimate has no standard error, or too few runs
        reach the accuracy.

        Args:
            alpha: the two-sided level of the test.
        """
        if claim.by != "seconds":
            least = provable if claim.expect == "same" else detectable
            return None if estimate.error is None else least(estimate, alpha)
        return times.detectable(*self.pair_seconds(claim.ours, claim.theirs), alpha)

    def subtract(self, ours: str, reference: str, by: Measure) -> pd.DataFrame:
        """Return differences of accuracies, see the function `subtract`."""
        return subtract(*(getattr(self.outcomes[name], by) for name in (ours, reference)))

    def pair_seconds(self, ours: str, reference: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the seconds of two algorithms until the target accuracy, paired by seed."""
        return pair_seconds(self.outcomes[ours], self.outcomes[reference])


def compare(ours: Outcome, reference: Outcome, by: Measure) -> Estimate:
    """Compare two algorithms by an end point, paired by seed.

    Returns:
        The ratio of seconds, ours divided by the reference's, or the difference of accuracies, ours
        minus the reference's.
    """
    first, second = getattr(ours, by), getattr(reference, by)
    seeds = first.index.intersection(second.index)
    if by == "seconds":
        seeds = keep_timed(seeds, ours, reference)
    if len(seeds) < 2:
        return Estimate(
            None, reason=f"only {len(seeds)} seeds have both, but a comparison needs two"
        )
    if by == "seconds":
        return times.ratio(first[seeds], second[seeds])
    matrix = subtract(first, second).to_numpy()
    if not matrix.any():
        return Estimate(
            None, reason="no score differs between the runs: what differs had no effect"
        )
    return crossed.estimate(matrix, pairs.DIFFERENCES)


def keep_timed(seeds: pd.Index, ours: Outcome, reference: Outcome) -> pd.Index:
    """Return the seeds whose runs of two algorithms were on the same make of processor.

    Records of an earlier arena do not have the processor: their seconds are scaled to this machine,
    and all seeds are kept.
    """
    if "hardware" not in ours.runs or "hardware" not in reference.runs:
        return seeds
    machines = (outcome.runs.set_index("seed").hardware[seeds] for outcome in (ours, reference))
    return seeds[np.equal(*machines)]


def pair_seconds(ours: Outcome, reference: Outcome) -> tuple[np.ndarray, np.ndarray]:
    """Return the seconds of two algorithms until the target accuracy, paired by seed.

    A seed is left out if its two runs were on different makes of processor.
    """
    shared = ours.seconds.index.intersection(reference.seconds.index)
    seeds = keep_timed(shared, ours, reference)
    return ours.seconds[seeds].to_numpy(), reference.seconds[seeds].to_numpy()


def subtract(ours: pd.DataFrame, reference: pd.DataFrame) -> pd.DataFrame:
    """Return the difference of accuracies of the seeds that both have, by problem if both do."""
    seeds = ours.index.intersection(reference.index)
    shared = ours.columns.intersection(reference.columns)
    if shared.empty:  # an accuracy read from a curve is a mean over problems: compare means
        ours, reference, shared = means(ours), means(reference), ["mean"]
    return ours.loc[seeds, shared] - reference.loc[seeds, shared]


def means(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the mean accuracy of each seed over problems, in one column."""
    return _in_one_column(scores.mean(axis=1))


def _in_one_column(by_seed: pd.Series) -> pd.DataFrame:
    return by_seed.astype(float).to_frame("mean")


def by_run(outcome: Outcome) -> np.ndarray:
    """Return the mean accuracy of each run after equally many completions: shape (runs, 1)."""
    return means(outcome.accuracy).to_numpy()


def record(measured: Measured) -> pd.DataFrame:
    """Return a table with the end points of each run of all fields, for results.csv."""
    return pd.DataFrame(
        {
            "benchmark": of_field.benchmark,
            "algorithm": name,
            "run": of_field.field.run_name(name),
            "reach": of_field.reach,
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
    """Return the fields of the arena, one for each benchmark."""
    arena = measured.params.arena
    return [FieldOutcomes(name, field, measured) for name, field in arena.fields.items()]
