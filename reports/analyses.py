"""Analyses of two whole runs of the arena: pooled, each alone, and with clustered errors.

The arena was run twice, on different processors and at different commits, with the same seeds,
learning rates and test problems. A field of the arena has the algorithms that are compared on one
benchmark, and claims about them. `reports.outcomes` defines the end points of a comparison. Each
analysis of a field compares the algorithms of all its claims:

pooled        both runs as blocks (`statistics.blocks`), with errors clustered over skeletons
over_seeds    both runs, with intervals for these test problems only
clustered     the latest run, with errors clustered over skeletons
earlier       the earlier run, whose record has mean accuracies only, without scores by problem
other_target  the latest run with another target accuracy

`reports.skeletons` defines the skeleton of a problem.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from rapid.artifacts.files import BadFile
from rapid.config.arena import EndPoint
from reports.outcomes import (
    ClusteredOutcomes,
    FieldOutcomes,
    Outcome,
    list_fields,
    read_recorded_outcome,
)
from reports.report_data import ReportData
from reports.skeletons import regenerate_skeletons
from reports.statistics import blocks, pairs, times
from reports.statistics.estimates import Estimate


@dataclass(frozen=True)
class EarlierOutcomes(FieldOutcomes):
    """The end points of the earlier run, from rows of its record."""

    rows: pd.DataFrame

    @cached_property
    def outcomes(self) -> dict[str, Outcome]:
        rows = dict(iter(self.rows.groupby("algorithm")))
        # With scale 1, seconds stay those of the machine of the earlier run.
        return {
            name: read_recorded_outcome(rows[name].set_index("seed"), scale=1.0)
            for name in self.field.rates
        }


@dataclass(frozen=True)
class PooledOutcomes(FieldOutcomes):
    """The end points of two runs of the arena, which are the blocks of `reports.statistics.blocks`.

    Args:
        clustered: the latest run.
        problems_vary: whether test problems count as a random sample. The standard error then has
            a part for the problems, which is estimated from the scores of the latest run.
    """

    clustered: ClusteredOutcomes
    earlier: EarlierOutcomes
    problems_vary: bool = True

    def compare(self, ours: str, reference: str, end_point: EndPoint) -> Estimate:
        """Compare two algorithms by an end point, paired by seed within each run."""
        if end_point == "seconds":
            return times.time_ratio(*self.pair_seconds(ours, reference))
        runs = (self.earlier, self.clustered)
        differences = [run.subtract_accuracies(ours, reference, end_point) for run in runs]
        latest, score_matrix = differences[-1], None
        if self.problems_vary and latest.shape[1] > 1:
            score_matrix = self.clustered.merge_skeletons(latest)
        means = [rows.mean(axis=1).to_numpy() for rows in differences]
        return blocks.estimate_mean(means, score_matrix, pairs.DIFFERENCE_BOUNDS)

    def pair_seconds(self, ours: str, reference: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the seconds of two algorithms in both runs, paired by seed within each."""
        seconds_by_run = [
            run.pair_seconds(ours, reference) for run in (self.earlier, self.clustered)
        ]
        our_seconds, reference_seconds = zip(*seconds_by_run, strict=True)
        return np.concatenate(our_seconds), np.concatenate(reference_seconds)


@dataclass(frozen=True)
class FieldAnalyses:
    """The end points of a field in the latest run, and in each analysis that the module lists."""

    latest: FieldOutcomes
    pooled: PooledOutcomes
    over_seeds: PooledOutcomes
    clustered: ClusteredOutcomes
    earlier: EarlierOutcomes
    other_target: FieldOutcomes


def read_field_analyses(data: ReportData, record_file: Path) -> list[FieldAnalyses]:
    """Return the analyses of all fields, from the latest run and the record of the earlier one.

    Raises:
        BadFile: the record has other learning rates or target accuracies.
    """
    record, analyses = pd.read_csv(record_file), []
    for latest in list_fields(data):
        benchmark, field = latest.benchmark, latest.field
        rows = record[record.benchmark == benchmark]
        target_accuracy = latest.target_accuracy
        expected = {(name, field.run_name(name), target_accuracy) for name in field.rates}
        recorded = set(zip(rows.algorithm, rows.run, rows.reach, strict=True))
        if recorded != expected:
            differing = min(recorded ^ expected)
            name, run, target = differing
            arena = "the earlier" if differing in recorded else "this"
            raise BadFile(
                f"{record_file}: {benchmark}: only in {arena} arena was {name} run as {run}, with "
                f"the target accuracy {target}. Pass the record of an arena with the same learning "
                "rates and targets"
            )
        arguments = (benchmark, field, data)  # of every `FieldOutcomes`
        clustered = ClusteredOutcomes(*arguments, latest, regenerate_skeletons(data, benchmark))
        earlier = EarlierOutcomes(*arguments, rows)
        pooled, over_seeds = (
            PooledOutcomes(*arguments, clustered, earlier, problems_vary)
            for problems_vary in (True, False)
        )
        # The target accuracy by the rule of `compute_target`, in place of the parameter `reach`.
        other_field = field.model_copy(update={"reach": latest.test_target.computed})
        other_target = FieldOutcomes(benchmark, other_field, data)
        analyses.append(FieldAnalyses(latest, pooled, over_seeds, clustered, earlier, other_target))
    return analyses
