"""Reads runs that were made elsewhere, for a report: from folders of results, and from CSV files.

A folder has the runs/ and evaluations/ that this pipeline wrote on another server. A CSV file has a
line for each run (`table`). The runs become one data frame (`pool`), like the one that
`reports.collect` makes from the jobs in the working folder. The parameters determine the tables and
columns of the report; without a params.yaml they are derived from the runs (`scope`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from rapid.artifacts.code import Spec, hash_dependencies
from rapid.benchmarks.problem_source import ProblemSource, read_source
from rapid.config.params import load_files, validate
from rapid.config.params_schema import Run
from rapid.config.sources import read
from rapid.config.specs import add_base_runs, list_table_runs
from reports.collect import build_frame, collect_rows
from reports.contents import Content
from reports.imported.pool import RunPool, locate_in
from reports.imported.scope import PresentationParams, derive_params
from reports.imported.table import describe_columns, raise_errors
from reports.manifests import read_manifests
from reports.report_data import ReportData
from reports.tables.table import MISSING, NOT_APPLICABLE, Table

__all__ = [
    "ImportSpec",
    "describe_columns",
    "list_undrawable",
    "read_sources",
    "remove_empty_tables",
]
NO_SOURCE = "no source has this run"
# Name of a figure -> the column of the data frame from which it is drawn. A CSV file may lack this
# column. Of the other figures, tradeoff needs only accuracy and runtime, which every CSV file has,
# and the rest are drawn from files in the folders of runs.
FIGURE_COLUMNS = {
    "clipped": "clip_fraction",
    "length-and-time": "completion_length",
    "phases": "runtime.sampling",
}


class ImportSpec(Spec):
    """The spec of a report of runs that were made elsewhere."""

    sources: list[str]
    config: dict[str, Any]

    def hash_code_files(self) -> dict[str, str]:
        return hash_dependencies("reports", follow=("reports/",), for_reports=True)


@dataclass(frozen=True)
class ImportedRuns(ReportData):
    """`ReportData` for runs that were made elsewhere.

    Args:
        folders: the sources that are folders.
        problem_sources: the source of the problems of each benchmark.
        unused: runs that no table or figure shows.
    """

    folders: Sequence[Path]
    problem_sources: dict[str, ProblemSource]
    unused: Sequence[Run]

    @cached_property
    def problems(self) -> dict[str, ProblemSource]:
        return self.problem_sources

    @property
    def job_locators(self) -> list[Callable[[str], str]]:
        return [locate_in(folder) for folder in self.folders]

    def label_rows(self, algorithms: list[str]) -> dict[str, str]:
        """Return the labels as `ReportData` does, without algorithms that have no runs."""
        row_labels, shown = super().label_rows(algorithms), set(self.frame.algorithm)
        return {name: label for name, label in row_labels.items() if name in shown}


def read_sources(paths: Sequence[Path], config: Sequence[str] = ()) -> ImportedRuns:
    """Read the runs of these folders and CSV files.

    Args:
        config: parameter files. If they have all parameters, as params.yaml has, these determine
            which runs are shown. If they have only keys of `PresentationParams`, the other
            parameters are derived from the runs (`derive_params`).

    Raises:
        BadFile: a file is damaged or has wrong values, two sources have the same run, or two
            sources have different problems for the same benchmark.
        BadParams: as `load_files`.
    """
    settings, pool = read(*config), RunPool()
    is_complete = not settings.keys() <= PresentationParams.model_fields.keys()
    params: Any = load_files(*config) if is_complete else None
    needed = add_base_runs(params, list_table_runs(params)) if is_complete else []
    for source in paths:
        if source.is_dir():
            pool.add_folder(source, params, needed)
        else:
            pool.add_csv(source)
    raise_errors(pool.errors)
    if not is_complete:
        presentation = validate(PresentationParams, settings, *config)
        params = derive_params(pool.rows, presentation, _count_demonstrations(pool))
        algorithms = {run.algorithm for run in pool.rows}  # may lack BASE, the untrained model
        needed = [run for run in params.list_runs() if run.algorithm in algorithms]
    problems = {
        name: pool.problems.get(name) or read_source(name, paths[0] / "data" / name, spec.source)
        for name, spec in params.benchmarks.items()
    }
    absent = [run for run in needed if run not in pool.rows]
    # Rows without values. The reasons in them name files of the first source.
    rows = collect_rows(absent, root=Path(), locate_job=locate_in(paths[0]), problems=problems)
    if len(pool.folders) < len(paths):
        # A source is a CSV file. The usual reason, that a job wrote no file, would be wrong for it.
        reasons = {"no_evaluation_reason": NO_SOURCE, "no_summary_reason": NO_SOURCE}
        rows = [row | reasons for row in rows]
    row_by_run = pool.rows | dict(zip(absent, rows, strict=True))
    frame = build_frame((row_by_run[run] for run in needed), params)
    frame["label"] = frame.benchmark.map(lambda name: problems[name].label)
    shown = set(needed)
    unused = [run for run in pool.rows if run not in shown]
    return ImportedRuns(params, frame, Path(), pool.folders, problems, unused)


def _count_demonstrations(pool: RunPool) -> int:
    """Return how many demonstrations were generated for SFT; 0 if a teacher wrote them."""
    folders = [f"{folder}/distilled/{name}" for folder in pool.folders for name in pool.problems]
    manifests = read_manifests(Path(), folders).values()
    return max((manifest.get_spec_value("demonstrations", 0) for manifest in manifests), default=0)


# Tables and figures without data ------------------------------------------------------------------


def remove_empty_tables(content: Content) -> Content:
    """Return the contents without the tables that have no values."""

    def has_values(table: Table) -> bool:
        return any(cell.text not in (MISSING, NOT_APPLICABLE) for cell in table.iterate_cells())

    results, appendix = (
        list(filter(has_values, tables)) for tables in (content.results, content.appendix)
    )
    return replace(content, results=results, appendix=appendix)


def list_undrawable(figures: dict[str, Any], frame: pd.DataFrame) -> dict[str, str]:
    """Return the figures that cannot be drawn from these runs: name -> reason."""
    reasons = {}
    for name, figure in figures.items():
        column = FIGURE_COLUMNS.get(name)
        if column and frame[column].isna().all():
            reasons[name] = f"no run has {column}"
        elif not figure.sources:
            reasons[name] = "no run has the file that it is drawn from"
    return reasons
