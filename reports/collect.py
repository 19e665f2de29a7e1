"""Runs on disk become one data frame, a row a run.

A run that left no file is still a row: its figures are NaN, and `no_evaluation` or `no_summary`
says why, so that a table can say it too.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pandas as pd
from pydantic import ValidationError

from rapid.algorithms import RAPID
from rapid.algorithms.names import parse
from rapid.artifacts.evaluations import Evaluation
from rapid.artifacts.files import Record
from rapid.artifacts.manifests import MANIFEST
from rapid.artifacts.runs import RunSummary
from rapid.config.jobs import plan
from rapid.config.params import Params
from rapid.config.specs import BASE, Run, evaluated, evaluations
from rapid.grading.policy import Grading
from rapid.stages.evaluate import mean_pass_at_k

R = TypeVar("R", bound=Record)

PHASES = ("sampling", "grading", "backpropagation", "sync", "other", "startup")
MEASURES = (
    "staleness",
    "clip_fraction",
    "completion_length",
    "optimizer_steps",
    "reward_first",
    "reward_last",
    "peak_memory_mb",
)


class BadRun(ValueError):
    """A file of a run is there but is not what its place says. The message begins with its path."""


def collect(
    params: Params, root: Path | str = ".", trained: list[Run] | None = None
) -> pd.DataFrame:
    """Read these runs, or every run that the tables need.

    Columns: benchmark, model, algorithm, seed, H (of RAPID, else NaN); from evaluation.json a
    column `pass@k` for each k (shares of 1), problems, samples, temperature, top_p, scores
    (problem -> samples that were graded and how many of them are correct) and evaluation_reasons
    (reason -> verdicts); from summary.json reasons, likewise in training, runtime and
    `runtime.<phase>` (seconds), staleness, clip_fraction, completion_length (tokens, in training),
    ..., hardware and commit; no_evaluation and no_summary ("" where the file was read); the paths
    of both files below the root; and from both manifests unwalled: which walls were waived.

    Raises:
        BadRun: a file cannot be read as its record, describes another run, or has a pass@k that
            does not follow from its scores.
    """
    ks = sorted({k for benchmark in params.benchmarks.values() for k in benchmark.pass_at})
    wanted = evaluations(params) if trained is None else evaluated(trained)
    place = plan(params, root).folder
    return pd.DataFrame([_row(run, Path(root), ks, place) for run in wanted])


def of_evaluation(metric: str) -> bool:
    """Whether a metric is from evaluation.json; the others are from summary.json."""
    return metric.startswith("pass@")


def why_missing(row: pd.Series, metric: str) -> str:
    """The reason that `row[metric]` is NaN, as a clause for a footnote."""
    file = "evaluation.json" if of_evaluation(metric) else "summary.json"
    no_file = row["no_evaluation"] if of_evaluation(metric) else row["no_summary"]
    return no_file or f"{file} has no finite {metric}"


def _row(run: Run, root: Path, ks: list[int], place: Callable[[str], str]) -> dict:
    trains = run.algorithm != BASE
    evaluation_folder = place(run.evaluation)
    folder = place(run.folder) if trains else run.folder  # a model before training has no run
    evaluated, trained = f"{evaluation_folder}/evaluation.json", f"{folder}/summary.json"
    evaluation = _read(root / evaluated, Evaluation, run)
    summary = _read(root / trained, RunSummary, run) if trains else None
    _check(root / evaluated, evaluation)
    return {
        **run.model_dump(),
        "H": _batches(run.algorithm),
        "evaluation_path": evaluated,
        "summary_path": trained,
        "unwalled": _unwalled(root / evaluation_folder) | _unwalled(root / folder),
        **_evaluation_columns(evaluation, ks),
        **_summary_columns(summary),
    }


def _read(path: Path, record: type[R], run: Run) -> R | None:
    """One JSON document, or `None` where there is no such file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BadRun(f"{path}: cannot be read: {error}") from None
    try:
        value = record.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the document"
        raise BadRun(f"{path}: {field}: {first['msg']}") from None
    for name, expected in run.model_dump().items():
        found = getattr(value, name)
        if found != expected:
            raise BadRun(f"{path}: {name}: {found!r} is in the file, its folder says {expected!r}")
    return value


def waived(spec: dict) -> set[str]:
    """The walls that a job was allowed to do without, by the keys of params.yaml's grading."""
    return set(Grading.model_validate(spec.get("grading", {})).given_up)


def _unwalled(folder: Path) -> set[str]:
    path = folder / MANIFEST
    try:
        return waived(json.loads(path.read_text(encoding="utf-8"))["spec"])
    except FileNotFoundError:
        return set()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadRun(f"{path}: not a manifest: {error!r}") from None


def _evaluation_columns(evaluation: Evaluation | None, ks: list[int]) -> dict:
    reason = _why_not("evaluated", "evaluation.json", evaluation)
    pass_at = {} if reason else evaluation.pass_at
    settings = ("problems", "samples", "temperature", "top_p")
    return {
        "no_evaluation": reason,
        **{f"pass@{k}": _finite(pass_at.get(k)) for k in ks},
        **{name: math.nan if reason else getattr(evaluation, name) for name in settings},
        "scores": {} if reason else {s.id: (s.samples, s.correct) for s in evaluation.scores},
        "evaluation_reasons": {} if reason else evaluation.reasons,
    }


def _check(path: Path, evaluation: Evaluation | None) -> None:
    """Accuracies are what the verdicts give; else one of the two was changed."""
    if evaluation is None or evaluation.status != "ok" or not evaluation.scores:
        return
    for k, share in evaluation.pass_at.items():
        found = mean_pass_at_k(evaluation.scores, k)
        if found is not None and math.isfinite(share) and abs(found - share) > 1e-6:
            raise BadRun(f"{path}: pass_at: {share} at k = {k}, but its scores give {found}")


def _summary_columns(summary: RunSummary | None) -> dict:
    reason = _why_not("trained", "summary.json", summary)
    runtime = None if reason else summary.runtime
    return {
        "no_summary": reason,
        "runtime": _finite(runtime and runtime.total),
        **{f"runtime.{phase}": _finite(runtime and getattr(runtime, phase)) for phase in PHASES},
        **{name: math.nan if reason else _finite(getattr(summary, name)) for name in MEASURES},
        "reasons": {} if reason else summary.reasons,
        "hardware": "" if reason else summary.hardware,
        "commit": "" if reason else summary.commit,
    }


def _why_not(done: str, file: str, record: Evaluation | RunSummary | None) -> str:
    """Why a record has no figures, or "" where it has."""
    if record is None:
        return f"not {done}: {file} is missing"
    if record.status == "unavailable":
        return f"not {done}: {record.note.strip().rstrip('.') or f'{file} gives no reason'}"
    return ""


def _finite(value: float | None) -> float:
    """The value, with one spelling for all that is not a number: NaN, as pandas has it."""
    return value if value is not None and math.isfinite(value) else math.nan


def _batches(algorithm: str) -> float:
    """H of RAPID, NaN of the others."""
    return float(parse(algorithm).H) if RAPID.named(algorithm) else math.nan
