"""The studies as tables: one thing changed at a time, each variant beside the study's first.

1. `variants`  accuracy, its difference from the reference, runtime, staleness, clipping, memory
2. `reach`     seconds of training until an accuracy is reached

`claims` has the last table, of the paper's claims that only studies can test.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from rapid.algorithms import RAPID
from rapid.algorithms.names import parse
from rapid.text import duration, listing
from reports import formats, labels
from reports.measured import Contest, Measured
from reports.statistics import curves
from reports.statistics.curves import AccuracyCurve
from reports.tables import claims, notes
from reports.tables import columns as standard
from reports.tables.columns import DIFFERENCE, Block, Column, accuracy, grid
from reports.tables.table import MISSING, NOT_APPLICABLE, Cell, Group, Row, Table, estimate_cell

TITLES = {
    "eta": "Sensitivity to eta, the bound of importance weights",
    "weights-and-baseline": "Importance weights and group baseline, switched on and off",
    "clip": "Where importance weights are clipped",
    "staleness-of-all-groups": "Staleness with the groups that have no gradient, and without",
    "group-size": "Completions a prompt",
    "time-to-accuracy": "Accuracy on the test problems by time of training",
}


@dataclass(frozen=True)
class StudyRuns:
    """The runs of one study."""

    name: str
    contest: Contest
    start: str  # the algorithm whose model the runs start from
    before: pd.DataFrame  # evaluations of that model
    metric: str  # the benchmark's first pass@k
    root: Path

    @property
    def title(self) -> str:
        """The study in words."""
        return TITLES.get(self.name, self.name)

    @property
    def reference(self) -> str:
        """The variant that the others are held against."""
        return self.contest.algorithms[0]

    @cached_property
    def curves(self) -> dict[str, dict[int, AccuracyCurve]]:
        """The curves of the variants that kept models on the way, by seed."""
        return {
            name: curves.read(self.contest.of(name), self.before, self.metric, self.root)
            for name in curves.kept(self.contest.algorithms)
        }

    def label(self, algorithm: str) -> str:
        """Return what tells a variant apart within the study; the reference's name comes first."""
        found, shared = parse(algorithm), self._shared()
        changes = [f"{key} = {value}" for key, value in _changes(algorithm) if key not in shared]
        plain = parse(self.reference).plain
        if algorithm == self.reference or found.plain != plain or not changes:
            changes.insert(0, labels.algorithm(found.plain))
        return ", ".join(changes)

    def shared(self) -> str:
        """Return what all variants have alike, in words; "" where that is nothing."""
        shared = self._shared()
        return listing([f"{k} = {v}" for k, v in _changes(self.reference) if k in shared])

    def _shared(self) -> set[str]:
        """Return the parameters that all variants change alike."""
        of_all = [set(_changes(name)) for name in self.contest.algorithms]
        return {key for key, _ in set.intersection(*of_all)}


def _changes(algorithm: str) -> list[tuple[str, str]]:
    """Return the changes of a variant: rapid-H4,eta=4 -> [("eta", "4")]."""
    return [tuple(part.split("=")) for part in algorithm.split(",")[1:]]


def studies(measured: Measured) -> list[StudyRuns]:
    """Return the runs of each study."""
    seeds, start = measured.params.studies.seeds, measured.params.training.start
    return [
        StudyRuns(
            name,
            measured.contest(spec.benchmark, spec.algorithms, seeds),
            start,
            measured.contest(spec.benchmark, [start], seeds).runs,
            accuracy(measured.params, spec.benchmark)[0].metric,
            measured.root,
        )
        for name, spec in measured.params.studies.compared.items()
    ]


def tables(measured: Measured) -> list[Table]:
    """Return a table for each study, one of times if it kept models on the way; and of claims."""
    found = []
    for study in studies(measured):
        found.append(variants(measured, study, len(found) + 1))
        if study.curves:
            found.append(reach(measured, study, len(found) + 1))
    return [*found, claims.studied(measured, len(found) + 1)]


# Variants -----------------------------------------------------------------------------------------


class Difference(Column):
    """A column of the paired difference of accuracy from the first row."""

    def cells(self, runs: pd.DataFrame, algorithms: list[str]) -> list[Cell]:
        reference = runs[runs.algorithm == algorithms[0]]
        others = [self._cell(runs[runs.algorithm == name], reference) for name in algorithms[1:]]
        return [Cell(NOT_APPLICABLE), *others]

    def _cell(self, ours: pd.DataFrame, theirs: pd.DataFrame) -> Cell:
        found = DIFFERENCE.of_runs(ours, theirs, self.metric)
        if found is None:
            return Cell(MISSING, reason="no seed has both with scores by problem")
        sources = self.sources(ours, labels.run) + self.sources(theirs, labels.run)
        return estimate_cell(formats.points, found, detail=f"{found.over}.", sources=sources)


def variants(measured: Measured, study: StudyRuns, number: int) -> Table:
    """Return a table with a row for each variant."""
    params, benchmark = measured.params, study.contest.benchmark
    model, seeds = params.tables.main.model, params.studies.seeds
    of_accuracy = [column.unranked for column in accuracy(params, benchmark)]
    first = of_accuracy[0]
    columns = [
        *of_accuracy,
        Difference("Difference", first.metric, first.show),
        standard.TIME.unranked,
        standard.STALENESS,
        standard.CLIPPED,
        standard.MEMORY,
    ]
    labelled = {name: study.label(name) for name in study.contest.algorithms}
    found = grid(measured, labelled, [Block("", benchmark, model, columns)], seeds)
    shared = study.shared()
    return Table(
        number=number,
        label=f"tab:{study.name}",
        caption=f"{study.title}: {model} on {study.contest.label}.",
        stub="Variant",
        groups=found.groups,
        rows=found.rows,
        notes=[
            notes.seeds(seeds),
            *([f"All with {shared}."] if shared else []),
            f"What is not said here is as in the parameters: {_defaults(measured, benchmark)}.",
            f"Difference: {first.title} less the first row's, in points, paired by problem and "
            "seed, with its 95 % interval.",
            *found.notes,
            *notes.provenance(found.runs),
        ],
        problems=[study.contest.problems],
    )


def _defaults(measured: Measured, benchmark: str) -> str:
    """Return RAPID's parameters and those of all, in words."""
    params = measured.params
    shared = {
        name: getattr(params.training, name) for name in ("group_size", "epochs", "learning_rate")
    }
    n_step = {"n_step": params.benchmarks[benchmark].n_step}
    said = (RAPID.objective(params).model_dump() | n_step | shared).items()
    return listing([f"{name} = {str(value).lower()}" for name, value in said])


# Time to an accuracy ------------------------------------------------------------------------------


def reach(measured: Measured, study: StudyRuns, number: int) -> Table:
    """Return a table with a row for each algorithm, and a column for each level of accuracy."""
    params = measured.params
    every = [curve for of in study.curves.values() for curve in of.values()]
    levels = curves.levels(every)
    return Table(
        number=number,
        label=f"tab:{study.name}-reach",
        caption=(
            f"Training time until {study.metric.capitalize()} is reached: "
            f"{params.tables.main.model} on {study.contest.label}."
        ),
        stub="Algorithm",
        groups=[Group("", [f"{100 * level:.0f}%" for level in levels])],
        rows=[
            Row(study.label(name), [[_reached(of, level) for level in levels]])
            for name, of in study.curves.items()
        ],
        notes=[
            notes.seeds(params.studies.seeds),
            f"Accuracy is that of {labels.model_of(study.start)}, of the models kept on the way "
            "and of the last one, on the test problems, with straight lines between. The time is "
            "the training loop's; keeping and evaluating models is not in it.",
            notes.evaluation(study.contest.runs),
            *notes.provenance(study.contest.runs),
        ],
        problems=[study.contest.problems],
    )


def _reached(of: dict[int, AccuracyCurve], level: float) -> Cell:
    """Return the mean time over seeds, where all reach the level."""
    if not of:
        return Cell(MISSING, reason="no run has a curve")
    times = [curve.reaches(level) for curve in of.values()]
    late = sum(time is None for time in times)
    if late:
        return Cell(MISSING, reason=f"{late} of {len(times)} runs did not get there")
    mean, n = np.mean(times), len(times)
    deviation = duration(np.std(times, ddof=1), mean) if n > 1 else ""
    return Cell(duration(mean), deviation, detail=f"n = {n} runs.")
