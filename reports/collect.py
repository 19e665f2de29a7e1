"""Runs on disk become one data frame: a row for each run, and a column for each figure.

A run that left no file has a row too. Its figures are NaN, and `no_evaluation` or `no_summary` has
the reason, for footnotes of tables.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from rapid.algorithms import IMITATING, RAPID
from rapid.algorithms.names import parse
from rapid.artifacts.evaluations import Evaluation
from rapid.artifacts.files import BadFile
from rapid.artifacts.manifests import MANIFEST, read_result
from rapid.artifacts.runs import RunSummary, Runtime
from rapid.benchmarks.problem_source import ProblemSource, read_source
from rapid.config.jobs import build_plan
from rapid.config.params import Params
from rapid.config.specs import BASE, Run, add_base_runs, table_runs
from reports.manifests import JobManifest, check_chain, read_manifests

PHASES = [name for name in Runtime.model_fields if name != "total"]
# Every number of summary.json is a column of its own name.
MEASURES = [
    name
    for name, field in RunSummary.model_fields.items()
    if field.annotation in (int, float, float | None) and name not in Run.model_fields
]


def collect(
    params: Params, root: Path | str = ".", trained: list[Run] | None = None
) -> pd.DataFrame:
    """Return a data frame of these runs, or of every run that the tables need.

    Its columns are:
        benchmark, model, algorithm, seed: what names a run; H: of RAPID, else NaN.
        label: the benchmark and what its problems are.
        folder, evaluation: where training and evaluation lie, below the root.
        pass@k for each k (shares of 1), problems, samples, temperature, top_p: of evaluation.json.
        scores: problem -> samples that were graded, and how many of them are correct.
        runtime, runtime.PHASE (seconds), MEASURES, hardware, commit: of summary.json.
        disturbed: whether something else had the run's core, in its last attempt too.
        reasons, evaluation_reasons: reason -> verdicts, in training and in the evaluation.
        no_evaluation, no_summary: why a file has no figures; "" where it has.
        unwalled: the walls that were waived, by both manifests.
        start: the algorithm from whose run it started; BASE is the model before training.
        accepted: whether `rapid accept` took a job for current after a change of its code.
        table: the CSV file that has the run's figures; "" where they are in files of its jobs.

    Raises:
        BadFile: a file is not what its job wrote, contradicts itself, is of another run, or was
            made from other files than there are.
    """
    needed = add_base_runs(table_runs(params) if trained is None else trained)
    root, place = Path(root), build_plan(params, root).folder
    ks = {k for benchmark in params.benchmarks.values() for k in benchmark.pass_at}
    return pd.DataFrame(collect_rows(needed, root, place, problem_sources(params, root), ks))


def collect_rows(
    runs: Sequence[Run],
    root: Path,
    place: Callable[[str], str],
    problems: Mapping[str, ProblemSource],
    ks: Iterable[int] = (),
) -> list[dict[str, Any]]:
    """Return the rows of these runs, as `collect` does.

    Args:
        place: returns the folder of a job, below the root, by the job's name.
        ks: that have a column whatever the evaluations have.
    """
    manifests = read_manifests(root, map(place, _job_names(runs)))
    check_chain(manifests)
    return [
        {"label": problems[run.benchmark].label} | _row(run, root, ks, place, manifests)
        for run in runs
    ]


def problem_sources(params: Params, root: Path | str) -> dict[str, ProblemSource]:
    """Return what the problems of each benchmark are, and where they come from."""
    place = build_plan(params, root).folder
    return {
        name: read_source(name, Path(root, place(f"data/{name}")), benchmark.source)
        for name, benchmark in params.benchmarks.items()
    }


def _job_names(needed: Sequence[Run]) -> list[str]:
    """Return the names of the jobs of these runs, and of those whose files they read."""
    names = [f"data/{run.benchmark}" for run in needed] + [f"models/{run.model}" for run in needed]
    names += [f"distilled/{run.benchmark}" for run in needed if IMITATING.named(run.algorithm)]
    names += [run.folder for run in needed if run.algorithm != BASE]
    return list(dict.fromkeys([*names, *(run.evaluation for run in needed)]))


def of_evaluation(metric: str) -> bool:
    """Return whether a metric is from evaluation.json; the others are from summary.json."""
    return metric.startswith("pass@")


def file_of(run: pd.Series, metric: str) -> str:
    """Return the file that a metric of a run is from, below the root."""
    if run["table"]:
        return run["table"]
    if of_evaluation(metric):
        return f"{run['evaluation']}/evaluation.json"
    return f"{run['folder']}/summary.json"


def why_missing(run: pd.Series, metric: str) -> str:
    """Return the reason that `run[metric]` is NaN, as a clause for a footnote."""
    no_file = run["no_evaluation"] if of_evaluation(metric) else run["no_summary"]
    return no_file or f"{Path(file_of(run, metric)).name} has no finite {metric}"


def _row(
    run: Run,
    root: Path,
    ks: Iterable[int],
    place: Callable[[str], str],
    manifests: dict[str, JobManifest],
) -> dict:
    is_trained = run.algorithm != BASE  # a model before training has no run
    folder = place(run.folder) if is_trained else run.folder
    folders = {"folder": folder, "evaluation": place(run.evaluation)}
    jobs = [job for name in folders.values() if (job := manifests.get(f"{name}/{MANIFEST}"))]
    asked_for = _asked_for(run, manifests, folders["evaluation"], place(f"data/{run.benchmark}"))
    evaluation = _read(root / folders["evaluation"] / "evaluation.json", Evaluation, asked_for)
    summary = (
        _read(root / folder / "summary.json", RunSummary, run.model_dump()) if is_trained else None
    )
    return {
        **run.model_dump(),
        **folders,
        "table": "",
        "H": float(parse(run.algorithm).H) if RAPID.named(run.algorithm) else math.nan,
        "unwalled": {wall for job in jobs for wall in job.waived},
        "accepted": any(job.accepted for job in jobs),
        "start": next(filter(None, (job.value("training.start") for job in jobs)), BASE),
        **_evaluation_columns(evaluation, ks),
        **_summary_columns(summary),
    }


def _asked_for(run: Run, manifests: dict[str, JobManifest], evaluation: str, data: str) -> dict:
    """Return what the job of an evaluation was asked for, by the names in evaluation.json."""
    evaluated, prepared = (manifests.get(f"{folder}/{MANIFEST}") for folder in (evaluation, data))
    settings = dict(evaluated.spec.get("evaluation", {})) if evaluated else {}
    if prepared:
        settings["problems"] = prepared.value("test")
    return settings | run.model_dump()


def _read(path: Path, record_type: type, asked_for: dict) -> Evaluation | RunSummary | None:
    """Return the record in a file of a run, after checking that it is what its job was to do."""
    record = read_result(path, record_type)
    for name, expected in asked_for.items() if record else ():
        value = getattr(record, name, expected)
        if value != expected and (name in Run.model_fields or record.status == "ok"):
            raise BadFile(
                f"{path}: {name}: {value!r} is not what its job was asked for, {expected!r}"
            )
    return record


def _evaluation_columns(evaluation: Evaluation | None, ks: Iterable[int]) -> dict:
    reason = _why_not("evaluated", "evaluation.json", evaluation)
    usable = None if reason else evaluation
    settings = ("problems", "samples", "temperature", "top_p")
    pass_at = dict.fromkeys(sorted(ks)) | (usable.pass_at if usable else {})
    return {
        "no_evaluation": reason,
        **{f"pass@{k}": _finite(share) for k, share in pass_at.items()},
        **{name: _finite(usable and getattr(usable, name)) for name in settings},
        "scores": {s.id: (s.samples, s.correct) for s in usable.scores} if usable else {},
        "evaluation_reasons": usable.reasons if usable else {},
    }


def _summary_columns(summary: RunSummary | None) -> dict:
    reason = _why_not("trained", "summary.json", summary)
    usable = None if reason else summary
    runtime = usable and usable.runtime
    return {
        "no_summary": reason,
        "runtime": _finite(runtime and runtime.total),
        **{f"runtime.{phase}": _finite(runtime and getattr(runtime, phase)) for phase in PHASES},
        **{name: _finite(usable and getattr(usable, name)) for name in MEASURES},
        "disturbed": bool(usable and usable.disturbed),
        "reasons": usable.reasons if usable else {},
        "hardware": usable.hardware if usable else "",
        "commit": usable.commit if usable else "",
    }


def _why_not(done: str, file: str, record: Evaluation | RunSummary | None) -> str:
    """Return why a record has no figures, or "" where it has."""
    if record is None:
        return f"not {done}: no {file} of a finished job"
    if record.status == "unavailable":
        return f"not {done}: {record.note.strip().rstrip('.') or f'{file} gives no reason'}"
    return ""


def _finite(value: float | None) -> float:
    """Return the value, with one spelling for all that is not a number: NaN, as pandas has it."""
    return value if value is not None and math.isfinite(value) else math.nan
