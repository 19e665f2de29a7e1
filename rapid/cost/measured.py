"""Measures a machine by the runs that were made on it, and are on disk.

Each phase takes a factor times the seconds that `rapid.cost.roofline` computes for it. The factor
is that of a model's runs together, RL and imitation apart; a model without runs has that of all.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import pandas as pd

from rapid.algorithms.names import parse
from rapid.artifacts.files import BadInput
from rapid.artifacts.manifests import Manifest, read_result, read_rows
from rapid.artifacts.runs import RunSummary, StepRecord
from rapid.config.jobs import build_plan
from rapid.config.params import Params
from rapid.config.specs import TrainSpec
from rapid.cost.expected import VERDICTS, Expected, expect
from rapid.cost.memory import job_memory, with_passes
from rapid.cost.roofline import Machine, unmeasured
from rapid.cost.shapes import Shape
from rapid.cost.work import Work, job_work, processes, subject, train_work

SCALED = ["sampling", "backpropagation", "sync", "other", "startup"]  # phases
FAR = 2  # times the size of the largest model that was run
SEEN, UNSEEN = ["length", "signal", "kept"], ["prompt", "spread"]  # fields of `Expected`


class RunManifest(Manifest):
    """The manifest of a run."""

    spec: TrainSpec


def read_runs(folder: Path | None, params: Params) -> pd.DataFrame:
    """Return all runs with a runtime below a folder, of models and benchmarks in params.yaml.

    Args:
        folder: by default that of the experiment's runs if it is there, else the default's.

    Returns:
        A row for each run: its spec, and what it took and showed.

    Raises:
        BadInput: there is none, they were made on more than one machine, or a manifest's
            parameters are not of the form that they have today.
    """
    of_experiment = Path(build_plan(params).root) / "runs"
    folder = folder or (of_experiment if of_experiment.is_dir() else Path("runs"))
    rows = [
        _read_run(path.parent, summary, params)
        for path in sorted(folder.rglob("summary.json"))
        if (summary := read_result(path, RunSummary)) and summary.runtime
        if summary.benchmark in params.benchmarks and summary.model in params.models
    ]
    if not rows:
        raise BadInput(
            f"--calibrate {folder}: it has no run, with a runtime, of the models and "
            "benchmarks in params.yaml. Make some (snakemake all_train), or name a GPU, "
            "such as --gpu a6000"
        )
    runs = pd.DataFrame(rows)
    if len(machines := sorted(runs.hardware.unique())) > 1:
        raise BadInput(
            f"--calibrate {folder}: it has runs of {len(machines)} machines "
            f"({'; '.join(machines)}); give a folder with runs of one machine"
        )
    return runs


def _read_run(folder: Path, summary: RunSummary, params: Params) -> dict[str, object]:
    spec = RunManifest.read(folder).spec
    if spec.passes.micro_batch == "auto":
        spec = with_passes(spec, max(1, summary.pass_completions))
    algorithm = parse(summary.algorithm).algorithm
    kept_share, resamples = nan, algorithm.rounds(spec.objective) > 1  # groups without signal
    signals = [step.signal for step in read_rows(folder / "steps.jsonl", StepRecord)]
    if algorithm.imitates:
        all_kept = job_work(spec, params, lambda *pair: Expected(1, 1, kept=1.0))
        kept_share = min(1.0, summary.optimizer_steps / all_kept.steps)
    return {
        **summary.model_dump(exclude={"runtime"}),
        **summary.runtime.model_dump(),
        "spec": spec,
        "imitates": algorithm.imitates,
        "length": summary.completion_length or nan,
        "signal": nan if resamples else pd.Series(signals, dtype=float).mean(),
        "kept": kept_share,
    }


def fit(runs: pd.DataFrame, shapes: Mapping[str, Shape], user: Mapping[str, float]) -> Machine:
    """Return the machine that runs were made on.

    Args:
        user: see `rapid.cost.expected.expect`. It tells of runs what they do not show.

    Raises:
        BadInput: there is no RL run among them.
    """
    if runs.imitates.all():
        raise BadInput(
            "--calibrate: the folder has no RL run, so the speed of sampling is unknown. "
            "Add one, or name a GPU, such as --gpu a6000"
        )
    means = _of_each_and_all(runs).groupby(["benchmark", "model"])[SEEN].mean()
    seen = {pair: row.dropna().to_dict() for pair, row in means.iterrows()}
    runs = runs.assign(work=[_count_work(run, seen, user) for run in runs.itertuples()])
    base = unmeasured(runs.spec.iloc[0].compute.device, shapes)
    machine = replace(
        base,
        verdict=VERDICTS | _verdicts(runs),
        base_memory=_base_memory(runs, shapes),
        scale=_scale(base, _of_each_and_all(runs)),
        seen=seen,
    )
    ratios = runs.work.map(machine.runtime) / runs.total
    not_run = [model for model in shapes if model not in set(runs.model)]
    largest = max(shapes[model].parameters for model in set(runs.model))
    far = [model for model in not_run if shapes[model].parameters > FAR * largest]
    notes = [
        f"measured in {len(runs)} runs on {runs.hardware.iloc[0] or 'a machine'}; the planned "
        f"runtime of a single run is {ratios.min():.2f} to {ratios.max():.2f} of the measured one",
        *([f"no runs of {', '.join(not_run)}: planned by size"] if not_run else []),
        *(
            [
                f"much larger than the models that were run: {', '.join(far)}; make short runs of "
                "them, or plan with --gpu"
            ]
            if far
            else []
        ),
    ]
    return replace(machine, notes=tuple(notes))


def _count_work(run: Any, seen: Mapping[tuple, Mapping], user: Mapping[str, float]) -> Work:
    """Return what a run did, with the share of groups that it recorded, as far as it is known."""
    unseen = {name: value for name, value in user.items() if name in UNSEEN}
    expected = expect(run.spec.max_completion_length, seen[run.benchmark, run.model], unseen)
    share = None if pd.isna(run.run) else run.run
    return train_work(run.spec, run.optimizer_steps, expected, share)


def _scale(machine: Machine, runs: pd.DataFrame) -> dict[tuple[str, bool], dict[str, float]]:
    """Return measured over computed seconds of each phase, all runs of a key together."""
    keys = [runs.model, runs.imitates]
    computed = pd.DataFrame(map(machine.seconds, runs.work))[SCALED]
    factors = runs[SCALED].groupby(keys).sum() / computed.groupby(keys).sum()
    return {key: row.fillna(1.0).to_dict() for key, row in factors.iterrows()}


def _verdicts(runs: pd.DataFrame) -> dict[str, float]:
    """Return seconds of a verdict, of those runs that do not sample meanwhile."""
    runs = runs[[not (work.streams or work.imitates) for work in runs.work]]
    graded = (runs.completions / runs.spec.map(processes)).groupby(runs.benchmark).sum()
    return (runs.grading.groupby(runs.benchmark).sum() / graded).to_dict()


def _base_memory(runs: pd.DataFrame, shapes: Mapping[str, Shape]) -> float:
    """Return the bytes of a process that its model does not explain; 0 where not measured."""
    explained = [
        job_memory(work.spec, shapes[subject(work.spec)[1]], work.expected).total
        for work in runs.work
    ]
    unexplained = (runs.peak_memory_mb * 1e6 - explained)[runs.peak_memory_mb > 0].median()
    return max(0.0, unexplained)  # 0 where nothing was measured and the median is NaN


def _of_each_and_all(runs: pd.DataFrame) -> pd.DataFrame:
    """Return runs, and once more as those of a model "", which stands for all."""
    return pd.concat([runs, runs.assign(model="")], ignore_index=True)
