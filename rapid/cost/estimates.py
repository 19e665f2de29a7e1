"""The cost of every job of the pipeline, and of all together."""

from collections.abc import Mapping
from dataclasses import dataclass

from rapid.algorithms import IMITATING
from rapid.config.jobs import Job, jobs
from rapid.config.params import Params
from rapid.config.sections import Section
from rapid.config.specs import (
    DistillSpec,
    EvaluateSpec,
    FetchSpec,
    PrepareSpec,
    PretrainSpec,
    Run,
    TrainSpec,
)
from rapid.cost.expected import Expected
from rapid.cost.memory import USABLE, model_disk, pass_completions, process_bytes
from rapid.cost.seconds import Machine, Seconds
from rapid.cost.sizes import Shape
from rapid.cost.work import (
    Expect,
    Work,
    distillation_work,
    evaluation_work,
    optimizer_steps,
    pretraining_work,
    processes,
    rl_work,
    sft_steps,
    sft_work,
)
from rapid.machine.resources import cores

DOWNLOAD = 50e6  # bytes a second
SMALL = {"data": 5.0, "models": 5.0, "report": 30.0}  # seconds of jobs without a model
STEP_BYTES, SCORE_BYTES, DEMONSTRATION_BYTES = 400, 60, 1000  # a row of the files that jobs leave


@dataclass(frozen=True)
class Plant:
    """What the jobs run on.

    Args:
        memory: bytes of a GPU, or that a process may have; None where it is not known.
        base: bytes that a process has besides what its model explains.
        gpus: whether jobs take GPUs; else cores.
    """

    machine: Machine
    shapes: Mapping[str, Shape]
    expect: Expect
    memory: float | None
    base: float
    gpus: bool


@dataclass(frozen=True)
class Estimate:
    """One job. `units` are GPUs or cores; memory is of one process, in bytes, None where small."""

    job: Job
    seconds: Seconds
    units: int
    memory: float | None
    disk: float

    @property
    def unit_seconds(self) -> float:
        return self.seconds.total * self.units


@dataclass(frozen=True)
class Total:
    """Of all jobs: seconds. `wall` is at least the longest chain, and at least work over units."""

    work: float
    longest_chain: float
    wall: float
    disk: float


def estimates(params: Params, plant: Plant) -> list[Estimate]:
    """Of each job, in the order of `rapid.config.jobs`."""
    return [estimate(params, plant, job) for job in jobs(params)]


def estimate(params: Params, plant: Plant, job: Job) -> Estimate:
    """Of one job."""
    spec = job.spec
    match spec:
        case TrainSpec():
            seconds = plant.machine.seconds(train_work(params, spec, plant.expect))
            shape, expected = _of(plant, spec.run)
            is_sft = spec.training is None
            precision = spec.objective.precision if is_sft else spec.training.precision
            disk = (1 + spec.snapshots) * model_disk(shape, precision)
            disk += STEP_BYTES * (0 if is_sft else _steps(params, spec))
        case EvaluateSpec():
            problems = params.benchmarks[spec.run.benchmark].test
            shape, expected = _of(plant, spec.run)
            seconds = plant.machine.seconds(evaluation_work(spec, problems, expected))
            disk = SCORE_BYTES * problems * (1 + spec.snapshots)
        case DistillSpec():
            problems = params.benchmarks[spec.benchmark].train
            shape, expected = plant.shapes[spec.teacher], plant.expect(spec.benchmark, spec.teacher)
            seconds = plant.machine.seconds(distillation_work(spec, problems, expected))
            disk = DEMONSTRATION_BYTES * problems * spec.samples * expected.kept
        case PretrainSpec():
            shape = plant.shapes[spec.model]
            expected = plant.expect(spec.params.benchmarks[0], spec.model)
            seconds = plant.machine.seconds(pretraining_work(spec, params, plant.expect))
            disk = model_disk(shape, "float32")
        case FetchSpec():
            size = model_disk(plant.shapes[spec.model], "bfloat16")
            return Estimate(job, Seconds(other=size / DOWNLOAD), 0 if plant.gpus else 1, None, size)
        case _:
            rows = spec.train + spec.test if isinstance(spec, PrepareSpec) else 0
            seconds = Seconds(other=SMALL[job.stage])
            return Estimate(job, seconds, 0 if plant.gpus else 1, None, DEMONSTRATION_BYTES * rows)
    memory = process_bytes(spec, shape, expected, plant.base)
    return Estimate(job, seconds, units(spec, plant.gpus), memory, disk)


def train_work(params: Params, spec: TrainSpec, expect: Expect) -> Work:
    """Counted work of a training run: RL or sft."""
    expected = expect(spec.run.benchmark, spec.run.model)
    if spec.training is not None:
        return rl_work(spec, _steps(params, spec), expected)
    problems = params.benchmarks[spec.run.benchmark].train
    demonstrations = problems * params.imitation.samples * expected.kept
    return sft_work(spec, sft_steps(spec, demonstrations), expected)


def units(spec: Section, gpus: bool) -> int:
    """GPUs or cores that a job takes."""
    return getattr(spec, "tensor_parallel", processes(spec)) if gpus else cores(spec)


def total(found: list[Estimate], capacity: int) -> Total:
    """Of all jobs, side by side on so many GPUs or cores.

    A bound from below: it packs jobs perfectly, but not faster than the longest chain of jobs each of
    which needs the one before.
    """
    work, chain = sum(one.unit_seconds for one in found), longest_chain(found)
    return Total(work, chain, max(work / capacity, chain), sum(one.disk for one in found))


def longest_chain(found: list[Estimate]) -> float:
    """Seconds until the last job ends, if nothing ever waits for a GPU or a core."""
    ends: dict[Job, float] = {}
    for one in found:
        before = max((ends.get(job, 0.0) for job in one.job.inputs), default=0.0)
        ends[one.job] = before + one.seconds.total
    return max(ends.values(), default=0.0)


def warnings(plant: Plant, found: list[Estimate], capacity: int) -> list[str]:
    """What will not run as it is planned, a line for each cause."""
    said: dict[str, list[str]] = {}
    unit = "GPU" if plant.gpus else "core"

    def say(where: str, algorithm: str, why: str) -> None:
        said.setdefault(f"{where}: {{}}: {why}", []).append(algorithm)

    for one in found:
        where, name, spec = ", ".join(filter(None, place(one.job))), kind(one.job), one.job.spec
        if one.memory and plant.memory and one.memory > USABLE * plant.memory:
            say(
                where,
                name,
                f"{one.memory / 1e9:.0f} GB are more than {USABLE:.0%} of "
                f"{plant.memory / 1e9:.0f} GB: {_remedy(spec)}",
            )
        if one.units > capacity:
            say(where, name, f"takes {one.units} {unit}s, and there are {capacity}")
        if isinstance(spec, TrainSpec) and spec.training:
            sampled, count = spec.H * spec.n_step, processes(spec)
            if sampled % count:
                say(
                    where,
                    name,
                    f"{count} processes cannot share {sampled} completions (H x n_step) evenly, and the "
                    "trainer refuses that: change n_step or compute.processes",
                )
    return [line.format(", ".join(dict.fromkeys(names))) for line, names in said.items()]


def _remedy(spec: Section) -> str:
    """What to change where a job does not fit."""
    if not isinstance(spec, TrainSpec):
        return "share it over more GPUs, or take larger ones"
    if spec.training is None:
        return f"a pass is too large: make {IMITATING.key}.micro_batch smaller"
    if pass_completions(spec) > spec.training.group_size:
        return "make training.micro_batch smaller"
    return "a pass is one group or less already: take more or larger GPUs"


def _of(plant: Plant, run: Run) -> tuple[Shape, Expected]:
    return plant.shapes[run.model], plant.expect(run.benchmark, run.model)


def _steps(params: Params, spec: TrainSpec) -> int:
    return optimizer_steps(spec, params.benchmarks[spec.run.benchmark].train)


def place(job: Job) -> tuple[str, str]:
    """Benchmark and model of a job, "" where it has none."""
    spec = getattr(job.spec, "run", job.spec)
    model = getattr(spec, "model", "") or getattr(spec, "teacher", "") * (job.stage == "distill")
    return getattr(spec, "benchmark", ""), model


def kind(job: Job) -> str:
    """What a row calls it: the algorithm of a run, else the stage."""
    if job.stage == "train":
        return job.spec.run.algorithm
    names = {"data": "prepare", "models": "make"}
    return "fetch" if isinstance(job.spec, FetchSpec) else names.get(job.stage, job.stage)


def by_stage(found: list[Estimate]) -> dict[str, float]:
    """Unit-seconds of each stage."""
    sums: dict[str, float] = {}
    for one in found:
        sums[one.job.stage] = sums.get(one.job.stage, 0.0) + one.unit_seconds
    return sums
