"""Calibrates estimates with finished training runs of one machine.

The estimated seconds of a phase are multiplied by a factor: the measured seconds of earlier runs,
divided by those that `rapid.cost.roofline` computes. A factor is fitted to all runs of a model
together, separately for RL and for SFT. A model without runs gets the factor of all models.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import pandas as pd

from rapid.artifacts.files import BadInput
from rapid.artifacts.manifests import Manifest, read_result, read_rows
from rapid.artifacts.runs import RunSummary, StepRecord
from rapid.config.jobs import build_plan
from rapid.config.params import Params
from rapid.config.specs import TrainSpec
from rapid.cost.expected import DEFAULT_VERDICT_SECONDS, Expected, expect
from rapid.cost.memory import estimate_job_memory, set_micro_batch
from rapid.cost.roofline import Machine, build_default_machine
from rapid.cost.shapes import Shape
from rapid.cost.work import (
    Work,
    count_job_work,
    count_processes,
    count_train_work,
    get_benchmark_and_model,
)

# The phases with a factor. For grading, the seconds of a verdict are measured instead.
SCALED_PHASES = ["sampling", "backpropagation", "sync", "other", "startup"]
# Fields of `Expected` that are computed from a run's result files, and those that are needed to
# count the run's work but are not in its files. `rewarded` is not needed, because the files say
# which share of its completions a run trained on.
MEASURED_FIELDS, UNMEASURED_FIELDS = ["length", "signal", "kept"], ["prompt", "spread"]


class RunManifest(Manifest):
    """The manifest of a training run, with its spec parsed."""

    spec: TrainSpec


def read_runs(folder: Path | None, params: Params) -> pd.DataFrame:
    """Read all finished runs below a folder whose model and benchmark are in params.yaml.

    Args:
        folder: by default runs/ in the experiment's folder if it exists; otherwise runs/, which
            has the runs of the default parameters.

    Returns:
        A row for each run: its spec, its times, and the measured fields of `Expected`.

    Raises:
        BadInput: there is no such run, the runs are from more than one machine, or the parameters
            in a manifest do not match the present schema.
    """
    experiment_runs = Path(build_plan(params).root) / "runs"
    folder = folder or (experiment_runs if experiment_runs.is_dir() else Path("runs"))
    rows = [
        _read_run(path.parent, summary, params)
        for path in sorted(folder.rglob("summary.json"))
        if (summary := read_result(path, RunSummary)) and summary.runtime
        if summary.benchmark in params.benchmarks and summary.model in params.models
    ]
    if not rows:
        raise BadInput(
            f"--calibrate {folder}: there is no finished run, with recorded times, of the models "
            "and benchmarks in params.yaml. Make runs (snakemake --cores 4 all_train), or name "
            "a GPU, such as --gpu a6000"
        )
    runs = pd.DataFrame(rows)
    if len(machines := sorted(runs.hardware.unique())) > 1:
        raise BadInput(
            f"--calibrate {folder}: has runs of {len(machines)} machines "
            f"({'; '.join(machines)}); name a folder with runs of one machine"
        )
    return runs


def _read_run(folder: Path, summary: RunSummary, params: Params) -> dict[str, object]:
    """Return a row of `read_runs`."""
    spec = RunManifest.read(folder).spec
    if spec.pass_settings.micro_batch == "auto":
        spec = set_micro_batch(spec, max(1, summary.pass_completions))
    # Dynamic sampling (DAPO) replaces groups without a signal. So among the groups of a step, the
    # share of groups with a signal is larger than among all sampled groups.
    kept_share, resamples = nan, spec.algorithm.get_sampling_rounds(spec.objective) > 1
    signals = [step.signal for step in read_rows(folder / "steps.jsonl", StepRecord)]
    # For SFT, the number of optimizer steps shows which share of the teacher's completions was kept
    # as demonstrations: if all were kept, there would be `max_work.steps`.
    if spec.algorithm.is_supervised:
        max_work = count_job_work(spec, params, lambda *pair: Expected(limit=1, length=1, kept=1.0))
        kept_share = min(1.0, summary.optimizer_steps / max_work.steps)
    return {
        **summary.model_dump(exclude={"runtime"}),
        **summary.runtime.model_dump(),
        "spec": spec,
        "is_supervised": spec.algorithm.is_supervised,
        "length": summary.completion_length or nan,
        "signal": nan if resamples else pd.Series(signals, dtype=float).mean(),
        "kept": kept_share,
    }


def fit_rates(
    runs: pd.DataFrame, shapes: Mapping[str, Shape], user_values: Mapping[str, float]
) -> Machine:
    """Return the machine on which the runs were made.

    It has default rates, and the factors and other values that are fitted to the runs.

    Args:
        runs: rows of `read_runs`.
        shapes: sizes of models, by name.
        user_values: see `rapid.cost.expected.expect`; only the `UNMEASURED_FIELDS` are used.

    Raises:
        BadInput: there is no RL run.
    """
    if runs.is_supervised.all():
        raise BadInput(
            "all finished runs are of sft, so the speed of sampling is unknown. Make a run of an "
            "RL algorithm, such as pg, or name a GPU, such as --gpu a6000"
        )
    means = _add_rows_for_all_models(runs).groupby(["benchmark", "model"])[MEASURED_FIELDS].mean()
    measured = {pair: row.dropna().to_dict() for pair, row in means.iterrows()}
    runs = runs.assign(work=[_count_work(run, measured, user_values) for run in runs.itertuples()])
    base = build_default_machine(runs.spec.iloc[0].compute.device, shapes)
    machine = replace(
        base,
        verdict_seconds=DEFAULT_VERDICT_SECONDS | _measure_verdict_seconds(runs),
        base_memory=_measure_base_memory(runs, shapes),
        factors=_fit_factors(base, _add_rows_for_all_models(runs)),
        measured=measured,
    )
    ratios = runs.work.map(machine.estimate_runtime) / runs.total
    notes = [
        f"measured in {len(runs)} runs on {runs.hardware.iloc[0] or 'a machine'}; the planned "
        f"runtime of a single run is {ratios.min():.2f} to {ratios.max():.2f} times the measured "
        "one"
    ]
    if not_run := [model for model in shapes if model not in set(runs.model)]:
        notes.append(
            f"models without runs, whose times are scaled by size: {', '.join(not_run)}; for "
            "better times make short runs of them, or plan with --gpu"
        )
    return replace(machine, notes=tuple(notes))


def _count_work(
    run: Any, measured: Mapping[tuple, Mapping], user_values: Mapping[str, float]
) -> Work:
    """Count the work of a finished run, with the recorded share of completions it trained on."""
    unmeasured = {name: value for name, value in user_values.items() if name in UNMEASURED_FIELDS}
    measured_values = measured[run.benchmark, run.model]
    expected = expect(run.spec.max_completion_length, measured_values, unmeasured)
    trained_share = None if pd.isna(run.run) else run.run  # `run` is the column in summary.json
    return count_train_work(run.spec, run.optimizer_steps, expected, trained_share)


def _fit_factors(machine: Machine, runs: pd.DataFrame) -> dict[tuple[str, bool], dict[str, float]]:
    """Return each phase's ratio of measured to computed seconds, by (model, whether it is SFT)."""
    keys = [runs.model, runs.is_supervised]
    computed = pd.DataFrame(map(machine.estimate_seconds, runs.work))[SCALED_PHASES]
    factors = runs[SCALED_PHASES].groupby(keys).sum() / computed.groupby(keys).sum()
    return {key: row.fillna(1.0).to_dict() for key, row in factors.iterrows()}


def _measure_verdict_seconds(runs: pd.DataFrame) -> dict[str, float]:
    """Return the mean seconds of a verdict in one of a process's threads, by benchmark.

    Runs that grade while they sample are left out, because they record only the time of waiting for
    verdicts after sampling.
    """
    runs = runs[[not (work.grades_while_sampling or work.is_supervised) for work in runs.work]]
    graded = (runs.completions / runs.spec.map(count_processes)).groupby(runs.benchmark).sum()
    # The threads of a process grade in parallel.
    threads = runs.spec.map(lambda spec: spec.compute.threads)
    thread_seconds = (runs.grading * threads).groupby(runs.benchmark).sum()
    return (thread_seconds / graded).to_dict()


def _measure_base_memory(runs: pd.DataFrame, shapes: Mapping[str, Shape]) -> float:
    """Return the bytes of a process that `estimate_job_memory` does not count: its libraries.

    This is the median, over runs, of the measured peak minus the computed bytes; 0 if no run
    measured its memory.
    """
    computed = [
        estimate_job_memory(
            work.spec, shapes[get_benchmark_and_model(work.spec)[1]], work.expected
        ).total
        for work in runs.work
    ]
    base = (runs.peak_memory_mb * 1e6 - computed)[runs.peak_memory_mb > 0].median()
    return max(0.0, base)  # 0.0 if nothing was measured: the median is NaN


def _add_rows_for_all_models(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs, and a copy of each with the model "", which stands for all models."""
    return pd.concat([runs, runs.assign(model="")], ignore_index=True)
