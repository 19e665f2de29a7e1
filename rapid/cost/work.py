"""What each job does, counted: the same for every machine that does it.

Counts are of the busiest process. Where completions or groups are random, they are means.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, sqrt
from statistics import fmean
from typing import NamedTuple

from pydantic import BaseModel

from rapid.algorithms.names import parse
from rapid.config.params import Params
from rapid.config.specs import DistillSpec, EvaluateSpec, PretrainSpec, TrainSpec
from rapid.cost.expected import Expected

BYTES = {"bfloat16": 2, "float32": 4}  # of a number, by precision
AT_A_TIME = 256  # completions that rapid.sampling samples at a time with transformers
IN_FLIGHT = 256  # sequences that vLLM works on at a time
FORWARD = 1 / 3  # of the seconds of a forward and backward pass

Expect = Callable[[str, str], Expected]  # of a benchmark and a model


class Seconds(NamedTuple):
    """Wall-clock seconds of a job by phase; `startup` comes before what a runtime is made of."""

    sampling: float = 0.0
    grading: float = 0.0
    backpropagation: float = 0.0
    sync: float = 0.0
    other: float = 0.0
    startup: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of all phases."""
        return sum(self)

    @property
    def runtime(self) -> float:
        """Seconds without start-up, as in summary.json."""
        return self.total - self.startup


@dataclass(frozen=True)
class Work:
    """What one job does."""

    spec: BaseModel
    expected: Expected
    # Sampling.
    loads: int = 1  # of a model
    group: int = 1  # completions of one prompt that are sampled together
    calls: float = 0.0  # of the sampler, one after another
    completions: float = 0.0  # each is graded
    decoding_steps: float = 0.0  # of all calls
    rows: float = 0.0  # sequences computed, summed over decoding steps
    batches: float = 0.0  # inference batches
    # Training. A forward pass without backward counts `FORWARD`.
    steps: float = 0.0  # of the optimizer
    passes: float = 0.0  # forward and backward
    tokens: float = 0.0  # of these, prompts and padding included

    @property
    def imitates(self) -> bool:
        """Return whether it trains on demonstrations, which is another loop than RL."""
        return self.steps > 0 and not self.completions

    @property
    def context(self) -> float:
        """Tokens that a token of a training pass attends to, about."""
        return self.expected.prompt + self.expected.mean / 2

    def grading(self, verdict: float, sampling: float) -> float:
        """Return the seconds that verdicts of so many seconds add to those of sampling."""
        seconds = verdict * self.completions
        return max(0.0, seconds - sampling) if self.streams else seconds

    @property
    def streams(self) -> bool:
        """Return whether it grades while it samples: RL with transformers, on several cores."""
        if not (self.steps and self.completions) or self.spec.compute.threads == 1:
            return False
        return self.spec.compute.sampler == "transformers"


def subject(spec: BaseModel) -> tuple[str, str]:
    """Return the benchmark and the model of a job, "" where it has none."""
    match spec:
        case DistillSpec():
            return spec.benchmark, spec.teacher
        case PretrainSpec():
            return spec.params.benchmarks[0], spec.model
    named = getattr(spec, "run", spec)
    return getattr(named, "benchmark", ""), getattr(named, "model", "")


def precision(spec: BaseModel) -> str:
    """Return the precision of a job's model."""
    match spec:
        case TrainSpec():
            return spec.passes.precision
        case EvaluateSpec():
            return spec.evaluation.precision
        case DistillSpec():
            return spec.precision
    return "float32"


def processes(spec: BaseModel) -> int:
    """Return the processes of a training run, or the GPUs that share a teacher."""
    if isinstance(spec, TrainSpec):
        return spec.compute.processes
    return getattr(spec, "tensor_parallel", 1)


def job_work(spec: BaseModel, params: Params, expect: Expect) -> Work:
    """Return the work of a job that computes with a model."""
    if isinstance(spec, PretrainSpec):
        return _pretraining(spec, expect)
    benchmark, model = subject(spec)
    expected, sizes = expect(benchmark, model), params.benchmarks[benchmark]
    match spec:
        case TrainSpec(training=None):
            sampled = sizes.train * spec.objective.samples * expected.kept
            demonstrations = spec.objective.demonstrations or sampled
            steps = spec.objective.epochs * ceil(demonstrations / spec.objective.batch)
            return train_work(spec, steps, expected)
        case TrainSpec():
            problems = spec.problems or sizes.train
            batches = problems * spec.training.group_size // (spec.H * spec.n_step)  # whole ones
            return train_work(spec, spec.training.epochs * batches * spec.H, expected)
        case EvaluateSpec():
            completions = sizes.test * spec.evaluation.samples
            return _sampled_once(spec, completions, expected, models=1 + spec.snapshots)
    return _sampled_once(spec, sizes.train * spec.samples, expected)


def train_work(spec: TrainSpec, steps: float, expected: Expected, run: float | None = None) -> Work:
    """Return the work of a training run of so many optimizer steps.

    Args:
        run: share of groups that ran, where it is known.
    """
    count = processes(spec)
    if spec.training is None:
        each, micro_batch = spec.objective.batch / count, spec.objective.micro_batch
        passes = steps * max(1.0, each / micro_batch)
        tokens = steps * each * (expected.prompt + expected.longest(micro_batch))
        return Work(spec, expected, steps=steps, passes=passes, tokens=tokens)
    group = spec.training.group_size
    run = run_share(spec, expected) if run is None else run
    groups = spec.n_step / group
    alive = 1 - (1 - run) ** groups  # the probability that a step has anything to run
    # Processes divide a step's groups; where they are more than the groups, its completions.
    busiest = max(groups * run / count, alive if groups >= count else 0.0)
    micro_batch = spec.training.micro_batch
    passes = max(busiest * group / micro_batch, alive)
    together = min(group, micro_batch)  # as wide as the longest of these, with one prompt
    tokens = max(busiest, alive) * expected.prompt * group / together
    tokens += busiest * group * expected.longest(together)
    # Later steps of an inference batch compute log mu, unless the sampler's is the policy's. A KL
    # term needs the reference's log-probabilities in all of them.
    exact, referred = spec.training.precision == "float32", getattr(spec.objective, "beta", 0) > 0
    # So does the weight of a completion in a group that is run in several passes.
    compared = parse(spec.run.algorithm).algorithm.compares_weights(spec.objective)
    later = (not exact) + (compared and micro_batch < min(group, spec.n_step / count))
    again = 1 + FORWARD * (referred + later * (spec.H - 1) / spec.H)
    return Work(
        spec,
        expected,
        **_rl_sampling(spec, steps, expected),
        group=group,
        steps=steps,
        passes=steps * passes * again,
        tokens=steps * tokens * again,
    )


def rounds(spec: TrainSpec, expected: Expected) -> list[tuple[float, float]]:
    """Return how likely each round of an inference batch's sampling is, and of how many groups.

    Only dynamic sampling has more than one round. Each draws the groups that are still without
    signal, until none is or the rounds are over.
    """
    groups, found = spec.H * spec.n_step / spec.training.group_size, []
    for number in range(parse(spec.run.algorithm).algorithm.rounds(spec.objective)):
        dead = (1 - expected.signal) ** number  # the probability that a group has none yet
        probability = 1 - (1 - dead) ** groups
        if probability > 0:
            found.append((probability, groups * dead / probability))
    return found


def run_share(spec: TrainSpec, expected: Expected) -> float:
    """Return the mean share of groups that may have a gradient. The others are not run."""
    algorithm, objective = parse(spec.run.algorithm).algorithm, spec.objective
    shares = {"unequal": expected.signal, "rewarded": expected.rewarded, "all": 1.0}
    if (count := algorithm.rounds(objective)) > 1:
        shares["unequal"] = 1 - (1 - expected.signal) ** count
    first, later = (shares[algorithm.gradient_groups(objective, known)] for known in (True, False))
    return first if first == later else (first + (spec.H - 1) * later) / spec.H


def _rl_sampling(spec: TrainSpec, steps: float, expected: Expected) -> dict[str, float]:
    """Return counts of a run's sampling. All processes wait for the one that samples longest."""
    group, count = spec.training.group_size, processes(spec)
    counts: Counter[str] = Counter()
    for number, (probability, groups) in enumerate(rounds(spec, expected)):
        batches = steps / spec.H * probability
        each = groups * group / count
        each = max(group, each) if number else each  # a process draws whole groups anew
        size = min(spec.sampling_batch or each, each)
        chunks = each / size
        # The sum over a process's chunks varies less, the more there are.
        longest = expected.longest(size)
        wait = (expected.longest(size * count) - longest) / sqrt(chunks)
        counts.update(_sampling(spec, batches * chunks, size, longest + wait, expected))
        counts["batches"] += batches
    return counts


def _sampling(
    spec: BaseModel, calls: float, completions: float, steps: float, expected: Expected
) -> dict[str, float]:
    """Return counts of calls of the sampler, each with so many completions and decoding steps.

    vLLM drops what has ended from its batch; transformers computes every row to the last.
    """
    vllm = spec.compute.sampler == "vllm"
    return {
        "calls": calls,
        "completions": calls * completions,
        "decoding_steps": calls * steps,
        "rows": calls * completions * (expected.mean if vllm else expected.longest(completions)),
    }


def _sampled_once(
    spec: EvaluateSpec | DistillSpec, completions: float, expected: Expected, models: int = 1
) -> Work:
    """Return the work of a process that samples all completions and does nothing meanwhile."""
    if spec.compute.sampler == "vllm":
        calls, together = 1, min(completions, IN_FLIGHT)
        steps = (completions - together) * expected.mean / together + expected.longest(together)
    else:
        calls = ceil(completions / AT_A_TIME)
        steps = expected.longest(completions / calls)
    counts = _sampling(spec, calls * models, completions / calls, steps, expected)
    return Work(spec, expected, loads=models, **counts)


def _pretraining(spec: PretrainSpec, expect: Expect) -> Work:
    """Return the work of pre-training: demonstrations of like lengths, without padding."""
    expected = [expect(name, spec.model) for name in spec.params.benchmarks]
    prompt, length = fmean(one.prompt for one in expected), fmean(one.length for one in expected)
    mean = replace(expected[0], prompt=prompt, length=length)
    steps = spec.params.steps * len(expected)
    tokens = steps * spec.pretraining.batch * (prompt + length)
    return Work(spec, mean, steps=steps, passes=steps, tokens=tokens)
