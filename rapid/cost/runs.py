"""Runs on disk, read for what they took: runs/{benchmark}/{model}/{algorithm}/seed{n}/."""

from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from statistics import fmean, pstdev

from rapid.algorithms.names import parse
from rapid.artifacts.files import BadInput
from rapid.artifacts.manifests import read_manifest, read_result, read_rows
from rapid.artifacts.runs import RunSummary, StepRecord
from rapid.config.jobs import plan
from rapid.config.params import Params
from rapid.config.specs import Run, TrainSpec, train_spec
from rapid.cost.expected import Expected
from rapid.cost.work import Work, train_work


@dataclass(frozen=True)
class Observed:
    """One run: what it was told to do, and what it measured."""

    spec: TrainSpec
    summary: RunSummary
    steps: list[StepRecord]

    @property
    def spread(self) -> float:
        """Spread of lengths, from the means of steps. Those of a group are taken to be alike."""
        lengths = [one.completion_length for one in self.steps if one.completion_length is not None]
        if len(lengths) < 2:
            return 0.0
        groups = self.spec.n_step / self.spec.training.group_size
        return pstdev(lengths) * sqrt(groups) / fmean(lengths)

    @property
    def signal(self) -> float | None:
        """Mean share of groups whose rewards differ; `None` where sampling aims at that."""
        shares = [one.signal for one in self.steps if one.signal is not None]
        return fmean(shares) if shares and not self.resamples else None

    @property
    def resamples(self) -> bool:
        """Return whether the run replaced groups without signal."""
        return parse(self.spec.run.algorithm).algorithm.rounds(self.spec.objective) > 1

    @property
    def tells_rewarded(self) -> bool:
        """Return whether the share of groups with a reward follows from the share that ran."""
        algorithm, objective = parse(self.spec.run.algorithm).algorithm, self.spec.objective
        groups = [algorithm.gradient_groups(objective, on_policy) for on_policy in (True, False)]
        known = self.spec.H > 1 and self.summary.run is not None
        return known and groups == ["unequal", "rewarded"]

    def work(self, expected: Expected) -> Work:
        """Return what the run did, with the share of groups and the length that it recorded."""
        expected = replace(
            expected,
            limit=self.spec.max_completion_length,
            length=self.summary.completion_length or expected.length,
        )
        return train_work(self.spec, self.summary.optimizer_steps, expected, self.summary.run)


def read_runs(folder: Path | None, params: Params) -> list[Observed]:
    """Return all runs with a runtime below a folder, of models and benchmarks in params.yaml.

    The folder is by default that of the experiment's runs if it is there, else the default's.

    What a run was told is in its manifest; keys that an older manifest lacks are as in params.yaml.

    Raises:
        BadInput: there is none, or they were made on more than one machine.
    """
    own = Path(plan(params).root) / "runs"
    folder = folder or (own if own.is_dir() else Path("runs"))
    found = []
    for path in sorted(folder.rglob("summary.json")):
        if not (summary := read_result(path, RunSummary)):
            continue
        known = summary.benchmark in params.benchmarks and summary.model in params.models
        if summary.runtime and known:
            steps = read_rows(path.with_name("steps.jsonl"), StepRecord)
            found.append(Observed(_spec(summary, path.parent, params), summary, steps))
    if not found:
        raise BadInput(
            f"--calibrate {folder}: no run with a runtime, of the models and benchmarks in "
            "params.yaml; make some (snakemake all_train), or name a GPU: --gpu a6000"
        )
    if len(machines := {one.summary.hardware for one in found}) > 1:
        raise BadInput(
            f"--calibrate {folder}: runs of {len(machines)} machines "
            f"({'; '.join(sorted(machines))}); give a folder with the runs of one"
        )
    return found


def _spec(summary: RunSummary, folder: Path, params: Params) -> TrainSpec:
    run = Run(**summary.model_dump(include=set(Run.model_fields)))
    spec = train_spec(params, run).model_dump()
    if (manifest := read_manifest(folder)) is None:
        raise BadInput(f"--calibrate: {folder} has a summary.json, and no manifest.json beside it")
    _take(spec, manifest.spec)
    return TrainSpec.model_validate(spec)


def _take(known: dict, told: dict) -> None:
    """Overwrite known keys by what was told, section by section."""
    for name in known.keys() & told.keys():
        if isinstance(known[name], dict) and isinstance(told[name], dict):
            _take(known[name], told[name])
        else:
            known[name] = told[name]
