"""Reads the result files of runs into one data frame: a row for each run, a column for each value.

A run without result files has a row too. Its values are NaN, and the column `no_evaluation_reason`
or `no_summary_reason` has the reason, which becomes a footnote of the tables.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from rapid.algorithms import RAPID, SFT
from rapid.algorithms.variant_names import parse_variant_name
from rapid.artifacts.evaluations import Evaluation
from rapid.artifacts.files import BadFile
from rapid.artifacts.manifests import MANIFEST, read_result
from rapid.artifacts.metrics import EVALUATION_METRICS
from rapid.artifacts.runs import RunSummary, Runtime
from rapid.benchmarks.problem_source import ProblemSource, read_source
from rapid.config.jobs import build_plan
from rapid.config.params import Params
from rapid.config.specs import BASE, Run, add_base_runs, list_table_runs
from reports.manifests import JobManifest, check_input_versions, read_manifests
from reports.statistics.pairs import PASS_AT

NOT_TRAINED = "not evaluated: the run's training is not finished"
# The parts of a training run's time: sampling, grading, ...
PHASES = [name for name in Runtime.model_fields if name != "total"]
# The numbers in summary.json, each of which becomes a column with the same name.
SUMMARY_NUMBERS = [
    name
    for name, field in RunSummary.model_fields.items()
    if field.annotation in (int, float, float | None) and name not in Run.model_fields
]


def collect_runs(
    params: Params, root: Path | str = ".", trained: list[Run] | None = None
) -> pd.DataFrame:
    """Return a data frame with a row for each run, and for each model before training.

    Args:
        root: the folder that contains runs/ and evaluations/.
        trained: the training runs; by default those that the tables need.

    Returns:
        A data frame with the columns
        benchmark, model, algorithm, seed: the run;
        H: optimizer steps per inference batch (RAPID only, else NaN);
        label: the benchmark and the kind of its problems, such as MATH (made);
        flawed: the ids of the benchmark's test problems whose statement has a known flaw;
        folder, evaluation: folders of the training and of its evaluation, below the root;
        pass@k for each k (from 0 to 1), problems, samples, temperature, top_p and
            EVALUATION_METRICS: from evaluation.json;
        scores: problem -> (graded samples, correct samples), from evaluation.json;
        runtime, runtime.PHASE for each of PHASES (seconds), SUMMARY_NUMBERS, hardware, commit: from
            summary.json;
        disturbed: whether other programs slowed down the last attempt of the run;
        reasons, evaluation_reasons: number of verdicts by their reason, in training and in the
            evaluation;
        no_evaluation_reason, no_summary_reason: why evaluation.json or summary.json has no values;
            "" if it has;
        examples: the completions that the report shows, from evaluation.json;
        sandbox_permissions: the permissions that training or evaluation had to grade without a
            sandbox, as keys of `grading` in params.yaml;
        start: the algorithm whose trained model the run started from; BASE for an untrained model;
        start_seed: the seed of that model's run; NaN if it is the seed of this run;
        accepted: whether `rapid accept` declared a job of the run current after a change of code;
        csv_file: the CSV file with the run's results (see `reports.imported`); "" if they are in
            the files of its jobs.

    Raises:
        BadFile: a file differs from what its job wrote, contradicts itself, belongs to another run,
            or was made from inputs that have changed.
    """
    needed = add_base_runs(params, list_table_runs(params) if trained is None else trained)
    root, locate_job = Path(root), build_plan(params, root).get_folder
    rows = collect_rows(needed, root, locate_job, read_problem_sources(params, root))
    return build_frame(rows, params)


def build_frame(rows: Iterable[dict[str, Any]], params: Params) -> pd.DataFrame:
    """Return a data frame of rows of `collect_rows`, with a column for each pass@k."""
    frame = pd.DataFrame(rows)
    names = {f"{PASS_AT}{k}" for spec in params.benchmarks.values() for k in spec.pass_at}
    return frame.reindex(columns=[*frame.columns, *sorted(names - {*frame.columns})])


def collect_rows(
    runs: Sequence[Run],
    root: Path,
    locate_job: Callable[[str], str],
    problems: Mapping[str, ProblemSource],
) -> list[dict[str, Any]]:
    """Return the rows of these runs, as `collect_runs` does.

    Args:
        locate_job: returns the folder of a job, below the root, by the job's name.
        problems: the source of the problems of each benchmark; see `read_problem_sources`.
    """
    manifests = read_manifests(root, map(locate_job, _list_job_names(runs)))
    check_input_versions(manifests)
    benchmark_columns = {
        name: {"label": source.label, "flawed": frozenset(source.get_flaws("test"))}
        for name, source in problems.items()
    }
    return [
        benchmark_columns[run.benchmark] | _build_row(run, root, locate_job, manifests)
        for run in runs
    ]


def read_problem_sources(params: Params, root: Path | str) -> dict[str, ProblemSource]:
    """Return the source of the problems of each benchmark, by the benchmark's name."""
    locate_job = build_plan(params, root).get_folder
    return {
        name: read_source(name, Path(root, locate_job(f"data/{name}")), benchmark.source)
        for name, benchmark in params.benchmarks.items()
    }


def _list_job_names(runs: Sequence[Run]) -> list[str]:
    """Return the names of the jobs that made these runs, and of the jobs that made their inputs."""
    names = [f"data/{run.benchmark}" for run in runs] + [f"models/{run.model}" for run in runs]
    names += [f"distilled/{run.benchmark}" for run in runs if SFT.matches_name(run.algorithm)]
    names += [run.folder for run in runs if run.algorithm != BASE]
    return list(dict.fromkeys([*names, *(run.evaluation for run in runs)]))


def is_evaluation_metric(metric: str) -> bool:
    """Return whether a metric is from evaluation.json; all others are from summary.json."""
    return metric.startswith(PASS_AT) or metric in EVALUATION_METRICS


def get_result_path(run: pd.Series, metric: str) -> str:
    """Return the path of the file that has a metric of a run, below the root."""
    if run["csv_file"]:
        return run["csv_file"]
    if is_evaluation_metric(metric):
        return f"{run['evaluation']}/evaluation.json"
    return f"{run['folder']}/summary.json"


def explain_missing(run: pd.Series, metric: str) -> str:
    """Return why `run[metric]` is NaN, as a clause for a footnote."""
    column = "no_evaluation_reason" if is_evaluation_metric(metric) else "no_summary_reason"
    return run[column] or f"{Path(get_result_path(run, metric)).name} has no finite {metric}"


def _build_row(
    run: Run,
    root: Path,
    locate_job: Callable[[str], str],
    manifests: dict[str, JobManifest],
) -> dict:
    """Return the row of a run, see `collect_rows`."""
    is_trained = run.algorithm != BASE  # the model before training has an evaluation only
    folder = locate_job(run.folder) if is_trained else run.folder
    evaluation_folder = locate_job(run.evaluation)
    folders = (folder, evaluation_folder)
    jobs = [job for name in folders if (job := manifests.get(f"{name}/{MANIFEST}"))]
    expected = _list_expected_values(
        run, manifests, evaluation_folder, locate_job(f"data/{run.benchmark}")
    )
    evaluation = _read_record(root / evaluation_folder / "evaluation.json", Evaluation, expected)
    # While a run is trained again, its evaluation is that of the earlier model.
    is_training = (
        is_trained and f"{folder}/{MANIFEST}" not in manifests and (root / folder).is_dir()
    )
    summary = None
    if is_trained:
        summary = _read_record(root / folder / "summary.json", RunSummary, run.model_dump())
    return {
        **run.model_dump(),
        "folder": folder,
        "evaluation": evaluation_folder,
        "csv_file": "",
        "H": float(parse_variant_name(run.algorithm).H)
        if RAPID.matches_name(run.algorithm)
        else math.nan,
        "sandbox_permissions": {layer for job in jobs for layer in job.sandbox_permissions},
        "accepted": any(job.accepted for job in jobs),
        "start": _get_training_value(jobs, "start") or BASE,
        "start_seed": _to_finite(_get_training_value(jobs, "start_seed")),
        **_build_evaluation_columns(evaluation, NOT_TRAINED if is_training else ""),
        **_build_summary_columns(summary),
    }


def _get_training_value(jobs: Sequence[JobManifest], key: str) -> Any:
    """Return a value of the section `training` from the first job that has it; else None."""
    values = (job.get_spec_value(f"training.{key}") for job in jobs)
    return next((value for value in values if value is not None), None)


def _list_expected_values(
    run: Run, manifests: dict[str, JobManifest], evaluation_folder: str, problems_folder: str
) -> dict[str, Any]:
    """Return the values that evaluation.json must have according to its jobs: field -> value."""
    folders = (evaluation_folder, problems_folder)
    evaluated, prepared = (manifests.get(f"{folder}/{MANIFEST}") for folder in folders)
    settings = dict(evaluated.spec.get("evaluation", {})) if evaluated else {}
    if prepared:
        settings["problems"] = prepared.get_spec_value("test")
    return settings | run.model_dump()


def _read_record(
    path: Path, record_type: type, expected_values: dict
) -> Evaluation | RunSummary | None:
    """Return the record in a result file; None if no finished job has written the file.

    Raises:
        BadFile: a field differs from `expected_values`. Of a record that has only a reason for
            missing values, just the fields that name the run are compared.
    """
    record = read_result(path, record_type)
    for name, expected in expected_values.items() if record else ():
        value = getattr(record, name, expected)
        if value != expected and (name in Run.model_fields or record.status == "ok"):
            raise BadFile(f"{path}: {name} is {value!r}, but the job's parameters say {expected!r}")
    return record


def _build_evaluation_columns(evaluation: Evaluation | None, reason: str = "") -> dict:
    """Return the columns of an evaluation, without values if there is a reason not to use it."""
    reason = reason or _explain_missing_record("evaluated", "evaluation.json", evaluation)
    usable = None if reason else evaluation
    names = ("problems", "samples", "temperature", "top_p", *EVALUATION_METRICS)
    pass_at = usable.pass_at if usable else {}
    return {
        "no_evaluation_reason": reason,
        **{f"{PASS_AT}{k}": _to_finite(share) for k, share in pass_at.items()},
        **{name: _to_finite(usable and getattr(usable, name)) for name in names},
        "scores": {s.id: (s.samples, s.correct) for s in usable.scores} if usable else {},
        "evaluation_reasons": usable.reasons if usable else {},
        "examples": usable.examples if usable else [],
    }


def _build_summary_columns(summary: RunSummary | None) -> dict:
    reason = _explain_missing_record("trained", "summary.json", summary)
    usable = None if reason else summary
    runtime = usable and usable.runtime
    return {
        "no_summary_reason": reason,
        "runtime": _to_finite(runtime and runtime.total),
        **{f"runtime.{phase}": _to_finite(runtime and getattr(runtime, phase)) for phase in PHASES},
        **{name: _to_finite(usable and getattr(usable, name)) for name in SUMMARY_NUMBERS},
        "disturbed": bool(usable and usable.disturbed),
        "reasons": usable.reasons if usable else {},
        "hardware": usable.hardware if usable else "",
        "commit": usable.commit if usable else "",
    }


def _explain_missing_record(verb: str, file: str, record: Evaluation | RunSummary | None) -> str:
    """Return why a record has no values, or "" if it has them."""
    if record is None:
        return f"not {verb}: no {file} of a finished job"
    if record.status == "unavailable":
        return f"not {verb}: {record.note.strip().rstrip('.') or f'{file} gives no reason'}"
    return ""


def _to_finite(value: float | None) -> float:
    """Return the value if it is finite, or else NaN; None gives NaN."""
    return value if value is not None and math.isfinite(value) else math.nan
