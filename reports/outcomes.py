"""The end points that the arena compares, for each algorithm, benchmark and seed.

A field of the arena (docs/arena.md) has the algorithms that are compared on one benchmark, each
with a tuned learning rate. The end points are the training time until a target accuracy (`reach` in
the parameters), the accuracy after equally many completions, and the accuracy after equal training
time. The accuracy during training is that of snapshots of the model, which the runs save. PG is
policy gradient, the baseline.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from rapid.algorithms import PG
from rapid.artifacts.files import BadFile
from rapid.config.arena import ArenaField, Claim, EndPoint
from reports.report_data import ReportData
from reports.skeletons import is_generated, regenerate_skeletons
from reports.statistics import crossed, curves, pairs, times
from reports.statistics.decisions import compute_detectable_difference, compute_detectable_margin
from reports.statistics.estimates import Estimate
from reports.targets import MAX_CHANCE, Target, compute_target

METRIC = "pass@1"
RESULTS_FILE = "results.csv"  # has the table that `build_record` returns
# The accuracy in equal time is the accuracy after this share of PG's mean training time.
EQUAL_TIME_SHARE = 0.5
# The value of a comparison of two equal algorithms: 1 for a ratio of seconds, 0 for a difference of
# accuracies.
NO_EFFECT = {"seconds": 1.0, "accuracy": 0.0, "accuracy_in_time": 0.0}


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


def read_recorded_outcome(rows: pd.DataFrame, scale: float) -> Outcome:
    """Return the end points in an algorithm's rows of `build_record`, which are indexed by seed.

    The scale converts recorded seconds to seconds on this machine.
    """
    runs = rows.assign(runtime=rows.runtime * scale).reset_index()
    names = ("accuracy", "accuracy_in_time")
    accuracies = [_in_one_column(rows[name].dropna()) for name in names]
    return Outcome(runs, rows.seconds * scale, *accuracies)


@dataclass(frozen=True)
class FieldOutcomes:
    """The end points of all algorithms of a field, on its benchmark.

    Methods take an algorithm's name in the field, such as rapid-H8, except for `select_runs`.
    """

    benchmark: str
    field: ArenaField
    data: ReportData

    @property
    def label(self) -> str:
        """The benchmark and the kind of its problems, such as MBPP+ (made)."""
        return self.data.label_benchmark(self.benchmark)

    @cached_property
    def test_target(self) -> Target:
        """The target accuracy, computed from accuracies on the test problems."""
        field = self.field
        untrained = self.select_runs(self.data.params.training.start)
        pg_runs = self.select_runs(field.run_name(PG.name))
        evaluation = self.data.params.evaluation
        samples = [evaluation.effective_snapshot_samples] * field.snapshots + [evaluation.samples]
        return compute_target(untrained, pg_runs, METRIC, field.gain_share, field.reach, samples)

    @property
    def target_accuracy(self) -> float:
        """The target accuracy in the parameters, or else that of `test_target`."""
        return self.test_target.computed if self.field.reach is None else self.field.reach

    @property
    def is_target_reached_by_chance(self) -> bool:
        """Whether runs that learn nothing would often reach the target computed from runs.

        Then claims about seconds are not tested. A target accuracy in the parameters was chosen
        before the runs, and claims about it are tested as they were preregistered.
        """
        return self.field.reach is None and self.test_target.chance_of_computed > MAX_CHANCE

    @cached_property
    def outcomes(self) -> dict[str, Outcome]:
        """The end points of each algorithm, by its name in the field.

        If only some algorithms are run (`arena.only`), the others are read from the record of an
        earlier arena. Recorded seconds are multiplied by PG's mean runtime in this arena divided by
        the recorded one.
        """
        outcomes = self._compute_outcomes()
        if not self.data.params.arena.only:
            return outcomes
        file = self.data.root / self.data.params.arena.record
        rows = pd.read_csv(file)
        recorded = {
            name: rows_of_name.set_index("seed")
            for name, rows_of_name in rows[rows.benchmark == self.benchmark].groupby("algorithm")
        }
        needed = sorted({*self.field.rates} - {*outcomes} | {PG.name})
        if missing := [name for name in needed if name not in recorded]:
            raise BadFile(f"{file}: no runs of {', '.join(missing)} on {self.benchmark}")
        for name in needed:
            expected = (self.field.run_name(name), self.target_accuracy)
            in_file = {*zip(recorded[name].run, recorded[name].reach, strict=True)}
            if unexpected := in_file - {expected}:
                run, target = min(unexpected)
                raise BadFile(
                    f"{file}: its results of {name} on {self.benchmark} are from the run {run} "
                    f"with the target accuracy {target}, but the parameters have "
                    f"{expected[0]} with {expected[1]}: run the whole arena again, then "
                    "make arena-record"
                )
        runtimes = outcomes[PG.name].runs.set_index("seed").runtime.dropna()
        shared_seeds = runtimes.index.intersection(recorded[PG.name].index)
        recorded_runtimes = recorded[PG.name].runtime[shared_seeds]
        scale = runtimes[shared_seeds].mean() / recorded_runtimes.mean()
        return {
            name: outcomes.get(name) or read_recorded_outcome(recorded[name], scale)
            for name in self.field.rates
        }

    def _compute_outcomes(self) -> dict[str, Outcome]:
        """Return the end points of the algorithms that are run, from their curves."""
        names = self.data.params.arena.list_algorithms(self.field)
        runs_by_name = {name: self.select_runs(self.field.run_name(name)) for name in names}
        untrained = self.select_runs(self.data.params.training.start)
        pg_runs = runs_by_name[PG.name]
        completions = pg_runs.completions.mean()
        # Seconds are compared only between runs on the same make of processor.
        equal_times = {
            hardware: EQUAL_TIME_SHARE * pg_runs.runtime[pg_runs.hardware == hardware].mean()
            for hardware in pg_runs.hardware.unique()
        }
        outcomes = {}
        for name, runs in runs_by_name.items():
            curve_by_seed = curves.read_curves(runs, untrained, METRIC, self.data.root)
            by_seed = pd.Series(curve_by_seed, dtype=object)
            seconds = by_seed.map(lambda curve: curve.seconds_to_reach(self.target_accuracy))
            accuracy = pairs.build_score_matrix(runs, METRIC)
            # DAPO samples more completions than PG, so its accuracy is read from each run's curve.
            if (runs.completions > completions).any():
                accuracy = _in_one_column(
                    by_seed.map(lambda curve: curve.accuracy_after(completions))
                )
            hardware = runs.set_index("seed").hardware
            accuracy_in_time = pd.Series(
                {
                    seed: curve.accuracy_at(equal_times[hardware[seed]])
                    for seed, curve in curve_by_seed.items()
                    if hardware[seed] in equal_times
                },
                dtype=float,
            )
            seconds = seconds.astype(float).fillna(math.inf)
            outcomes[name] = Outcome(runs, seconds, accuracy, _in_one_column(accuracy_in_time))
        return outcomes

    @property
    def trained_runs(self) -> pd.DataFrame:
        """The rows of all runs that this arena trains."""
        names = self.data.params.arena.list_algorithms(self.field)
        return pd.concat([self.select_runs(self.field.run_name(name)) for name in names])

    def select_runs(self, algorithm: str) -> pd.DataFrame:
        """Return the rows of an algorithm.

        Args:
            algorithm: its name with the parameters that the field changes (`ArenaField.run_name`),
                or the name of the untrained model.
        """
        seeds = sorted(set(self.data.frame.seed))
        return self.data.select_runs(self.benchmark, [algorithm], seeds).frame

    def compare(self, ours: str, reference: str, end_point: EndPoint) -> Estimate:
        """Compare two algorithms by an end point, paired by seed.

        Returns:
            The ratio of seconds, ours divided by the reference's, or the difference of accuracies,
            ours minus the reference's.
        """
        if by_time := end_point == "seconds":
            seconds = self.pair_seconds(ours, reference)
            count = len(seconds[0])
        else:
            matrix = self.subtract_accuracies(ours, reference, end_point).to_numpy()
            count = len(matrix)
        if count < 2:
            reason = f"seeds with comparable runs of both: {count}, but a comparison needs two"
            return Estimate(None, reason=reason)
        if by_time:
            return times.time_ratio(*seconds)
        if not matrix.any():
            reason = "all scores are equal: the difference between the algorithms had no effect"
            return Estimate(None, reason=reason)
        return crossed.estimate_mean(matrix, pairs.DIFFERENCE_BOUNDS)

    def estimate_pass_at(self, name: str, k: int) -> Estimate | None:
        """Return pass@k of an algorithm; None if its runs have no scores by problem.

        The record of an earlier arena has no such scores.
        """
        runs = self.outcomes[name].runs
        return pairs.estimate_accuracy(runs, f"pass@{k}") if "scores" in runs else None

    def _select_same_hardware(self, seeds: pd.Index, ours: str, reference: str) -> pd.Index:
        """Return the seeds with which both algorithms ran on the same make of processor.

        All seeds are returned if one of the algorithms is from the record of an earlier arena. The
        record does not name the processor, and its seconds are scaled to this machine.
        """
        both_runs = [self.outcomes[name].runs for name in (ours, reference)]
        if not all("hardware" in runs for runs in both_runs):
            return seeds
        return seeds[np.equal(*(runs.set_index("seed").hardware[seeds] for runs in both_runs))]

    def compute_detectable_effect(
        self, claim: Claim, estimate: Estimate, alpha: float
    ) -> float | None:
        """Return the smallest effect that the test of a claim detects with a power of 80 %.

        The effect is a difference in accuracy, or a ratio of seconds below 1. For a claim of
        equivalence, it is the smallest margin within which the test shows two equal algorithms to
        be equivalent. The result is None if the estimate has no standard error, or too few runs
        reach the target accuracy. `alpha` is the level of the test, which is two-sided except for a
        claim of equivalence.
        """
        if claim.by != "seconds":
            if estimate.error is None:
                return None
            is_equivalence = claim.expect == "same"
            compute = compute_detectable_margin if is_equivalence else compute_detectable_difference
            return compute(estimate, alpha)
        return times.compute_detectable_ratio(*self.pair_seconds(claim.ours, claim.theirs), alpha)

    def subtract_accuracies(self, ours: str, reference: str, end_point: EndPoint) -> pd.DataFrame:
        """Return differences of accuracies over the seeds that both algorithms have.

        The result has a column for each problem that both have. It has one column of means if an
        accuracy was read from curves, which have no scores by problem.
        """
        scores = [getattr(self.outcomes[name], end_point) for name in (ours, reference)]
        if scores[0].columns.intersection(scores[1].columns).empty:
            scores = [average_problems(part) for part in scores]
        seeds = scores[0].index.intersection(scores[1].index)
        columns = scores[0].columns.intersection(scores[1].columns)
        return scores[0].loc[seeds, columns] - scores[1].loc[seeds, columns]

    def pair_seconds(self, ours: str, reference: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the seconds of two algorithms until the target accuracy, paired by seed.

        A seed is left out if its two runs were on different makes of processor.
        """
        seconds = [self.outcomes[name].seconds for name in (ours, reference)]
        shared_seeds = seconds[0].index.intersection(seconds[1].index)
        seeds = self._select_same_hardware(shared_seeds, ours, reference)
        return seconds[0][seeds].to_numpy(), seconds[1][seeds].to_numpy()

    def pair_runs(self, ours: str, reference: str) -> list[pd.DataFrame]:
        """Return the runs of two algorithms that have a runtime, for the same seeds.

        A seed is left out if its two runs were on different makes of processor.
        """
        both = [self.outcomes[name].runs.dropna(subset=["runtime"]) for name in (ours, reference)]
        shared_seeds = pd.Index(both[0].seed).intersection(both[1].seed)
        seeds = self._select_same_hardware(shared_seeds, ours, reference)
        return [runs[runs.seed.isin(seeds)] for runs in both]


@dataclass(frozen=True)
class ClusteredOutcomes(FieldOutcomes):
    """The end points of a field, with errors of accuracies clustered over skeletons.

    Args:
        unclustered: the same end points, which are computed only once.
        skeletons: the skeleton of each problem, by id (`reports.skeletons`).
    """

    unclustered: FieldOutcomes
    skeletons: dict[str, str]

    @property
    def outcomes(self) -> dict[str, Outcome]:
        return self.unclustered.outcomes

    def compare(self, ours: str, reference: str, end_point: EndPoint) -> Estimate:
        estimate = super().compare(ours, reference, end_point)
        if end_point != "accuracy" or estimate.value is None:
            return estimate
        matrix = self.merge_skeletons(self.subtract_accuracies(ours, reference, end_point))
        return crossed.estimate_mean(matrix, pairs.DIFFERENCE_BOUNDS)

    def estimate_pass_at(self, name: str, k: int) -> Estimate | None:
        if super().estimate_pass_at(name, k) is None:
            return None
        terms = [(self.outcomes[name].runs, 1)]
        return pairs.estimate_contrast(terms, f"pass@{k}", self.skeletons)

    def merge_skeletons(self, scores: pd.DataFrame) -> np.ndarray:
        """Return a score matrix with a column for each skeleton.

        Scores with a single column, which has means over problems, are not changed.
        """
        if scores.shape[1] == 1:
            return scores.to_numpy()
        return crossed.merge_clusters(scores.to_numpy(), [self.skeletons[id] for id in scores])


def average_problems(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the mean accuracy of each seed over problems, in one column."""
    return _in_one_column(scores.mean(axis=1))


def _in_one_column(by_seed: pd.Series) -> pd.DataFrame:
    return by_seed.astype(float).to_frame("mean")


def compute_mean_accuracies(outcome: Outcome) -> np.ndarray:
    """Return the mean accuracy of each run after equally many completions."""
    return outcome.accuracy.mean(axis=1).to_numpy(float)


def build_record(data: ReportData) -> pd.DataFrame:
    """Return the end points of each run that has a curve, in all fields, for results.csv."""
    return pd.DataFrame(
        {
            "benchmark": field_outcomes.benchmark,
            "algorithm": name,
            "run": field_outcomes.field.run_name(name),
            "reach": field_outcomes.target_accuracy,
            "seed": run.seed,
            "runtime": run.runtime,
            "staleness": run.staleness,
            "clip_fraction": run.clip_fraction,
            "seconds": outcome.seconds[run.seed],
            "accuracy": average_problems(outcome.accuracy)["mean"][run.seed],
            # A run on a make of processor on which PG did not run has none.
            "accuracy_in_time": outcome.accuracy_in_time["mean"].get(run.seed, math.nan),
        }
        for field_outcomes in list_fields(data)
        for name, outcome in field_outcomes.outcomes.items()
        for run in outcome.runs.itertuples()
        if run.seed in outcome.seconds
    )


def list_fields(data: ReportData) -> list[FieldOutcomes]:
    """Return the end points of each field of the arena.

    With `arena.clustered` errors of accuracies are clustered, if the problems are generated.
    """
    arena = data.params.arena
    fields = [FieldOutcomes(name, field, data) for name, field in arena.fields.items()]
    return [
        ClusteredOutcomes(
            outcomes.benchmark,
            outcomes.field,
            data,
            outcomes,
            regenerate_skeletons(data, outcomes.benchmark),
        )
        if arena.clustered and is_generated(data, outcomes.benchmark)
        else outcomes
        for outcomes in fields
    ]
