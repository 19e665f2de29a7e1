"""Seconds of counted work at rates measured on a machine, from runs that are on disk.

The rates of each model are fitted to its runs on all benchmarks, each phase by itself, by least
squares of relative errors with coefficients that are not negative:

    sampling         a x decoding steps + b x rows of these steps
    backpropagation  c x optimizer steps + d x tokens
    other            e x optimizer steps + f x inference batches
    sync             g x inference batches
    imitation        k x tokens

Runs with dynamic sampling are left out of the first line, as their batches vary.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log, sqrt
from pathlib import Path
from statistics import fmean, pstdev

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from rapid.algorithms import IMITATING, PLAIN, RAPID
from rapid.algorithms.names import parse
from rapid.artifacts.files import BadInput
from rapid.artifacts.manifests import Manifest, read_result, read_rows
from rapid.artifacts.runs import RunSummary, StepRecord
from rapid.config.jobs import plan
from rapid.config.params import Params
from rapid.config.specs import TrainSpec
from rapid.cost.expected import VERDICTS, Expected, halfway
from rapid.cost.memory import job_memory, with_passes
from rapid.cost.shapes import Shape
from rapid.cost.work import Seconds, Work, processes, subject, train_work

FAR = 2  # times another's size: no longer as fast
FITTED = (PLAIN.name, RAPID.at(4), IMITATING.name)  # by `check`, of the first seed
COUNTS = ("decoding_steps", "rows", "batches", "steps", "tokens")


@dataclass(frozen=True)
class Measured:
    """The rates of a machine, and what was seen in the runs."""

    hardware: str
    runs: int  # how many
    rates: Mapping[str, Mapping[str, Mapping[str, float]]]  # by model, phase and count
    shapes: Mapping[str, Shape]
    verdict: Mapping[str, float]  # seconds by benchmark
    startup: Mapping[str, float]  # seconds by benchmark
    expected: Mapping[tuple[str, str], Expected]  # by benchmark and model
    base_memory: float  # resident bytes of a process besides what its model explains

    def seconds(self, work: Work) -> Seconds:
        """Return the seconds of one job by phase."""
        benchmark, model = subject(work.spec)
        phases = self.rates[self.nearest(model)]

        def spent(phase: str) -> float:
            return sum(rate * getattr(work, count) for count, rate in phases[phase].items())

        sampling, startup = spent("sampling"), self.startup
        return Seconds(
            sampling=sampling,
            grading=work.grading(self.verdict[benchmark], sampling),
            backpropagation=spent("imitation" if work.imitates else "backpropagation"),
            sync=spent("sync"),
            other=0.0 if work.imitates else spent("other"),
            startup=work.loads * startup.get(benchmark, fmean(startup.values())),
        )

    def nearest(self, model: str) -> str:
        """Return the measured model whose size is nearest to this one's."""
        size = log(self.shapes[model].parameters)
        other = {one: abs(log(self.shapes[one].parameters) - size) for one in self.rates}
        return model if model in other else min(other, key=other.get)

    def notes(self) -> list[str]:
        """Return what a reader should know of these rates, a sentence each."""
        verdicts = ", ".join(f"{name} {value:.3g}" for name, value in self.verdict.items())
        return [
            f"rates of {self.runs} runs on {self.hardware or 'a machine'}",
            f"seconds of a verdict: {verdicts}",
            *(self._transferred(model) for model in self.shapes if model not in self.rates),
        ]

    def _transferred(self, model: str) -> str:
        near = self.nearest(model)
        factor = self.shapes[model].parameters / self.shapes[near].parameters
        text = f"{model} is taken to be as fast as {near}, the nearest in size"
        if 1 / FAR < factor < FAR:
            return text
        return f"{text}, though {factor:.2g} times as large: make a short run with it, or use --gpu"

    def seen(self, benchmark: str, model: str) -> Expected | None:
        """Return what runs showed of a benchmark, with this model if there were any."""
        others = (one for key, one in self.expected.items() if key[0] == benchmark)
        return self.expected.get((benchmark, model)) or next(others, None)


class Trained(Manifest):
    """The manifest of a run."""

    spec: TrainSpec


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

    Raises:
        BadInput: there is none, they were made on more than one machine, or a manifest's
            parameters are not of the form that they have today.
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
            spec = Trained.read(path.parent).spec
            if spec.passes.micro_batch == "auto":
                spec = with_passes(spec, max(1, summary.pass_completions))
            found.append(Observed(spec, summary, steps))
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


def fit(observed: list[Observed], shapes: Mapping[str, Shape], usual: Expected) -> Measured:
    """Return the rates of the machine that runs were made on.

    Args:
        usual: what is assumed of anything that the runs do not show; prompts' lengths among it.

    Raises:
        BadInput: there is no RL run among them.
    """
    keys = dict.fromkeys((one.summary.benchmark, one.summary.model) for one in observed)
    expected = {
        key: _seen([o for o in observed if (o.summary.benchmark, o.summary.model) == key], usual)
        for key in keys
    }
    runs = pd.DataFrame([_row(one, expected, shapes) for one in observed])
    graded = runs[runs.graded > 0].groupby("benchmark", sort=False)[["verdicts", "graded"]].sum()
    rates = {
        model: _rates(of_model)
        for model, of_model in runs.groupby("model", sort=False)
        if not of_model.imitates.all()
    }
    if not rates:
        raise BadInput("no RL run among those to calibrate with: sampling was not measured")
    unexplained = runs.unexplained.dropna()
    return Measured(
        hardware=observed[0].summary.hardware,
        runs=len(observed),
        rates=rates,
        shapes=shapes,
        verdict={**VERDICTS, **(graded.verdicts / graded.graded)},
        startup=dict(runs.groupby("benchmark", sort=False).startup.median()),
        expected=expected,
        base_memory=0.0 if unexplained.empty else max(0.0, unexplained.median()),
    )


def _row(one: Observed, expected: Mapping, shapes: Mapping[str, Shape]) -> dict:
    """Return what a run did, what it took, and the bytes that its model does not explain."""
    summary, known = one.summary, expected[one.summary.benchmark, one.summary.model]
    work, peak = one.work(known), summary.peak_memory_mb * 1e6
    # Where a run grades while it samples, only what it waits for beyond that is measured. A short
    # wait is the last completions' and says nothing of the others.
    waited, beside = summary.runtime.grading, summary.runtime.sampling if work.streams else 0.0
    explained = job_memory(one.spec, shapes[summary.model], known).total
    return {
        "benchmark": summary.benchmark,
        "model": summary.model,
        "imitates": work.imitates,
        "resamples": one.resamples,
        "verdicts": waited + beside,
        "graded": summary.completions / processes(one.spec) if waited > beside / 2 else 0,
        "unexplained": peak - explained if peak else float("nan"),
        **{name: getattr(work, name) for name in COUNTS},
        **summary.runtime.model_dump(),
    }


def _rates(runs: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return seconds of each counted thing, by phase, of one model's runs."""
    rl, imitating = runs[~runs.imitates], runs[runs.imitates]
    plain, passed = rl[~rl.resamples], rl if imitating.empty else imitating
    tokens = passed.tokens.sum()  # 0 where nothing had a gradient
    return {
        "sampling": _least_squares(
            rl if plain.empty else plain, "sampling", "decoding_steps", "rows"
        ),
        "backpropagation": _least_squares(rl, "backpropagation", "steps", "tokens"),
        "other": _least_squares(rl, "other", "steps", "batches"),
        "sync": {"batches": (rl.sync / rl.batches).mean()},
        "imitation": {"tokens": passed.backpropagation.sum() / tokens if tokens else 0.0},
    }


def _least_squares(runs: pd.DataFrame, phase: str, *counts: str) -> dict[str, float]:
    """Return coefficients of counts, not negative, with least relative errors."""
    if not runs[phase].any():
        return dict.fromkeys(counts, 0.0)
    weighted = runs[list(counts)].div(runs[phase].clip(lower=1e-9), axis=0).to_numpy(float)
    scale = np.maximum(weighted.max(axis=0), 1e-300)  # of like size, for the solver's sake
    found, _ = nnls(weighted / scale, np.ones(len(runs)))
    return dict(zip(counts, (found / scale).tolist(), strict=True))


def _seen(observed: list[Observed], usual: Expected) -> Expected:
    """Return what the runs of one model on one benchmark showed, over what is usual.

    Importance weights run all groups with a reward after first steps, which tells their share.
    """
    rl = [one for one in observed if one.spec.training]
    limit = observed[0].spec.max_completion_length
    length = usual.length * limit / usual.limit  # where no run of RL tells
    signal = _mean([one.signal for one in rl], usual.signal)
    rewarded = [
        (one.summary.run * one.spec.H - signal) / (one.spec.H - 1)
        for one in rl
        if one.tells_rewarded
    ]
    return replace(
        usual,
        limit=limit,
        length=_mean([one.summary.completion_length or None for one in rl], length),
        spread=_mean([one.spread for one in rl], usual.spread),
        signal=signal,
        rewarded=max(signal, min(1.0, _mean(rewarded, halfway(signal)))),
        kept=_kept([one for one in observed if not one.spec.training], rl, usual.kept),
    )


def _mean(values: list[float | None], usual: float) -> float:
    known = [value for value in values if value is not None]
    return fmean(known) if known else usual


def _kept(imitating: list[Observed], rl: list[Observed], usual: float) -> float:
    """Return the share of the teacher's completions that sft took its steps on.

    An RL run tells the number of problems.
    """
    if not imitating or not rl:
        return usual
    spec, sft = rl[0].spec, imitating[0].spec.objective
    completions = spec.training.group_size * spec.training.epochs  # of a problem
    problems = rl[0].summary.optimizer_steps * spec.n_step / completions
    steps = fmean(one.summary.optimizer_steps for one in imitating)
    return min(1.0, steps / sft.epochs * sft.batch / (problems * sft.samples))


def check(observed: list[Observed], shapes: Mapping[str, Shape], usual: Expected) -> pd.DataFrame:
    """Fit on `FITTED` of the first seed and return what the others took, beside predictions.

    Lengths and shares are those of the fitted runs too: a prediction knows nothing of its run but
    what it was told to do, and its number of optimizer steps.

    Returns:
        A row for each run: benchmark, model, algorithm; seconds predicted and measured.

    Raises:
        BadInput: there are none to fit on, or none left to predict.
    """
    first = min(one.summary.seed for one in observed)
    own, others = [], []
    for one in observed:
        fitted = one.summary.seed == first and one.summary.algorithm in FITTED
        (own if fitted else others).append(one)
    if not own or not others:
        raise BadInput(
            f"--check fits on {', '.join(FITTED)} of seed {first} and predicts the others: there "
            f"are {len(own)} of these and {len(others)} others; run more (snakemake all_train)"
        )
    machine, rows = fit(own, shapes, usual), []
    for summary, spec in ((one.summary, one.spec) for one in others):
        expected = machine.seen(summary.benchmark, summary.model) or usual
        work = train_work(spec, summary.optimizer_steps, expected)
        named = summary.model_dump(include={"benchmark", "model", "algorithm"})
        seconds = {"predicted": machine.seconds(work).runtime, "measured": summary.runtime.total}
        rows.append(named | seconds)
    return pd.DataFrame(rows)
