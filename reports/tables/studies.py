"""The tables of the studies, which are usually ablations (docs/studies.md).

A study compares algorithms or variants of one, all of which are called variants here, with the
first of them on a benchmark.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from rapid.algorithms import RAPID
from reports import formats, labels
from reports.formats import Format
from reports.report_data import ReportData
from reports.statistics import curves
from reports.statistics.curves import AccuracyCurve
from reports.tables import claims, columns, hypotheses
from reports.tables.columns import (
    DIFFERENCE,
    Block,
    Column,
    build_algorithm_table,
    list_accuracy_columns,
)
from reports.tables.layout import build_table
from reports.tables.notes import collect_run_facts
from reports.tables.study_runs import StudyRuns, list_studies
from reports.tables.table import MISSING, NOT_APPLICABLE, Cell, Table, build_estimate_cell


def build_tables(data: ReportData) -> list[Table]:
    """Return the tables of each study, then those of hypotheses and of claims.

    A study has a table of times if its runs saved snapshots of the model.
    """
    tables: list[Table] = []
    studies = list_studies(data)
    for study in studies:
        tables.append(build_variants_table(data, study, len(tables) + 1))
        if study.curves:
            tables.append(build_times_table(data, study, len(tables) + 1))
    if data.params.studies.hypotheses:
        tables.append(hypotheses.build_hypotheses_table(data, studies, len(tables) + 1))
    return [*tables, claims.build_study_claims_table(data, len(tables) + 1)]


# Variants -----------------------------------------------------------------------------------------


class DifferenceColumn(Column):
    """A column with the difference in accuracy from the first row, paired by problem and seed."""

    def build_cells(self, runs: pd.DataFrame, algorithms: list[str]) -> list[Cell]:
        reference, *variants = (runs[runs.algorithm == name] for name in algorithms)
        cells = [self._build_difference_cell(variant, reference) for variant in variants]
        return [Cell(NOT_APPLICABLE), *cells]

    def _build_difference_cell(self, ours: pd.DataFrame, reference: pd.DataFrame) -> Cell:
        estimate = DIFFERENCE.compare_runs(ours, reference, self.metric)
        if estimate is None:
            return Cell(MISSING, reason="no seed has runs of both with scores by problem")
        sources = self.list_sources(ours, labels.run) + self.list_sources(reference, labels.run)
        detail = f"{estimate.sample}."
        return build_estimate_cell(formats.points, estimate, detail=detail, sources=sources)


def build_variants_table(data: ReportData, study: StudyRuns, number: int) -> Table:
    """Return a table with a row for each variant."""
    benchmark = study.runs.benchmark
    accuracies = [  # without marks of the best variant: variants are compared with the first only
        replace(column, best="") for column in list_accuracy_columns(data.params, benchmark)
    ]
    shown_columns = [
        *accuracies,
        DifferenceColumn("Difference", study.metric, accuracies[0].show),
        *(columns.DIVERSITY if data.params.evaluation.diversity else []),
        columns.UNRANKED_TIME,
        columns.STALENESS,
        columns.CLIPPED,
        columns.MEMORY,
    ]
    return build_algorithm_table(
        "variants",
        data,
        {name: study.label_variant(name) for name in study.runs.algorithms},
        [Block("", benchmark, study.runs.model, shown_columns)],
        data.params.studies.seeds,
        benchmarks=[benchmark],
        number=number,
        study=study,
        shared=[f"{key} = {value}" for key, value in study.shared_changes.items()],
        defaults=_list_defaults(data, benchmark),
    )


def _list_defaults(data: ReportData, benchmark: str) -> list[str]:
    """Return RAPID's parameters and those of all algorithms, with values as in "group_size = 8"."""
    params = data.params
    settings = RAPID.get_loss_parameters(params).model_dump()
    settings["n_step"] = params.benchmarks[benchmark].n_step
    for name in ("group_size", "epochs", "learning_rate"):
        settings[name] = getattr(params.training, name)
    return [f"{name} = {str(value).lower()}" for name, value in settings.items()]


# Time to an accuracy ------------------------------------------------------------------------------


def build_times_table(data: ReportData, study: StudyRuns, number: int) -> Table:
    """Return the times until each level of accuracy: rows of variants, columns of levels."""
    all_curves = [curve for by_seed in study.curves.values() for curve in by_seed.values()]
    levels = curves.choose_levels(all_curves)
    return build_table(
        "reach",
        data,
        sections=[[(study.label_variant(name), by_seed) for name, by_seed in study.curves.items()]],
        groups={"": {f"{100 * level:.0f}%": partial(_build_time_cells, level) for level in levels}},
        benchmarks=[study.runs.benchmark],
        number=number,
        study=study,
        seeds=data.params.studies.seeds,
        start=labels.describe_start_model(study.start),
        **collect_run_facts(study.runs.frame),
    )


def _build_time_cells(level: float, rows: list[dict[int, AccuracyCurve]]) -> list[Cell]:
    """Return the cell of each row: the mean time until a level, if all runs of the row reach it."""
    times_by_row = [
        [curve.seconds_to_reach(level) for curve in by_seed.values()] for by_seed in rows
    ]
    show = formats.choose_duration_format(
        np.mean(times) for times in times_by_row if times and None not in times
    )
    return [_build_time_cell(times, show) for times in times_by_row]


def _build_time_cell(times: list[float | None], show: Format) -> Cell:
    if not times:
        return Cell(MISSING, reason="no run has a curve")
    if never := times.count(None):
        return Cell(MISSING, reason=f"{never} of {len(times)} runs did not reach it")
    mean, n = np.mean(times), len(times)
    deviation = show(np.std(times, ddof=1)) if n > 1 else ""
    return Cell(show(mean), deviation, detail=f"n = {n} runs.")
