"""Runs on disk, read for their rates: runs/{benchmark}/{model}/{algorithm}/seed{n}/."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from statistics import fmean, pstdev

from pydantic import ValidationError

from rapid.artifacts.files import BadInput, read_jsonl
from rapid.artifacts.runs import RunSummary, StepRecord
from rapid.config.jobs import plan
from rapid.config.params import Params
from rapid.config.specs import Run, TrainSpec, train_spec


class NoRuns(BadInput):
    """Nothing to calibrate with."""


@dataclass(frozen=True)
class Observed:
    """One run: what it was told to do, what it measured.

    Args:
        spread: of completion lengths; 0 where no step says a length.
        signal: mean share of groups whose rewards differ; None for sft.
    """

    spec: TrainSpec
    summary: RunSummary
    spread: float
    signal: float | None

    @property
    def key(self) -> tuple[str, str]:
        return self.spec.run.benchmark, self.spec.run.model


def read_runs(folder: Path | None, params: Params) -> list[Observed]:
    """Every run with a runtime below a folder, of models and benchmarks that params.yaml has.

    The folder is by default that of the experiment's runs if it is there, else the default's.

    What a run was told is in its manifest; keys that an older manifest lacks are as in params.yaml.

    Raises:
        NoRuns: there is none; or they were made on more than one machine.
    """
    own = Path(plan(params).root) / "runs"
    folder = folder or (own if own.is_dir() else Path("runs"))
    found = []
    for path in sorted(folder.rglob("summary.json")):
        try:
            summary = RunSummary.model_validate_json(path.read_text(encoding="utf-8"))
        except ValidationError as error:
            raise NoRuns(f"{path}: not a run's summary: {error.errors()[0]['msg']}") from None
        known = summary.benchmark in params.benchmarks and summary.model in params.models
        if summary.runtime and known:
            found.append(_observed(summary, path.parent, params))
    if not found:
        raise NoRuns(
            f"--calibrate {folder}: no run with a runtime, of the models and benchmarks in "
            "params.yaml; make some (snakemake all_train), or name a GPU: --gpu a6000"
        )
    if len(machines := {one.summary.hardware for one in found}) > 1:
        raise NoRuns(
            f"--calibrate {folder}: runs of {len(machines)} machines ({'; '.join(sorted(machines))}); "
            "give a folder with the runs of one"
        )
    return found


def _observed(summary: RunSummary, folder: Path, params: Params) -> Observed:
    run = Run(**{name: getattr(summary, name) for name in Run.model_fields})
    spec = train_spec(params, run).model_dump()
    manifest = folder / "manifest.json"
    if manifest.is_file():
        told = json.loads(manifest.read_text(encoding="utf-8")).get("spec", {})
        _take(spec, told)
    steps = list(read_jsonl(folder / "steps.jsonl", StepRecord))
    return Observed(
        spec=TrainSpec.model_validate(spec),
        summary=summary,
        spread=_spread(spec, steps),
        signal=_mean(step.signal for step in steps),
    )


def _take(known: dict, told: dict) -> None:
    """Overwrite known keys by what was told, section by section."""
    for name in known.keys() & told.keys():
        if isinstance(known[name], dict) and isinstance(told[name], dict):
            _take(known[name], told[name])
        else:
            known[name] = told[name]


def _spread(spec: dict, steps: list[StepRecord]) -> float:
    """Of single lengths, from the means of steps; completions of a group are taken to be alike."""
    lengths = [step.completion_length for step in steps if step.completion_length is not None]
    if len(lengths) < 2 or not spec["training"]:
        return 0.0
    groups = spec["n_step"] / spec["training"]["group_size"]
    return pstdev(lengths) * sqrt(groups) / fmean(lengths)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
