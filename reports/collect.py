"""Runs on disk become one data frame: a row for each run, and a column for each figure.

A run that left no file has a row too. Its figures are NaN, and `no_evaluation` or `no_summary` says
why, so that a table can say it.
"""

import math
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from rapid.algorithms import RAPID
from rapid.algorithms.names import parse
from rapid.artifacts.evaluations import Evaluation
from rapid.artifacts.runs import RunSummary, Runtime
from rapid.config.jobs import plan
from rapid.config.params import Params
from rapid.config.specs import BASE, Run, evaluated, runs
from rapid.stages.evaluate import mean_pass_at_k
from reports.files import BadRun, read, read_manifests

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
        folder, evaluation: where training and evaluation lie, below the root.
        pass@k for each k (shares of 1), problems, samples, temperature, top_p: of evaluation.json.
        scores: problem -> samples that were graded, and how many of them are correct.
        runtime, runtime.PHASE (seconds), MEASURES, hardware, commit: of summary.json.
        disturbed: whether something else had the run's core, in its last attempt too.
        reasons, evaluation_reasons: reason -> verdicts, in training and in the evaluation.
        no_evaluation, no_summary: why a file has no figures; "" where it has.
        unwalled: the walls that were waived, by both manifests.
        accepted: whether `rapid accept` took a job for current after a change of its code.

    Raises:
        BadRun: a file cannot be read as its record, describes another run, or has a pass@k that
            does not follow from its scores.
    """
    ks = sorted({k for benchmark in params.benchmarks.values() for k in benchmark.pass_at})
    wanted = evaluated(runs(params) if trained is None else trained)
    place = plan(params, root).folder
    return pd.DataFrame([_row(run, Path(root), ks, place) for run in wanted])


def of_evaluation(metric: str) -> bool:
    """Return whether a metric is from evaluation.json; the others are from summary.json."""
    return metric.startswith("pass@")


def file_of(run: pd.Series, metric: str) -> str:
    """Return the file that a metric of a run is from, below the root."""
    if of_evaluation(metric):
        return f"{run['evaluation']}/evaluation.json"
    return f"{run['folder']}/summary.json"


def why_missing(run: pd.Series, metric: str) -> str:
    """Return the reason that `run[metric]` is NaN, as a clause for a footnote."""
    no_file = run["no_evaluation"] if of_evaluation(metric) else run["no_summary"]
    return no_file or f"{Path(file_of(run, metric)).name} has no finite {metric}"


def _row(run: Run, root: Path, ks: list[int], place: Callable[[str], str]) -> dict:
    trains = run.algorithm != BASE  # a model before training has no run
    folder = place(run.folder) if trains else run.folder
    places = {"folder": folder, "evaluation": place(run.evaluation)}
    evaluation = _read(root / places["evaluation"] / "evaluation.json", Evaluation, run)
    summary = None
    if trains:
        summary = _read(root / places["folder"] / "summary.json", RunSummary, run)
    manifests = read_manifests(root, places.values()).values()
    return {
        **run.model_dump(),
        **places,
        "H": float(parse(run.algorithm).H) if RAPID.named(run.algorithm) else math.nan,
        "unwalled": {wall for manifest in manifests for wall in manifest.waived},
        "accepted": any(manifest.accepted for manifest in manifests),
        **_evaluation_columns(evaluation, ks),
        **_summary_columns(summary),
    }


def _read(path: Path, record: type, run: Run) -> Evaluation | RunSummary | None:
    """Return what a file of a run has, after checking that it is of this run."""
    found = read(path, record)
    if found is None:
        return None
    for name, expected in run.model_dump().items():
        value = getattr(found, name)
        if value != expected:
            raise BadRun(f"{path}: {name}: {value!r} is in the file, its folder says {expected!r}")
    if record is Evaluation and found.status == "ok" and found.scores:
        _check(path, found)
    return found


def _check(path: Path, evaluation: Evaluation) -> None:
    """Check that accuracies follow from the verdicts; else one of the two was changed."""
    for k, share in evaluation.pass_at.items():
        found = mean_pass_at_k(evaluation.scores, k)
        if found is not None and math.isfinite(share) and abs(found - share) > 1e-6:
            raise BadRun(f"{path}: pass_at: {share} at k = {k}, but its scores give {found}")


def _evaluation_columns(evaluation: Evaluation | None, ks: list[int]) -> dict:
    reason = _why_not("evaluated", "evaluation.json", evaluation)
    known = None if reason else evaluation
    settings = ("problems", "samples", "temperature", "top_p")
    return {
        "no_evaluation": reason,
        **{f"pass@{k}": _finite(known and known.pass_at.get(k)) for k in ks},
        **{name: _finite(known and getattr(known, name)) for name in settings},
        "scores": {s.id: (s.samples, s.correct) for s in known.scores} if known else {},
        "evaluation_reasons": known.reasons if known else {},
    }


def _summary_columns(summary: RunSummary | None) -> dict:
    reason = _why_not("trained", "summary.json", summary)
    known = None if reason else summary
    runtime = known and known.runtime
    return {
        "no_summary": reason,
        "runtime": _finite(runtime and runtime.total),
        **{f"runtime.{phase}": _finite(runtime and getattr(runtime, phase)) for phase in PHASES},
        **{name: _finite(known and getattr(known, name)) for name in MEASURES},
        "disturbed": bool(known and known.disturbed),
        "reasons": known.reasons if known else {},
        "hardware": known.hardware if known else "",
        "commit": known.commit if known else "",
    }


def _why_not(done: str, file: str, record: Evaluation | RunSummary | None) -> str:
    """Return why a record has no figures, or "" where it has."""
    if record is None:
        return f"not {done}: {file} is missing"
    if record.status == "unavailable":
        return f"not {done}: {record.note.strip().rstrip('.') or f'{file} gives no reason'}"
    return ""


def _finite(value: float | None) -> float:
    """Return the value, with one spelling for all that is not a number: NaN, as pandas has it."""
    return value if value is not None and math.isfinite(value) else math.nan
