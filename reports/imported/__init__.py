"""Runs that were made elsewhere, as the source of a report: folders of results, and CSV files.

A folder has the runs/ and evaluations/ that this pipeline wrote on another server. A CSV file has a
line for each run (`table`). The runs become one data frame (`pool`), like the one that
`reports.collect` makes of the jobs in the working folder. Which tables and columns the report has
follows from the runs (`scope`), or from params.yaml if it is given.
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
from rapid.config.sections import Run
from rapid.config.sources import read
from rapid.config.specs import add_base_runs, list_table_runs
from reports.collect import collect_rows
from reports.contents import Content
from reports.imported.pool import RunPool, locate_in
from reports.imported.scope import PaperParams, derive_params
from reports.imported.table import describe_columns, raise_errors
from reports.manifests import read_manifests
from reports.measured import Measured
from reports.tables.table import MISSING, NOT_APPLICABLE, Table

__all__ = ["ImportSpec", "describe_columns", "leave_out_empty", "list_undrawable", "read_sources"]
NO_SOURCE = "no source has this run"
# Figure -> the column of the data frame that it is drawn from, and that a CSV file may lack. All
# other figures are drawn from files in the folders of runs.
DRAWN_FROM = {
    "clipped": "clip_fraction",
    "length-and-time": "completion_length",
    "phases": "runtime.sampling",
}


class ImportSpec(Spec):
    """The spec of a report of runs that were made elsewhere."""

    sources: list[str]
    config: dict[str, Any]

    def hash_code_files(self) -> dict[str, str]:
        return hash_dependencies("reports", follow=("reports/",), with_report_attributes=True)


@dataclass(frozen=True)
class ImportedRuns(Measured):
    """`Measured` for runs that were made elsewhere.

    Args:
        folders: the folders among the sources.
        problem_sources: the source of the problems of each benchmark.
        unused: runs that the sources have, and that no table or figure shows.
    """

    folders: Sequence[Path]
    problem_sources: dict[str, ProblemSource]
    unused: Sequence[Run]

    @cached_property
    def problems(self) -> dict[str, ProblemSource]:
        return self.problem_sources

    @property
    def places(self) -> list[Callable[[str], str]]:
        return [locate_in(folder) for folder in self.folders]

    def rows(self, algorithms: list[str]) -> dict[str, str]:
        """Return labels as `Measured` does, but of the model before training only if it was run."""
        labelled, shown = super().rows(algorithms), set(self.frame.algorithm)
        return {name: label for name, label in labelled.items() if name in shown}


def read_sources(paths: Sequence[Path], config: Sequence[str] = ()) -> ImportedRuns:
    """Read the runs of these folders and CSV files.

    Args:
        config: parameter files. With all parameters, like params.yaml, they decide which runs are
            shown. With keys of `PaperParams` only, the runs themselves decide.

    Raises:
        BadFile: a file is damaged or has wrong values, or two sources have the same run, or
            different problems for the same benchmark.
        BadParams: as `load_files`.
    """
    settings, pool = read(*config), RunPool()
    is_complete = not settings.keys() <= PaperParams.model_fields.keys()
    params: Any = load_files(*config) if is_complete else None
    needed = add_base_runs(list_table_runs(params)) if is_complete else []
    for source in paths:
        if source.is_dir():
            pool.add_folder(source, params, needed)
        else:
            pool.add_csv(source)
    raise_errors(pool.errors)
    if not is_complete:
        paper = validate(PaperParams, settings, *config)
        params = derive_params(pool.rows, paper, _count_demonstrations(pool))
        algorithms = {run.algorithm for run in pool.rows}
        needed = [run for run in params.list_runs() if run.algorithm in algorithms]
    problems = {
        name: pool.problems.get(name) or read_source(name, paths[0] / "data" / name, sizes.source)
        for name, sizes in params.benchmarks.items()
    }
    absent = [run for run in needed if run not in pool.rows]
    rows = collect_rows(absent, Path(), locate_in(paths[0]), problems)
    if len(pool.folders) < len(paths):
        rows = [row | {"no_evaluation": NO_SOURCE, "no_summary": NO_SOURCE} for row in rows]
    by_run = pool.rows | dict(zip(absent, rows, strict=True))
    frame = pd.DataFrame([by_run[run] for run in needed])
    frame["label"] = frame.benchmark.map(lambda name: problems[name].label)
    accuracies = {f"pass@{k}" for sizes in params.benchmarks.values() for k in sizes.pass_at}
    frame = frame.reindex(columns=[*frame.columns, *sorted(accuracies - {*frame.columns})])
    shown = set(needed)
    unused = [run for run in pool.rows if run not in shown]
    return ImportedRuns(params, frame, Path(), pool.folders, problems, unused)


def _count_demonstrations(pool: RunPool) -> int:
    """Return how many demonstrations were made for imitation; 0 if a teacher wrote them."""
    folders = [f"{folder}/distilled/{name}" for folder in pool.folders for name in pool.problems]
    manifests = read_manifests(Path(), folders).values()
    return max((manifest.value("demonstrations", 0) for manifest in manifests), default=0)


# Tables and figures without data ------------------------------------------------------------------


def leave_out_empty(content: Content) -> Content:
    """Return the contents without the tables that have no values."""

    def has_figure(table: Table) -> bool:
        return any(cell.text not in (MISSING, NOT_APPLICABLE) for cell in table.cells())

    results, appendix = (
        list(filter(has_figure, tables)) for tables in (content.results, content.appendix)
    )
    return replace(content, results=results, appendix=appendix)


def list_undrawable(figures: dict[str, Any], frame: pd.DataFrame) -> dict[str, str]:
    """Return the figures that cannot be drawn from these runs: name -> reason."""
    reasons = {}
    for name, figure in figures.items():
        column = DRAWN_FROM.get(name)
        if column and frame[column].isna().all():
            reasons[name] = f"no run has {column}"
        elif not figure.sources:
            reasons[name] = "no run has the file that it is drawn from"
    return reasons
