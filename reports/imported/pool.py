"""Collects the runs of several sources: folders with results of this pipeline, and CSV files."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rapid.artifacts.files import BadFile, describe_first_error
from rapid.artifacts.layout import EVALUATION, RUN, parse_folder
from rapid.artifacts.manifests import MANIFEST, Manifest
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.problem_source import (
    DIGITS,
    ProblemSource,
    build_declared_source,
    read_source,
)
from rapid.config.params import Params
from rapid.config.params_schema import BASE, Run
from reports.collect import collect_rows, is_evaluation_metric
from reports.contents import format_run_name
from reports.imported.scope import build_run
from reports.imported.table import read_table


@dataclass(frozen=True)
class StatedSource(ProblemSource):
    """Problems whose source is known only by the short name that a CSV file of runs states.

    The name is "" if none is stated, as by a folder of runs without data/.

    Args:
        file: the name of the CSV file, or the folder.
    """

    file: str = ""

    @property
    def label(self) -> str:
        """The benchmark and the stated name: MBPP+ (published)."""
        return f"{BENCHMARKS[self.benchmark].label} ({self.name or 'not stated'})"

    def describe(self) -> str:
        """Return the benchmark, the stated name, and the file that states it."""
        stated = f"{self.name}, as stated in" if self.name else "source of problems not stated in"
        return f"{BENCHMARKS[self.benchmark].label}: {stated} {self.file}"


@dataclass
class RunPool:
    """The runs of all sources.

    Args:
        rows: for each run, its row for the data frame of `reports.collect.collect_runs`.
        locations: the location of each run (folder, or file and line), for messages.
        problems: the source of each benchmark's problems.
        problem_locations: the location that states this source.
        folders: the folders that have been added.
        errors: messages on runs or problems that contradict each other.
    """

    rows: dict[Run, dict[str, Any]] = field(default_factory=dict)
    locations: dict[Run, str] = field(default_factory=dict)
    problems: dict[str, ProblemSource] = field(default_factory=dict)
    problem_locations: dict[str, str] = field(default_factory=dict)
    folders: list[Path] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def add_folder(self, folder: Path, params: Params | None, needed: Sequence[Run]) -> None:
        """Add the needed runs of a folder.

        Without params, which are then derived from the runs, all runs are added, except those of
        variants with changed parameters, whose names have a comma.
        """
        finished = _list_finished(folder)
        runs = [run for run in finished if (run in needed if params else "," not in run.algorithm)]
        problems: dict[str, ProblemSource] = {}
        for name in dict.fromkeys(run.benchmark for run in runs):
            problem_folder = folder / "data" / name
            if params or Manifest.read(problem_folder):
                # Without params the folder has a manifest, which names the source.
                declared = params.benchmarks[name].source if params else "embedded"
                problems[name] = read_source(name, problem_folder, declared)
            else:
                problems[name] = StatedSource(name, kind="folder", name="", file=str(folder))
            self._add_problems(problems[name], str(folder))
        rows = collect_rows(runs, root=Path(), locate_job=locate_in(folder), problems=problems)
        for run, row in zip(runs, rows, strict=True):
            self._add_run(run, row, str(folder))
        self.folders.append(folder)

    def add_csv(self, file: Path) -> None:
        """Add the runs in a CSV file."""
        for line, values in read_table(file):
            location, benchmark = f"{file}:{line}", values["benchmark"]
            problems: ProblemSource = StatedSource(
                benchmark, kind="file", name=values.pop("source", ""), file=file.name
            )
            if problems.name == "made":  # generated, as the "embedded" problems of the project are
                problems = build_declared_source(benchmark, "embedded")
            self._add_problems(problems, location)
            run = build_run(*(values[name] for name in Run.model_fields))
            # There are no folders of jobs in a file, so the row has no results yet.
            (empty_row,) = collect_rows(
                [run], root=Path(), locate_job=locate_in(file), problems={benchmark: problems}
            )
            reason = f"not stated in {file.name}"
            reasons = {
                "no_evaluation_reason": "" if any(map(is_evaluation_metric, values)) else reason,
                "no_summary_reason": "" if "runtime" in values else reason,
            }
            self._add_run(run, empty_row | values | reasons | {"csv_file": str(file)}, location)

    def _add_run(self, run: Run, row: dict[str, Any], location: str) -> None:
        """Add a run, and note an error if another source has it too.

        The model before training may be in several sources, if its scores are the same there.
        """
        first = self.rows.setdefault(run, row)
        is_same = first is row or (run.algorithm == BASE and row["scores"] == first["scores"] != {})
        if not is_same:
            name, first_location = format_run_name(run), self.locations[run]
            self.errors.append(f"{location}: {name} is in {first_location} too")
        self.locations.setdefault(run, location)

    def _add_problems(self, problems: ProblemSource, location: str) -> None:
        """Add a benchmark's problems, and note an error if another source has different ones.

        A source with digests (`prepared`) replaces one that is known by its label only.
        """
        first = self.problems.setdefault(problems.benchmark, problems)
        first_location = self.problem_locations.setdefault(problems.benchmark, location)
        if not is_same_source(problems, first):
            self.errors.append(
                f"{location}: source: the problems are {describe_source(problems)}, but "
                f"{first_location} has {describe_source(first)}; make a report for each"
            )
        if problems.prepared and not first.prepared:
            self.problems[problems.benchmark] = problems
            self.problem_locations[problems.benchmark] = location


def describe_source(source: ProblemSource) -> str:
    """Return the label of a source; if the problems are prepared, with their name and digests."""
    if not source.prepared:
        return repr(source.label)
    parts = {name: part[1] for name in ("train", "test") if (part := source.get_part(name))}
    digests = [f"{name}.jsonl {digest[:DIGITS]}" for name, digest in parts.items()]
    return f"{source.label!r} ({', '.join([source.name, *digests])})"


def is_same_source(first: ProblemSource, second: ProblemSource) -> bool:
    """Return whether two sources have the same problems.

    Their digests are compared, or their labels if a source has no digests.
    """
    if not (first.prepared and second.prepared):
        return first.label == second.label
    return all(first.get_part(name) == second.get_part(name) for name in ("train", "test"))


def locate_in(folder: Path) -> Callable[[str], str]:
    """Return a function from the name of a job to the job's folder."""
    return lambda job: str(folder / job)


def _list_finished(folder: Path) -> list[Run]:
    """Return the runs in a folder that a finished job has trained or evaluated."""
    runs: dict[Run, None] = {}
    for template in (RUN, EVALUATION):
        for manifest in sorted(folder.glob(f"{re.sub('{.*?}', '*', template)}/{MANIFEST}")):
            try:
                runs[_parse_run(manifest.parent.relative_to(folder).as_posix())] = None
            except ValueError as error:
                raise BadFile(
                    f"{manifest}: its folder is not that of a run of this project: {error}"
                ) from None
    if not runs:
        raise BadFile(f"{folder}: has no finished job in runs/ or evaluations/")
    return list(runs)


def _parse_run(folder: str) -> Run:
    """Return the run of a job's folder.

    Raises:
        ValueError: it is not the folder of a run.
    """
    _, names = parse_folder(folder)
    if not names["seed"].isdecimal():
        raise ValueError(f"seed: {names['seed']!r} is not a number")
    try:
        return Run(**names | {"seed": int(names["seed"])})
    except ValidationError as error:
        raise ValueError(describe_first_error(error, "the folder")) from None
