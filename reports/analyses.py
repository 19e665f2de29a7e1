"""Analyses of two whole runs of the arena: pooled, each alone, and with clustered errors.

The arena was run twice, on different processors and at different commits, with the same seeds,
learning rates and test problems. Every analysis below compares the algorithms of all claims:

Pooled      both runs, which are blocks, with errors clustered over the skeletons of problems
OverSeeds   the same, for these test problems only
Clustered   the latest run, with errors clustered
Earlier     the earlier run; of its accuracies only means over problems are on record
AtReach     the latest run with another target accuracy

A skeleton is the text of a problem without its numbers. Problems with the same skeleton need the
same skill, so their scores are no independent sample.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from rapid.artifacts.files import BadFile, sha256_file, write_jsonl
from rapid.artifacts.manifests import MANIFEST
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.base import Problem
from rapid.benchmarks.made import draw_exercises
from rapid.config.arena import Measure
from reports.manifests import read_manifests
from reports.measured import Measured
from reports.outcomes import FieldOutcomes, Outcome, fields, on_record
from reports.statistics import blocks, crossed, pairs, times
from reports.statistics.estimates import Estimate
from reports.targets import Target


@dataclass(frozen=True)
class Clustered(FieldOutcomes):
    """The end points of a run, whose accuracies are compared with errors clustered.

    Args:
        latest: the end points of the run.
        skeletons: the skeleton of each problem, by id.
    """

    latest: FieldOutcomes
    skeletons: dict[str, str]

    @property
    def outcomes(self) -> dict[str, Outcome]:
        return self.latest.outcomes

    def compare(self, ours: str, reference: str, by: Measure) -> Estimate:
        plain = super().compare(ours, reference, by)
        if by != "accuracy" or plain.value is None:
            return plain
        matrix = self.cluster(self.subtract(ours, reference, by))
        return crossed.estimate(matrix, pairs.DIFFERENCES)

    def cluster(self, scores: pd.DataFrame) -> np.ndarray:
        """Return a score matrix with a column for each skeleton; as it is if it is of means."""
        if scores.shape[1] == 1:
            return scores.to_numpy()
        return crossed.by_cluster(scores.to_numpy(), [self.skeletons[id] for id in scores])


@dataclass(frozen=True)
class Earlier(FieldOutcomes):
    """The end points of an earlier run, from its record.

    Args:
        rows: the rows of the record for this benchmark, see `reports.outcomes.record`.
    """

    rows: pd.DataFrame

    @cached_property
    def outcomes(self) -> dict[str, Outcome]:
        by_name = dict(iter(self.rows.groupby("algorithm")))
        return {name: on_record(by_name[name].set_index("seed"), 1.0) for name in self.field.rates}


@dataclass(frozen=True)
class Pooled(FieldOutcomes):
    """The end points of two runs, which are blocks.

    Args:
        clustered: the latest run.
        earlier: the earlier one.
        scored: whether test problems are a random sample, as their scores in the latest run show.
    """

    clustered: Clustered
    earlier: Earlier
    scored: bool = True

    def compare(self, ours: str, reference: str, by: Measure) -> Estimate:
        """Compare two algorithms by an end point, paired by seed within each run."""
        if by == "seconds":
            return times.ratio(*self.pair_seconds(ours, reference))
        of_runs = [run.subtract(ours, reference, by) for run in (self.earlier, self.clustered)]
        latest = of_runs[-1]
        scored = self.clustered.cluster(latest) if self.scored and latest.shape[1] > 1 else None
        means = [rows.mean(axis=1).to_numpy() for rows in of_runs]
        return blocks.estimate(means, scored, pairs.DIFFERENCES)

    def pair_seconds(self, ours: str, reference: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the seconds of two algorithms in both runs, paired by seed within each."""
        of_runs = [run.pair_seconds(ours, reference) for run in (self.earlier, self.clustered)]
        first, second = zip(*of_runs, strict=True)
        return np.concatenate(first), np.concatenate(second)


def at_reach(latest: FieldOutcomes, level: float) -> FieldOutcomes:
    """Return the end points of a run with another target accuracy."""
    field = latest.field.model_copy(update={"reach": level})
    return FieldOutcomes(latest.benchmark, field, latest.measured)


@dataclass(frozen=True)
class PooledField:
    """All analyses of a field."""

    latest: FieldOutcomes
    clustered: Clustered
    earlier: Earlier

    @property
    def target(self) -> Target:
        return self.latest.target

    @cached_property
    def pooled(self) -> Pooled:
        return self._pool(scored=True)

    @cached_property
    def over_seeds(self) -> Pooled:
        return self._pool(scored=False)

    @cached_property
    def at_target(self) -> FieldOutcomes:
        return at_reach(self.latest, self.target.level)

    def _pool(self, scored: bool) -> Pooled:
        of_field = self.latest.benchmark, self.latest.field, self.latest.measured
        return Pooled(*of_field, self.clustered, self.earlier, scored)


def read_fields(measured: Measured, earlier: Path) -> list[PooledField]:
    """Return the analyses of all fields.

    Args:
        earlier: the record of an earlier run.

    Raises:
        BadFile: the record has other learning rates or target accuracies.
    """
    rows, of_fields = pd.read_csv(earlier), []
    for latest in fields(measured):
        of_benchmark = rows[rows.benchmark == latest.benchmark]
        expected = {
            (name, latest.field.run_name(name), latest.field.reach) for name in latest.field.rates
        }
        on_file = set(
            zip(of_benchmark.algorithm, of_benchmark.run, of_benchmark.reach, strict=True)
        )
        if on_file != expected:
            raise BadFile(
                f"{earlier}: {latest.benchmark}: {min(on_file ^ expected)} is not in both runs"
            )
        of_field = latest.benchmark, latest.field, measured
        of_fields.append(
            PooledField(
                latest,
                Clustered(*of_field, latest, draw_skeletons(measured, latest.benchmark)),
                Earlier(*of_field, of_benchmark),
            )
        )
    return of_fields


def draw_skeletons(measured: Measured, benchmark: str) -> dict[str, str]:
    """Return the skeleton of each test problem, by id.

    The problems are generated again, because the record of a run has only their digest.

    Raises:
        BadFile: the generator makes other problems than the run had.
    """
    (folder,) = (place(f"data/{benchmark}") for place in measured.places)
    path = f"{folder}/{MANIFEST}"
    job = read_manifests(measured.root, [folder])[path]
    count = {"test": job.value("test")}
    exercises = draw_exercises(BENCHMARKS[benchmark], job.value("data_seed"), count)["test"]
    problems = [exercise.problem for exercise in exercises]
    with TemporaryDirectory() as scratch:
        write_jsonl(Path(scratch, "test.jsonl"), problems)
        digest = sha256_file(Path(scratch, "test.jsonl"))
    if digest != job.outputs[f"{folder}/test.jsonl"]:
        raise BadFile(f"{path}: the problems of {benchmark} are not those that are made today")
    return {problem.id: skeleton(problem) for problem in problems}


def skeleton(problem: Problem) -> str:
    """Return the text of a problem with 0 in place of every number."""
    return re.sub(r"\d+", "0", problem.content)
