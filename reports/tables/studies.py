"""The tables of the studies, which are ablations (docs/studies.md).

A study compares variants of an algorithm on one benchmark with the first of these variants.

1. `variants`  accuracy, its difference from the first variant, runtime, staleness, clipping, memory
2. `reach`     training time until each of several levels of accuracy

After them come preregistered hypotheses (`reports.tables.hypotheses`), and last the claims of the
paper that only studies can test (`reports.tables.claims`).
"""

from functools import partial

import numpy as np
import pandas as pd

from rapid.algorithms import RAPID
from reports import formats, labels
from reports.formats import Format
from reports.measured import Measured
from reports.statistics import curves
from reports.statistics.curves import AccuracyCurve
from reports.tables import claims, hypotheses
from reports.tables import columns as standard
from reports.tables.columns import DIFFERENCE, Block, Column, accuracy, algorithm_table
from reports.tables.layout import build_table
from reports.tables.notes import run_facts
from reports.tables.study_runs import StudyRuns, studies
from reports.tables.table import MISSING, NOT_APPLICABLE, Cell, Table, estimate_cell


def tables(measured: Measured) -> list[Table]:
    """Return the tables of each study, then those of hypotheses and of claims.

    A study has a table of times if its runs saved snapshots of the model.
    """
    built: list[Table] = []
    all_studies = studies(measured)
    for study in all_studies:
        built.append(variants(measured, study, len(built) + 1))
        if study.curves:
            built.append(reach(measured, study, len(built) + 1))
    if measured.params.studies.hypotheses:
        built.append(hypotheses.build(measured, all_studies, len(built) + 1))
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
        *(standard.DIVERSITY if measured.params.evaluation.diversity else []),
        standard.TIME.unranked,
        standard.STALENESS,
        standard.CLIPPED,
        standard.MEMORY,
    ]
    return algorithm_table(
        "variants",
        measured,
        {name: study.label(name) for name in study.contest.algorithms},
        [Block("", benchmark, study.contest.model, shown)],
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
    settings = RAPID.get_loss_parameters(params).model_dump()
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
