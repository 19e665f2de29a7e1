"""Estimates the cost of each job and of the whole pipeline, and advises on H and micro-batches."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from pydantic import BaseModel

from rapid.algorithms import RAPID, SFT
from rapid.config.jobs import build_plan
from rapid.config.params import Params
from rapid.config.specs import (
    DistillSpec,
    EvaluateSpec,
    FetchSpec,
    PretrainSpec,
    Run,
    TrainSpec,
    build_train_spec,
    list_table_runs,
)
from rapid.cost.expected import Expected, expect
from rapid.cost.memory import (
    USABLE_SHARE,
    ProcessMemory,
    estimate_job_memory,
    max_micro_batch,
    set_micro_batch,
)
from rapid.cost.roofline import Machine, build_default_machine
from rapid.cost.shapes import find_known_shapes
from rapid.cost.work import (
    BYTES_PER_NUMBER,
    Work,
    count_job_work,
    get_benchmark_and_model,
    get_precision,
)
from rapid.freshness import Job
from rapid.resources.requests import count_cores, count_gpus
from rapid.text import format_duration

DOWNLOAD_BYTES_PER_SECOND = 50e6
STAGE_SECONDS = {"data": 5.0, "models": 5.0, "report": 30.0}  # of jobs that run no model
# A larger H is more off-policy. Doubling H is advised only if the runtime with 2H is below this
# share of the runtime with H.
MAX_RUNTIME_RATIO = 0.9
LARGEST_H = 16  # the largest H in the paper; larger ones are tried only if params.yaml has them
SpecWithModel = TrainSpec | EvaluateSpec | DistillSpec | PretrainSpec  # jobs that run a model


@dataclass(frozen=True)
class Estimator:
    """Estimates work and memory of jobs, from parameters, a machine and a user's expectations."""

    params: Params
    machine: Machine
    # Fields of `Expected` that the user sets (`rapid.cost.expected.expect`).
    user_values: Mapping[str, float] = field(default_factory=dict)
    memory: float = inf  # bytes of a GPU, or of a process on a CPU; infinite if not known
    # The report whose jobs are planned: "studies" or "arena"; "": all of `Plan.jobs`, the default.
    report: str = ""

    @property
    def uses_gpus(self) -> bool:
        """Return whether the unit of cost is a GPU; otherwise it is a CPU core."""
        return self.params.compute.device == "gpu"

    @property
    def available_bytes(self) -> float:
        """The bytes that a job's model may take, beyond those of the process's libraries."""
        return USABLE_SHARE * self.memory - self.machine.base_memory

    def expect(self, benchmark: str, model: str) -> Expected:
        """Return the expectations about a model's completions on a benchmark."""
        limit = self.params.benchmarks[benchmark].max_completion_length
        measured = self.machine.measured
        # Without runs of this model: the values of all models, whose key has "" as the model.
        measured_values = measured.get((benchmark, model)) or measured.get((benchmark, ""), {})
        return expect(limit, measured_values, self.user_values)

    def count_work(self, spec: BaseModel) -> Work:
        """Count the work of a job that runs a model."""
        return count_job_work(self.resolve_micro_batch(spec), self.params, self.expect)

    def resolve_micro_batch(self, spec: BaseModel) -> BaseModel:
        """Return a job's spec with `micro_batch: auto` replaced by a number of completions.

        As in training, this is the size of the largest micro-batch that fits into memory.
        """
        if not (isinstance(spec, TrainSpec) and spec.pass_settings.micro_batch == "auto"):
            return spec
        completions = max_micro_batch(spec)
        if self.available_bytes < inf:
            completions = min(
                completions,
                max(1, self._process_memory(spec).max_completions(self.available_bytes)),
            )
        return set_micro_batch(spec, completions)

    def estimate_memory(self, spec: BaseModel) -> ProcessMemory:
        """Return the memory of each process of a job that runs a model."""
        return self._process_memory(self.resolve_micro_batch(spec))

    def _process_memory(self, spec: BaseModel) -> ProcessMemory:
        benchmark, model = get_benchmark_and_model(spec)
        return estimate_job_memory(spec, self.machine.shapes[model], self.expect(benchmark, model))

    def explain_lack_of_memory(self, spec: BaseModel, gpus: int) -> str:
        """Return why a job's model does not fit into memory, and advice; "" if it fits.

        Args:
            gpus: number of GPUs that a teacher can be divided among; not used on CPUs.
        """
        memory = self.estimate_memory(spec)
        if memory.required <= self.available_bytes:
            return ""
        needed = f"{(self.machine.base_memory + memory.required) / 1e9:.0f} GB"
        problem = f"{needed} needed, more than {USABLE_SHARE:.0%} of {self.memory / 1e9:.0f} GB"
        upgrade = "use larger GPUs" if self.uses_gpus else "use a machine with more memory"
        if isinstance(spec, DistillSpec) and self.uses_gpus:
            if spec.tensor_parallel < gpus:
                return f"{problem}: raise the teacher's tensor_parallel, or {upgrade}"
            return f"{problem}: {upgrade}, or more GPUs and a larger tensor_parallel of the teacher"
        if not isinstance(spec, TrainSpec):
            return f"{problem}: {upgrade}"
        section = "training" if spec.training else SFT.key
        if memory.completions > 1:
            return f"{problem}: lower {section}.micro_batch, or set it to auto"
        remedy = "use more or larger GPUs" if self.uses_gpus else upgrade
        if not spec.pass_settings.checkpointing:
            remedy = f"set {section}.checkpointing to true"
        return f"{problem}: a micro-batch is one completion already, so {remedy}"


@dataclass(frozen=True)
class JobCost:
    """The cost of one job."""

    job: Job
    seconds: float
    units: int  # number of GPUs or cores
    memory: float = 0.0  # bytes of one process; 0 if the job runs no model
    disk: float = 0.0  # bytes of the weights that the job saves; its other files are small

    @property
    def unit_seconds(self) -> float:
        """GPU-seconds or core-seconds."""
        return self.seconds * self.units

    @property
    def key(self) -> tuple[str, str, str]:
        """The job's row in the plan."""
        return build_plan_key(self.job)


def build_plan_key(job: Job) -> tuple[str, str, str]:
    """Return a job's row in the plan: benchmark and model (each may be ""), algorithm or stage."""
    spec, stage = job.spec, job.stage
    benchmark, model = get_benchmark_and_model(spec)
    if stage == "models":
        # "make": pre-train the model, or train the tokenizer if there is no model.
        return "", model, "fetch" if isinstance(spec, FetchSpec) else "make"
    # The stage "data" has the name "prepare", as its rule.
    name = spec.run.algorithm if stage == "train" else stage.replace("data", "prepare")
    return benchmark, model, name


def estimate_jobs(estimator: Estimator) -> list[JobCost]:
    """Return the cost of each job, in the order of `rapid.config.jobs` (each after its inputs)."""
    plan, report = build_plan(estimator.params), estimator.report
    jobs = plan.list_with_inputs(f"reports/{report}") if report else plan.jobs
    return [_estimate_job(estimator, job) for job in jobs]


def _estimate_job(estimator: Estimator, job: Job) -> JobCost:
    spec, machine = job.spec, estimator.machine
    units = 0 if estimator.uses_gpus else 1  # jobs that run no model use no GPU
    if isinstance(spec, FetchSpec):
        disk = machine.shapes[spec.model].parameters * BYTES_PER_NUMBER["bfloat16"]
        return JobCost(job, disk / DOWNLOAD_BYTES_PER_SECOND, units, disk=disk)
    if not isinstance(spec, SpecWithModel):
        return JobCost(job, STAGE_SECONDS.get(job.stage, 0.0), units)
    # Number of models that the job saves: 0 (False) for evaluation and distillation.
    models = 1 + spec.snapshots if isinstance(spec, TrainSpec) else isinstance(spec, PretrainSpec)
    parameters = machine.shapes[get_benchmark_and_model(spec)[1]].parameters
    memory = estimator.estimate_memory(spec)
    return JobCost(
        job,
        seconds=sum(machine.estimate_seconds(estimator.count_work(spec)).values()),
        units=max(1, count_gpus(spec)) if estimator.uses_gpus else count_cores(spec),
        memory=machine.base_memory + memory.estimate_peak(estimator.available_bytes),
        disk=models * parameters * BYTES_PER_NUMBER[get_precision(spec)],
    )


def find_longest_chain(costs: list[JobCost]) -> float:
    """Return the seconds until all jobs end, if they wait only for jobs whose files they read."""
    ends: dict[Job, float] = {}
    for cost in costs:
        start = max((ends.get(job, 0.0) for job in cost.job.inputs), default=0.0)
        ends[cost.job] = start + cost.seconds
    return max(ends.values(), default=0.0)


def find_problems(estimator: Estimator, costs: list[JobCost], capacity: int) -> list[str]:
    """Return a line for each reason why jobs cannot run: too little memory, GPUs or cores.

    Args:
        capacity: number of GPUs, or of cores if jobs run on CPUs.
    """
    # (benchmark and model, reason) -> names of jobs, as the keys of a dict, which keep their order.
    names: dict[tuple[str, str], dict[str, None]] = {}
    unit = "GPU" if estimator.uses_gpus else "core"
    for cost in costs:
        benchmark, model, name = cost.key
        subject = ", ".join(filter(None, (benchmark, model)))
        reasons = []
        if cost.memory:
            reasons.append(estimator.explain_lack_of_memory(cost.job.spec, capacity))
        if cost.units > capacity:
            reasons.append(f"needs {cost.units} {unit}s, but there are {capacity}")
        for reason in filter(None, reasons):
            names.setdefault((subject, reason), {})[name] = None
    return [f"{subject}: {', '.join(jobs)}: {reason}" for (subject, reason), jobs in names.items()]


def find_jobs_too_large(params: Params, memory: float, gpus: int) -> dict[str, str]:
    """Return the jobs whose model does not fit into memory, with the reason and advice for each.

    Jobs with models whose size is not known are left out.

    Args:
        memory: bytes of a GPU.
        gpus: number of GPUs.

    Returns:
        The reason and advice in words, by "model, algorithm" or "model, stage".
    """
    shapes = find_known_shapes(params)
    estimator = Estimator(params, build_default_machine("gpu", shapes), memory=memory)
    problems: dict[str, str] = {}
    for job in build_plan(params).jobs:
        _, model, name = build_plan_key(job)
        is_known = isinstance(job.spec, SpecWithModel) and model in shapes
        if is_known and (reason := estimator.explain_lack_of_memory(job.spec, gpus)):
            problems.setdefault(f"{model}, {name}", reason)
    return problems


def advise(estimator: Estimator) -> Iterator[str]:
    """Yield advice on H and micro-batches, a line for each benchmark and model with RAPID runs."""
    pairs = dict.fromkeys(
        (run.benchmark, run.model)
        for run in list_table_runs(estimator.params)
        if RAPID.matches_name(run.algorithm)
    )
    for benchmark, model in pairs:
        runtimes = estimate_rapid_runtimes(estimator, benchmark, model)
        times = ", ".join(f"H={h}: {format_duration(seconds)}" for h, seconds in runtimes.items())
        micro_batch = _advise_micro_batch(estimator, benchmark, model)
        yield f"{benchmark}, {model}: H={choose_H(runtimes)} (runtimes: {times}); {micro_batch}"


def _build_rapid_spec(params: Params, benchmark: str, model: str, h: int) -> TrainSpec:
    run = Run(benchmark=benchmark, model=model, algorithm=RAPID.format_name(h), seed=0)
    return build_train_spec(params, run)


def estimate_rapid_runtimes(estimator: Estimator, benchmark: str, model: str) -> dict[int, float]:
    """Return the estimated seconds of a RAPID run for H = 1, 2, 4, ...

    Values of H are left out if an inference batch needs more prompts than the benchmark has, or
    more memory for keys and values than there is.
    """
    params = estimator.params
    largest = max(LARGEST_H, *params.tables.staleness.H)
    specs = {
        2**n: _build_rapid_spec(params, benchmark, model, 2**n) for n in range(largest.bit_length())
    }
    memory, prompts = (
        estimator.estimate_memory(specs[1]),
        specs[1].n_step // specs[1].training.group_size,
    )
    # An inference batch of H steps needs H times the prompts and the memory of one with H = 1.
    limit = min(
        params.benchmarks[benchmark].train / prompts,
        max(1.0, (estimator.available_bytes - memory.state) / max(memory.sampling, 1.0)),
    )
    return {
        h: estimator.machine.estimate_runtime(estimator.count_work(spec))
        for h, spec in specs.items()
        if h <= limit
    }


def choose_H(runtimes: Mapping[int, float]) -> int:
    """Return the H to advise: 1, doubled as long as doubling saves over a tenth of the runtime.

    Args:
        runtimes: seconds by H, as `estimate_rapid_runtimes` returns them.
    """
    best = 1
    while runtimes.get(2 * best, inf) < MAX_RUNTIME_RATIO * runtimes[best]:
        best *= 2
    return best


def _advise_micro_batch(estimator: Estimator, benchmark: str, model: str) -> str:
    """Return the largest micro-batch that fits into memory, as text."""
    if estimator.available_bytes == inf:
        return "the largest micro-batch is unknown: set --memory"
    spec = _build_rapid_spec(estimator.params, benchmark, model, 1)
    completions = estimator.estimate_memory(spec).max_completions(estimator.available_bytes)
    if not completions:
        return "no micro-batch fits, not even one completion of full length"
    tokens = estimator.expect(benchmark, model).prompt + spec.max_completion_length
    budget = round(completions * tokens)
    return f"micro_batch up to {completions} (in RapidConfig, token_budget={budget})"
