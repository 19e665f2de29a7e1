"""The cost of every job of the pipeline, and of all together; which H and micro-batch to take."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

from pydantic import BaseModel

from rapid.algorithms import IMITATING, RAPID
from rapid.artifacts.files import BadInput
from rapid.config.jobs import build_plan
from rapid.config.params import Params
from rapid.config.specs import (
    DistillSpec,
    EvaluateSpec,
    FetchSpec,
    PretrainSpec,
    Run,
    TrainSpec,
    table_runs,
    train_spec,
)
from rapid.cost.expected import Expected, expect
from rapid.cost.memory import (
    USABLE,
    ProcessMemory,
    job_memory,
    largest_micro_batch,
    with_passes,
)
from rapid.cost.roofline import Machine, unmeasured
from rapid.cost.shapes import Shape, find_shape
from rapid.cost.work import BYTES, Work, job_work, precision, subject
from rapid.freshness import Job
from rapid.resources.requests import count_cores, count_gpus
from rapid.text import format_duration

DOWNLOAD = 50e6  # bytes a second
SMALL = {"data": 5.0, "models": 5.0, "report": 30.0}  # seconds of jobs without a model
TOKEN_BYTES = 50  # of a saved tokenizer, a token
WORTH = 0.9  # twice the H is worth its staleness where the runtime is less than this share
LARGEST = 16  # the H that the paper went to; more only where params.yaml does


@dataclass(frozen=True)
class Estimator:
    """Jobs' parameters, the machine that they run on, and the expectations of the user."""

    params: Params
    machine: Machine
    user: Mapping[str, float] = field(default_factory=dict)  # see `rapid.cost.expected.expect`
    memory: float = inf  # bytes of a GPU, or that a process may have; infinite: not known
    report: str = ""  # whose jobs are planned, where it is not the tables

    @property
    def on_gpus(self) -> bool:
        """Return whether jobs take GPUs, not cores."""
        return self.params.compute.device == "gpu"

    @property
    def room(self) -> float:
        """The bytes that a job may take."""
        return USABLE * self.memory - self.machine.base_memory

    def expect(self, benchmark: str, model: str) -> Expected:
        """Return what is expected of a model on a benchmark."""
        limit, seen = self.params.benchmarks[benchmark].max_completion_length, self.machine.seen
        of_model = seen.get((benchmark, model)) or seen.get((benchmark, ""), {})
        return expect(limit, of_model, self.user)

    def work(self, spec: BaseModel) -> Work:
        """Return what a job does."""
        return job_work(self.sized(spec), self.params, self.expect)

    def sized(self, spec: BaseModel) -> BaseModel:
        """Return a job's spec with what `micro_batch: auto` will find."""
        if not (isinstance(spec, TrainSpec) and spec.passes.micro_batch == "auto"):
            return spec
        completions = largest_micro_batch(spec)
        if self.room < inf:
            completions = min(completions, max(1, self._held(spec).most_completions(self.room)))
        return with_passes(spec, completions)

    def held(self, spec: BaseModel) -> ProcessMemory:
        """Return the memory of a job that computes with a model."""
        return self._held(self.sized(spec))

    def _held(self, spec: BaseModel) -> ProcessMemory:
        benchmark, model = subject(spec)
        return job_memory(spec, self.machine.shapes[model], self.expect(benchmark, model))

    def lacks_memory(self, spec: BaseModel) -> str:
        """Return why a job with a model does not fit, and what to do; "" if it does."""
        held = self.held(spec)
        if held.total <= self.room:
            return ""
        needed = f"{(self.machine.base_memory + held.total) / 1e9:.0f} GB"
        problem = f"{needed} needed, more than {USABLE:.0%} of {self.memory / 1e9:.0f} GB"
        if not isinstance(spec, TrainSpec):
            return f"{problem}: raise the model's tensor_parallel, or use larger GPUs"
        section = "training" if spec.training else IMITATING.key
        if held.completions > 1:
            return f"{problem}: lower {section}.micro_batch, or set it to auto"
        remedy = "use more or larger GPUs"
        if not spec.passes.checkpointing:
            remedy = f"set {section}.checkpointing to true"
        return f"{problem}: a micro-batch is one completion already, so {remedy}"


@dataclass(frozen=True)
class JobCost:
    """The cost of one job."""

    job: Job
    seconds: float
    units: int  # GPUs or cores
    memory: float = 0.0  # bytes of one process, where it computes with a model
    disk: float = 0.0  # bytes of the models that it leaves; other files are small

    @property
    def unit_seconds(self) -> float:
        """Seconds times GPUs or cores."""
        return self.seconds * self.units

    @property
    def key(self) -> tuple[str, str, str]:
        """Benchmark and model, "" where there is none, and the run's algorithm or the stage."""
        spec, stage = self.job.spec, self.job.stage
        benchmark, model = subject(spec)
        if stage == "models":
            return "", model, "fetch" if isinstance(spec, FetchSpec) else "make"
        name = spec.run.algorithm if stage == "train" else stage.replace("data", "prepare")
        return benchmark, model, name


def estimate_jobs(estimator: Estimator) -> list[JobCost]:
    """Return the cost of each job, in the order of `rapid.config.jobs`."""
    planned, report = build_plan(estimator.params), estimator.report
    jobs = planned.list_with_inputs(f"reports/{report}") if report else planned.jobs
    return [_estimate_job(estimator, job) for job in jobs]


def _estimate_job(estimator: Estimator, job: Job) -> JobCost:
    spec, machine = job.spec, estimator.machine
    if isinstance(spec, FetchSpec):
        disk = _saved_bytes(machine.shapes[spec.model], "bfloat16")
        return JobCost(job, disk / DOWNLOAD, 0 if estimator.on_gpus else 1, disk=disk)
    if not isinstance(spec, TrainSpec | EvaluateSpec | DistillSpec | PretrainSpec):
        return JobCost(job, SMALL.get(job.stage, 0.0), 0 if estimator.on_gpus else 1)
    models = 1 + spec.snapshots if isinstance(spec, TrainSpec) else isinstance(spec, PretrainSpec)
    return JobCost(
        job,
        seconds=sum(machine.seconds(estimator.work(spec)).values()),
        units=max(1, count_gpus(spec)) if estimator.on_gpus else count_cores(spec),
        memory=machine.base_memory + estimator.held(spec).total,
        disk=models * _saved_bytes(machine.shapes[subject(spec)[1]], precision(spec)),
    )


def _saved_bytes(shape: Shape, precision: str) -> float:
    """Return bytes of a saved model: its weights, and a few MB of tokenizer."""
    return shape.parameters * BYTES[precision] + TOKEN_BYTES * shape.vocabulary


def longest_chain(costs: list[JobCost]) -> float:
    """Return the seconds until the last job ends, if nothing ever waits for a GPU or a core."""
    ends: dict[Job, float] = {}
    for cost in costs:
        start = max((ends.get(job, 0.0) for job in cost.job.inputs), default=0.0)
        ends[cost.job] = start + cost.seconds
    return max(ends.values(), default=0.0)


def wall_clock(costs: list[JobCost], capacity: int) -> float:
    """Return the seconds of all jobs, side by side on so many GPUs or cores.

    It is a bound from below: it packs jobs perfectly.
    """
    return max(sum(cost.unit_seconds for cost in costs) / capacity, longest_chain(costs))


def find_problems(estimator: Estimator, costs: list[JobCost], capacity: int) -> list[str]:
    """Return what will not run as it is planned, a line for each cause."""
    names: dict[tuple[str, str], dict[str, None]] = {}
    unit = "GPU" if estimator.on_gpus else "core"
    for cost in costs:
        benchmark, model, name = cost.key
        where = ", ".join(filter(None, (benchmark, model)))
        reasons = [estimator.lacks_memory(cost.job.spec)] if cost.memory else []
        if cost.units > capacity:
            reasons.append(f"needs {cost.units} {unit}s, but there are {capacity}")
        for reason in filter(None, reasons):
            names.setdefault((where, reason), {})[name] = None
    return [f"{where}: {', '.join(jobs)}: {reason}" for (where, reason), jobs in names.items()]


def too_large(params: Params, memory: float) -> dict[str, str]:
    """Return training jobs that do not fit in so many bytes, and what to do, as `rapid plan` says.

    Jobs with models whose size is not known are left out.
    """
    shapes = {}
    for name in params.models:
        with suppress(BadInput):
            shapes[name] = find_shape(name, params)
    estimator = Estimator(params, unmeasured("gpu", shapes), memory=memory)
    problems: dict[str, str] = {}
    for spec in (job.spec for job in build_plan(params).jobs):
        is_known = isinstance(spec, TrainSpec) and spec.run.model in shapes
        if is_known and (reason := estimator.lacks_memory(spec)):
            problems.setdefault(f"{spec.run.model}, {spec.run.algorithm}", reason)
    return problems


def advise(estimator: Estimator) -> Iterator[str]:
    """Yield the H and micro-batch to take, a line for each model and benchmark with RAPID."""
    pairs = dict.fromkeys(
        (run.benchmark, run.model)
        for run in table_runs(estimator.params)
        if RAPID.named(run.algorithm)
    )
    for benchmark, model in pairs:
        runtimes = rapid_runtimes(estimator, benchmark, model)
        times = ", ".join(f"H={h} {format_duration(seconds)}" for h, seconds in runtimes.items())
        micro_batch = _advise_micro_batch(estimator, benchmark, model)
        yield f"{benchmark}, {model}: H={best_ratio(runtimes)} ({times}); {micro_batch}"


def _rapid_spec(params: Params, benchmark: str, model: str, h: int) -> TrainSpec:
    run = Run(benchmark=benchmark, model=model, algorithm=RAPID.at(h), seed=0)
    return train_spec(params, run)


def rapid_runtimes(estimator: Estimator, benchmark: str, model: str) -> dict[int, float]:
    """Return seconds of RAPID runs by H, 1, 2, 4, ..., as far as there are prompts and memory."""
    params = estimator.params
    largest = max(LARGEST, *params.tables.staleness.H)
    specs = {2**n: _rapid_spec(params, benchmark, model, 2**n) for n in range(largest.bit_length())}
    memory, prompts = estimator.held(specs[1]), specs[1].n_step // specs[1].training.group_size
    limit = min(
        params.benchmarks[benchmark].train / prompts,
        max(1.0, (estimator.room - memory.state) / max(memory.sampling, 1.0)),
    )
    return {
        h: estimator.machine.runtime(estimator.work(spec))
        for h, spec in specs.items()
        if h <= limit
    }


def best_ratio(runtimes: Mapping[int, float]) -> int:
    """Return the last H whose doubling saved a tenth of the runtime."""
    best = 1
    while runtimes.get(2 * best, inf) < WORTH * runtimes[best]:
        best *= 2
    return best


def _advise_micro_batch(estimator: Estimator, benchmark: str, model: str) -> str:
    if estimator.room == inf:
        return "the largest micro-batch is unknown: set --memory"
    spec = _rapid_spec(estimator.params, benchmark, model, 1)
    completions = estimator.held(spec).most_completions(estimator.room)
    if not completions:
        return "not one completion of full length fits in a micro-batch"
    tokens = estimator.expect(benchmark, model).prompt + spec.max_completion_length
    budget = round(completions * tokens)
    return f"micro_batch up to {completions}, a token_budget of {budget}"
