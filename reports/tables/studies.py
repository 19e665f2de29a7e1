"""The tables of the studies, which are ablations (docs/studies.md).

A study compares variants of an algorithm on one benchmark with the first of these variants.

1. `variants`  accuracy, its difference from the first variant, runtime, staleness, clipping, memory
2. `reach`     training time until each of several levels of accuracy

The last table, from `reports.tables.claims`, has the claims that only studies can test.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pandas as pd

from rapid.algorithms import RAPID
from rapid.algorithms.variant_names import parse
from reports import formats, labels
from reports.formats import Format
from reports.measured import Contest, Measured
from reports.statistics import curves
from reports.statistics.curves import AccuracyCurve
from reports.tables import claims
from reports.tables import columns as standard
from reports.tables.columns import DIFFERENCE, Block, Column, accuracy, algorithm_table
from reports.tables.layout import build_table
from reports.tables.notes import load_descriptions, run_facts
from reports.tables.table import MISSING, NOT_APPLICABLE, Cell, Table, estimate_cell


@dataclass(frozen=True)
class StudyRuns:
    """The runs of one study.

    Args:
        start: algorithm whose trained model the runs start from.
        before: rows of that algorithm in the data frame.
        metric: the first pass@k of the benchmark.
        root: the folder that contains runs/ and evaluations/.
    """

    name: str
    contest: Contest
    start: str
    before: pd.DataFrame
    metric: str
    root: Path

    @property
    def title(self) -> str:
        """The title of the study in texts.yaml, or its name."""
        return load_descriptions()["tables"]["variants"]["titles"].get(self.name, self.name)

    @property
    def reference(self) -> str:
        """The variant with which the others are compared: the first one."""
        return self.contest.algorithms[0]

    @cached_property
    def curves(self) -> dict[str, dict[int, AccuracyCurve]]:
        """The accuracy curves of variants that saved snapshots, by variant and seed."""
        return {
            name: curves.read(self.contest.of(name), self.before, self.metric, self.root)
            for name in curves.with_snapshots(self.contest.algorithms)
        }

    @property
    def shared(self) -> dict[str, str]:
        """The parameters that all variants change, with their values in the first variant."""
        changes = [set(_changes(name)) for name in self.contest.algorithms]
        keys = {key for key, _ in set.intersection(*changes)}
        return {key: value for key, value in _changes(self.reference) if key in keys}

    def label(self, algorithm: str) -> str:
        """Return a variant's label: the parameters that it changes and `shared` does not have.

        The algorithm's name stands first in the label of the first variant, of a variant of another
        algorithm, and if the label would be empty otherwise.
        """
        plain, shared = parse(algorithm).plain, self.shared
        changes = [f"{key} = {value}" for key, value in _changes(algorithm) if key not in shared]
        if algorithm == self.reference or plain != parse(self.reference).plain or not changes:
            changes.insert(0, labels.algorithm(plain))
        return ", ".join(changes)


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
    """Return the tables of each study, and last the table of claims.

    A study has a table of times if its runs saved snapshots of the model.
    """
    built: list[Table] = []
    for study in studies(measured):
        built.append(variants(measured, study, len(built) + 1))
        if study.curves:
            built.append(reach(measured, study, len(built) + 1))
    return [*built, claims.studied(measured, len(built) + 1)]


# Variants -----------------------------------------------------------------------------------------


class Difference(Column):
    """A column with the difference in accuracy from the first row, paired by problem and seed."""

    def cells(self, runs: pd.DataFrame, algorithms: list[str]) -> list[Cell]:
        reference, *variants = (runs[runs.algorithm == name] for name in algorithms)
        return [Cell(NOT_APPLICABLE), *(self._cell(variant, reference) for variant in variants)]

    def _cell(self, ours: pd.DataFrame, reference: pd.DataFrame) -> Cell:
        estimate = DIFFERENCE.of_runs(ours, reference, self.metric)
        if estimate is None:
            return Cell(MISSING, reason="no seed has runs of both with scores by problem")
        sources = self.sources(ours, labels.run) + self.sources(reference, labels.run)
        return estimate_cell(formats.points, estimate, detail=f"{estimate.over}.", sources=sources)


def variants(measured: Measured, study: StudyRuns, number: int) -> Table:
    """Return a table with a row for each variant."""
    benchmark = study.contest.benchmark
    of_accuracy = [column.unranked for column in accuracy(measured.params, benchmark)]
    shown = [
        *of_accuracy,
        Difference("Difference", study.metric, of_accuracy[0].show),
        standard.TIME.unranked,
        standard.STALENESS,
        standard.CLIPPED,
        standard.MEMORY,
    ]
    return algorithm_table(
        "variants",
        measured,
        {name: study.label(name) for name in study.contest.algorithms},
        [Block("", benchmark, measured.params.tables.main.model, shown)],
        measured.params.studies.seeds,
        benchmarks=[benchmark],
        number=number,
        study=study,
        shared=[f"{key} = {value}" for key, value in study.shared.items()],
        defaults=_defaults(measured, benchmark),
    )


def _defaults(measured: Measured, benchmark: str) -> list[str]:
    """Return the values of RAPID's parameters and of those that all algorithms have."""
    params = measured.params
    settings = RAPID.select_objective(params).model_dump()
    settings["n_step"] = params.benchmarks[benchmark].n_step
    for name in ("group_size", "epochs", "learning_rate"):
        settings[name] = getattr(params.training, name)
    return [f"{name} = {str(value).lower()}" for name, value in settings.items()]


# Time to an accuracy ------------------------------------------------------------------------------


def reach(measured: Measured, study: StudyRuns, number: int) -> Table:
    """Return the times until each level of accuracy: rows of variants, columns of levels."""
    all_curves = [curve for by_seed in study.curves.values() for curve in by_seed.values()]
    columns = {
        f"{100 * level:.0f}%": partial(_reached, level) for level in curves.levels(all_curves)
    }
    return build_table(
        "reach",
        measured,
        [[(study.label(name), by_seed) for name, by_seed in study.curves.items()]],
        {"": columns},
        [study.contest.benchmark],
        number,
        study=study,
        seeds=measured.params.studies.seeds,
        start=labels.model_of(study.start),
        **run_facts(study.contest.runs),
    )


def _reached(level: float, rows: list[dict[int, AccuracyCurve]]) -> list[Cell]:
    """Return the cell of each row: the mean time until a level, if all runs of the row reach it."""
    times_of_rows = [[curve.reaches(level) for curve in by_seed.values()] for by_seed in rows]
    show = formats.durations(
        np.mean(times) for times in times_of_rows if times and None not in times
    )
    return [_time_cell(times, show) for times in times_of_rows]


def _time_cell(times: list[float | None], show: Format) -> Cell:
    if not times:
        return Cell(MISSING, reason="no run has a curve")
    if late := times.count(None):
        return Cell(MISSING, reason=f"{late} of {len(times)} runs did not reach it")
    mean, n = np.mean(times), len(times)
    deviation = show(np.std(times, ddof=1)) if n > 1 else ""
    return Cell(show(mean), deviation, detail=f"n = {n} runs.")
