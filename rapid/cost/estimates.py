"""The cost of every job of the pipeline, and of all together; which H and passes to take."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from pydantic import BaseModel

from rapid.algorithms import IMITATING, RAPID
from rapid.config.jobs import plan
from rapid.config.params import Params
from rapid.config.specs import (
    DistillSpec,
    EvaluateSpec,
    FetchSpec,
    PrepareSpec,
    PretrainSpec,
    Run,
    TrainSpec,
    runs,
    train_spec,
)
from rapid.cost.expected import Expected, usual
from rapid.cost.measured import Measured
from rapid.cost.memory import (
    USABLE,
    Memory,
    job_memory,
    most_of_a_process,
    with_passes,
)
from rapid.cost.roofline import Roofline, gpu
from rapid.cost.shapes import Shape, known_shapes
from rapid.cost.work import BYTES, Seconds, Work, job_work, precision, subject
from rapid.freshness import Job
from rapid.resources.requests import cores, gpus

DOWNLOAD = 50e6  # bytes a second
SMALL = {"data": 5.0, "models": 5.0, "report": 30.0}  # seconds of jobs without a model
STEP_BYTES, SCORE_BYTES, ROW_BYTES = 400, 60, 1000  # a row of the files that jobs leave
TOKEN_BYTES = 50  # of a saved tokenizer, a token
WORTH = 0.9  # twice the H is worth its staleness where the runtime is less than this share
USUAL_GPU = "a6000"  # whose rates stand in where only memory is asked for
LARGEST = 16  # the H that the paper went to; more only where params.yaml does


@dataclass(frozen=True)
class Estimator:
    """What jobs run on, and what is expected of them."""

    params: Params
    machine: Measured | Roofline
    given: Mapping[str, float]  # what a person expects, see `Expected.changed`
    memory: float | None = None  # bytes of a GPU, or that a process may have, where it is known
    report: str = ""  # whose jobs are planned, where it is not the tables

    @property
    def on_gpus(self) -> bool:
        """Return whether jobs take GPUs, not cores."""
        return self.params.compute.device == "gpu"

    def expect(self, benchmark: str, model: str) -> Expected:
        """Return what is expected of a model on a benchmark."""
        limit = self.params.benchmarks[benchmark].max_completion_length
        known = self.machine.seen(benchmark, model) or usual(limit)
        return replace(known, limit=limit).changed(self.given)

    def work(self, spec: BaseModel) -> Work:
        """Return what a job does."""
        return job_work(self.sized(spec), self.params, self.expect)

    @property
    def room(self) -> float | None:
        """The bytes that a job may take, where they are known."""
        return self.memory and USABLE * self.memory - self.machine.base_memory

    def sized(self, spec: BaseModel) -> BaseModel:
        """Return a job's spec with what `micro_batch: auto` will find, where memory is known."""
        if not (isinstance(spec, TrainSpec) and spec.passes.micro_batch == "auto"):
            return spec
        completions = most_of_a_process(spec)
        if self.room:
            completions = min(completions, max(1, self._held(spec).most_completions(self.room)))
        return with_passes(spec, completions)

    def runtime(self, spec: TrainSpec) -> float:
        """Return the seconds of a run's training loop."""
        return self.machine.seconds(self.work(spec)).runtime

    def held(self, spec: BaseModel) -> Memory:
        """Return the memory of a job that computes with a model."""
        return self._held(self.sized(spec))

    def lacks_memory(self, spec: BaseModel) -> str:
        """Return why a job with a model does not fit, and what to do; "" if it does."""
        held = self.machine.base_memory + self.held(spec).total
        if self.memory is None or held <= USABLE * self.memory:
            return ""
        most = f"{USABLE:.0%} of {self.memory / 1e9:.0f} GB"
        return f"{held / 1e9:.0f} GB are more than {most}: {_remedy(self, spec)}"

    def _held(self, spec: BaseModel) -> Memory:
        benchmark, model = subject(spec)
        return job_memory(spec, self.machine.shapes[model], self.expect(benchmark, model))


@dataclass(frozen=True)
class Estimate:
    """The cost of one job."""

    job: Job
    seconds: Seconds
    units: int  # GPUs or cores
    memory: float | None  # bytes of one process, where it computes with a model
    disk: float  # bytes

    @property
    def unit_seconds(self) -> float:
        """Seconds times GPUs or cores."""
        return self.seconds.total * self.units

    @property
    def key(self) -> tuple[str, str, str]:
        """Benchmark and model, "" where there is none, and the run's algorithm or the stage."""
        spec, stage = self.job.spec, self.job.stage
        benchmark, model = subject(spec)
        if stage == "models":
            return "", model, "fetch" if isinstance(spec, FetchSpec) else "make"
        name = spec.run.algorithm if stage == "train" else stage.replace("data", "prepare")
        return benchmark, model, name


def estimates(estimator: Estimator) -> list[Estimate]:
    """Return the cost of each job, in the order of `rapid.config.jobs`."""
    whole, report = plan(estimator.params), estimator.report
    planned = whole.behind(f"reports/{report}") if report else whole.jobs
    return [_estimate(estimator, job) for job in planned]


def _estimate(estimator: Estimator, job: Job) -> Estimate:
    spec, shapes = job.spec, estimator.machine.shapes
    if isinstance(spec, TrainSpec | EvaluateSpec | DistillSpec | PretrainSpec):
        work = estimator.work(spec)
        units = max(1, gpus(spec)) if estimator.on_gpus else cores(spec)
        memory = estimator.machine.base_memory + estimator.held(spec).total
        disk = _disk(spec, work, shapes[subject(spec)[1]], estimator)
        return Estimate(job, estimator.machine.seconds(work), units, memory, disk)
    seconds, disk = SMALL.get(job.stage, 0.0), 0.0
    if isinstance(spec, FetchSpec):
        disk = _saved(shapes[spec.model], "bfloat16")
        seconds = disk / DOWNLOAD
    elif isinstance(spec, PrepareSpec):
        disk = ROW_BYTES * (spec.train + spec.test)
    return Estimate(job, Seconds(other=seconds), 0 if estimator.on_gpus else 1, None, disk)


def _disk(spec: BaseModel, work: Work, shape: Shape, estimator: Estimator) -> float:
    """Return the bytes that a job which computes with a model leaves."""
    match spec:
        case TrainSpec():
            rows = 0 if work.imitates else work.steps
            return (1 + spec.snapshots) * _saved(shape, precision(spec)) + STEP_BYTES * rows
        case EvaluateSpec():
            return SCORE_BYTES * work.completions / spec.evaluation.samples
        case DistillSpec():
            return ROW_BYTES * work.completions * estimator.expect(*subject(spec)).kept
    return _saved(shape, precision(spec))


def _saved(shape: Shape, precision: str) -> float:
    """Return bytes of a saved model: its weights, and a few MB of tokenizer."""
    return shape.parameters * BYTES[precision] + TOKEN_BYTES * shape.vocabulary


def longest_chain(found: list[Estimate]) -> float:
    """Return the seconds until the last job ends, if nothing ever waits for a GPU or a core."""
    ends: dict[Job, float] = {}
    for one in found:
        before = max((ends.get(job, 0.0) for job in one.job.inputs), default=0.0)
        ends[one.job] = before + one.seconds.total
    return max(ends.values(), default=0.0)


def wall_clock(found: list[Estimate], capacity: int) -> float:
    """Return the seconds of all jobs, side by side on so many GPUs or cores.

    It is a bound from below: it packs jobs perfectly.
    """
    return max(sum(one.unit_seconds for one in found) / capacity, longest_chain(found))


def warnings(estimator: Estimator, found: list[Estimate], capacity: int) -> list[str]:
    """Return what will not run as it is planned, a line for each cause."""
    said: dict[tuple[str, str], dict[str, None]] = {}
    unit = "GPU" if estimator.on_gpus else "core"
    for one in found:
        benchmark, model, name = one.key
        where = ", ".join(filter(None, (benchmark, model)))
        if one.memory and (why := estimator.lacks_memory(one.job.spec)):
            said.setdefault((where, why), {})[name] = None
        if one.units > capacity:
            why = f"takes {one.units} {unit}s, and there are {capacity}"
            said.setdefault((where, why), {})[name] = None
    return [f"{where}: {', '.join(names)}: {why}" for (where, why), names in said.items()]


def _remedy(estimator: Estimator, spec: BaseModel) -> str:
    """Return what to change where a job does not fit."""
    if not isinstance(spec, TrainSpec):
        return "share it over more GPUs, or take larger ones"
    section = "training" if spec.training else IMITATING.key
    if estimator.held(spec).completions > 1:
        return f"make {section}.micro_batch smaller, or auto"
    if not spec.passes.checkpointing:
        return f"a pass is one completion already: set {section}.checkpointing to true"
    return "a pass is one completion already: take more or larger GPUs"


def too_large(params: Params, memory: float) -> dict[str, str]:
    """Return training jobs that do not fit in so many bytes, and what to do, as `rapid plan` says.

    Jobs with models whose size is not known are left out.
    """
    shapes = known_shapes(params)
    estimator = Estimator(params, Roofline(gpu(USUAL_GPU), shapes), {}, memory)
    found: dict[str, str] = {}
    for job in plan(params).jobs:
        spec = job.spec
        known = isinstance(spec, TrainSpec) and spec.run.model in shapes
        if known and (why := estimator.lacks_memory(spec)):
            found.setdefault(f"{spec.run.model}, {spec.run.algorithm}", why)
    return found


class Advice(NamedTuple):
    """Advice on RAPID with one model on one benchmark."""

    benchmark: str
    model: str
    runtimes: dict[int, float]  # seconds by H, as far as there are prompts and memory
    H: int  # the last whose doubling saved a tenth
    micro_batch: int | None  # completions of full length in a pass; None: memory is not known
    token_budget: int | None  # padded tokens of such a pass


def advise(estimator: Estimator) -> list[Advice]:
    """Return advice for each model and benchmark that RAPID is run with."""
    pairs = dict.fromkeys(
        (run.benchmark, run.model) for run in runs(estimator.params) if RAPID.named(run.algorithm)
    )
    return [_advise(estimator, *pair) for pair in pairs]


def _advise(estimator: Estimator, benchmark: str, model: str) -> Advice:
    params = estimator.params

    def spec(h: int):
        run = Run(benchmark=benchmark, model=model, algorithm=RAPID.at(h), seed=0)
        return train_spec(params, run)

    first = spec(1)
    group = first.training.group_size
    largest = max(LARGEST, *params.tables.staleness.H)
    most = min(largest, params.benchmarks[benchmark].train / (first.n_step // group))
    micro_batch = budget = None
    if estimator.memory:
        held, room = estimator.held(first), estimator.room
        most = min(most, max(1.0, (room - held.state) / max(held.sampling, 1.0)))
        micro_batch = held.most_completions(room)
        prompt = estimator.expect(benchmark, model).prompt
        budget = round(micro_batch * (prompt + first.max_completion_length))
    ratios = [2**n for n in range(largest.bit_length()) if 2**n <= most]
    runtimes = {h: estimator.runtime(spec(h)) for h in ratios}
    best = 1
    while runtimes.get(2 * best, inf) < WORTH * runtimes[best]:
        best *= 2
    return Advice(benchmark, model, runtimes, best, micro_batch, budget)
