"""Reads the result files of runs into one data frame: a row for each run, a column for each value.

A run without result files has a row too. Its values are NaN, and the column `no_evaluation` or
`no_summary` has the reason, which becomes a footnote of the tables.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from rapid.algorithms import RAPID, SFT
from rapid.algorithms.variant_names import parse
from rapid.artifacts.evaluations import Evaluation
from rapid.artifacts.files import BadFile
from rapid.artifacts.manifests import MANIFEST, read_result
from rapid.artifacts.metrics import EVALUATION_METRICS
from rapid.artifacts.runs import RunSummary, Runtime
from rapid.benchmarks.problem_source import ProblemSource, read_source
from rapid.config.jobs import build_plan
from rapid.config.params import Params
from rapid.config.specs import BASE, Run, add_base_runs, list_table_runs
from reports.manifests import JobManifest, check_chain, read_manifests
from reports.statistics.pairs import PASS_AT

# The parts of a training run's time: sampling, grading, ...
PHASES = [name for name in Runtime.model_fields if name != "total"]
# The numbers in summary.json, each of which becomes a column with the same name.
MEASURES = [
    name
    for name, field in RunSummary.model_fields.items()
    if field.annotation in (int, float, float | None) and name not in Run.model_fields
]


def collect(
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
        label: the benchmark and the kind of its problems, MATH (made);
        flawed: the ids of its test problems whose statement has a known flaw;
        folder, evaluation: folders of the training and of its evaluation, below the root;
        pass@k for each k (shares of 1), problems, samples, temperature, top_p and
            EVALUATION_METRICS: from evaluation.json;
        scores: problem -> (graded samples, correct samples), from evaluation.json;
        runtime, runtime.PHASE (both in seconds), MEASURES, hardware, commit: from summary.json;
        disturbed: whether other programs slowed down the last attempt of the run;
        reasons, evaluation_reasons: reason of a verdict -> number of verdicts, in training and in
            the evaluation;
        no_evaluation, no_summary: why evaluation.json or summary.json has no values, else "";
        examples: the completions that the report shows, from evaluation.json;
        unwalled: the sandbox layers that training or evaluation was allowed to do without, as keys
            of `grading` in params.yaml;
        start: the algorithm whose trained model the run started from, or BASE;
        accepted: whether `rapid accept` declared one of its jobs current after a change of code.
        table: the CSV file that has the run's results (see `reports.imported`); "" if they are in
            the files of its jobs.

    Raises:
        BadFile: a file differs from what its job wrote, contradicts itself, belongs to another run,
            or was made from inputs that have changed.
    """
    needed = add_base_runs(list_table_runs(params) if trained is None else trained)
    root, place = Path(root), build_plan(params, root).get_folder
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
        ks: values of k for which there is a column pass@k even if no evaluation has pass@k.
    """
    manifests = read_manifests(root, map(place, _job_names(runs)))
    check_chain(manifests)
    of_benchmark = {
        name: {"label": source.label, "flawed": frozenset(source.get_flaws("test"))}
        for name, source in problems.items()
    }
    return [of_benchmark[run.benchmark] | _row(run, root, ks, place, manifests) for run in runs]


def problem_sources(params: Params, root: Path | str) -> dict[str, ProblemSource]:
    """Return the source of the problems of each benchmark, by the benchmark's name."""
    place = build_plan(params, root).get_folder
    return {
        name: read_source(name, Path(root, place(f"data/{name}")), benchmark.source)
        for name, benchmark in params.benchmarks.items()
    }


def _job_names(needed: Sequence[Run]) -> list[str]:
    """Return the names of the jobs that made these runs, and of the jobs before them."""
    names = [f"data/{run.benchmark}" for run in needed] + [f"models/{run.model}" for run in needed]
    names += [f"distilled/{run.benchmark}" for run in needed if SFT.matches_name(run.algorithm)]
    names += [run.folder for run in needed if run.algorithm != BASE]
    return list(dict.fromkeys([*names, *(run.evaluation for run in needed)]))


def of_evaluation(metric: str) -> bool:
    """Return whether a metric is from evaluation.json; all others are from summary.json."""
    return metric.startswith(PASS_AT) or metric in EVALUATION_METRICS


def file_of(run: pd.Series, metric: str) -> str:
    """Return the path of the file that has a metric of a run, below the root."""
    if run["table"]:
        return run["table"]
    if of_evaluation(metric):
        return f"{run['evaluation']}/evaluation.json"
    return f"{run['folder']}/summary.json"


def why_missing(run: pd.Series, metric: str) -> str:
    """Return why `run[metric]` is NaN, as a clause for a footnote."""
    no_file = run["no_evaluation"] if of_evaluation(metric) else run["no_summary"]
    return no_file or f"{Path(file_of(run, metric)).name} has no finite {metric}"


def _row(
    run: Run,
    root: Path,
    ks: Iterable[int],
    place: Callable[[str], str],
    manifests: dict[str, JobManifest],
) -> dict:
    """Return the row of a run.

    Args:
        place: returns the folder of a job, by its name.
        manifests: by path.
    """
    is_trained = run.algorithm != BASE  # the model before training has an evaluation only
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
        "H": float(parse(run.algorithm).H) if RAPID.matches_name(run.algorithm) else math.nan,
        "unwalled": {wall for job in jobs for wall in job.waived},
        "accepted": any(job.accepted for job in jobs),
        "start": next(filter(None, (job.value("training.start") for job in jobs)), BASE),
        **_evaluation_columns(evaluation, ks),
        **_summary_columns(summary),
    }


def _asked_for(run: Run, manifests: dict[str, JobManifest], evaluation: str, data: str) -> dict:
    """Return the values that evaluation.json must have by the specs of its jobs: field -> value.

    Args:
        evaluation, data: the folders of the evaluation and of the benchmark's problems.
    """
    evaluated, prepared = (manifests.get(f"{folder}/{MANIFEST}") for folder in (evaluation, data))
    settings = dict(evaluated.spec.get("evaluation", {})) if evaluated else {}
    if prepared:
        settings["problems"] = prepared.value("test")
    return settings | run.model_dump()


def _read(path: Path, record_type: type, asked_for: dict) -> Evaluation | RunSummary | None:
    """Return the record in a result file; None if no finished job has written the file.

    Raises:
        BadFile: a field differs from `asked_for`.
    """
    record = read_result(path, record_type)
    for name, expected in asked_for.items() if record else ():
        value = getattr(record, name, expected)
        if value != expected and (name in Run.model_fields or record.status == "ok"):
            raise BadFile(f"{path}: {name} is {value!r}, but the job's parameters say {expected!r}")
    return record


def _evaluation_columns(evaluation: Evaluation | None, ks: Iterable[int]) -> dict:
    reason = _why_not("evaluated", "evaluation.json", evaluation)
    usable = None if reason else evaluation
    names = ("problems", "samples", "temperature", "top_p", *EVALUATION_METRICS)
    pass_at = dict.fromkeys(sorted(ks)) | (usable.pass_at if usable else {})
    return {
        "no_evaluation": reason,
        **{f"pass@{k}": _finite(share) for k, share in pass_at.items()},
        **{name: _finite(usable and getattr(usable, name)) for name in names},
        "scores": {s.id: (s.samples, s.correct) for s in usable.scores} if usable else {},
        "evaluation_reasons": usable.reasons if usable else {},
        "examples": usable.examples if usable else [],
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
    """Return why a record has no values, or "" if it has them.

    Args:
        done: what the job does, "trained" or "evaluated".
    """
    if record is None:
        return f"not {done}: no {file} of a finished job"
    if record.status == "unavailable":
        return f"not {done}: {record.note.strip().rstrip('.') or f'{file} gives no reason'}"
    return ""


def _finite(value: float | None) -> float:
    """Return a finite value as it is, and NaN for None, NaN and infinity."""
    return value if value is not None and math.isfinite(value) else math.nan
