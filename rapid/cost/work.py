"""Counts the work of each job: the same for every machine that does it.

Counts are of the busiest process. Where completions or groups are random, they are means.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from pydantic import BaseModel

from rapid.algorithms.names import parse
from rapid.config.params import Params
from rapid.config.specs import DistillSpec, EvaluateSpec, PretrainSpec, TrainSpec
from rapid.cost.expected import Expected

BYTES = {"bfloat16": 2, "float32": 4}  # of a number, by precision
AT_A_TIME = 256  # completions that rapid.sampling samples at a time with transformers
IN_FLIGHT = 256  # sequences that vLLM works on at a time
FORWARD = 1 / 3  # of the seconds of a forward and backward pass


@dataclass(frozen=True)
class Work:
    """The work of one job."""

    spec: BaseModel
    expected: Expected
    loads: int = 1  # of a model
    # Sampling.
    completions: float = 0.0  # each is graded
    decoding_steps: float = 0.0  # of all calls of the sampler
    rows: float = 0.0  # sequences computed, summed over decoding steps
    batches: float = 0.0  # inference batches
    # Training. A forward pass without backward counts `FORWARD`.
    steps: float = 0.0  # of the optimizer
    passes: float = 0.0  # forward and backward, of a micro-batch each
    tokens: float = 0.0  # of these, prompts and padding included

    @property
    def imitates(self) -> bool:
        """Return whether it trains on demonstrations, which is another loop than RL."""
        return self.steps > 0 and not self.completions

    @property
    def streams(self) -> bool:
        """Return whether it grades while it samples: RL with transformers, on several cores."""
        if not (self.steps and self.completions):
            return False
        return self.spec.compute.threads > 1 and self.spec.compute.sampler == "transformers"


def subject(spec: BaseModel) -> tuple[str, str]:
    """Return the benchmark and the model of a job, "" where it has none."""
    match spec:
        case DistillSpec():
            return spec.benchmark, spec.teacher
        case PretrainSpec():
            return spec.params.benchmarks[0], spec.model
    run = getattr(spec, "run", spec)
    return getattr(run, "benchmark", ""), getattr(run, "model", "")


def precision(spec: BaseModel) -> str:
    """Return the precision of a job's model."""
    section = getattr(spec, "passes", getattr(spec, "evaluation", spec))
    return getattr(section, "precision", "float32")


def processes(spec: BaseModel) -> int:
    """Return the processes of a training run, or the GPUs that share a teacher."""
    if isinstance(spec, TrainSpec):
        return spec.compute.processes
    return getattr(spec, "tensor_parallel", 1)


def job_work(spec: BaseModel, params: Params, expect: Callable[[str, str], Expected]) -> Work:
    """Return the work of a job that computes with a model.

    Args:
        expect: returns what is expected of a benchmark and a model.
    """
    benchmark, model = subject(spec)
    expected, sizes = expect(benchmark, model), params.benchmarks[benchmark]
    match spec:
        case PretrainSpec():  # on demonstrations of like lengths, without padding
            learned = [expect(name, model) for name in spec.params.benchmarks]
            batch, steps = spec.pretraining.batch, spec.params.steps * len(learned)
            tokens = spec.params.steps * batch * sum(e.prompt + e.length for e in learned)
            return Work(spec, expected, steps=steps, passes=steps, tokens=tokens)
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
            models, completions = 1 + spec.snapshots, sizes.test * spec.evaluation.samples
        case _:
            models, completions = 1, sizes.train * spec.samples
    calls = 1 if spec.compute.sampler == "vllm" else ceil(completions / AT_A_TIME)
    counts = _sampling(spec, models * completions, completions / calls, expected)
    return Work(spec, expected, loads=models, **counts)


def train_work(spec: TrainSpec, steps: float, expected: Expected, run: float | None = None) -> Work:
    """Return the work of a training run of so many optimizer steps.

    Args:
        run: share of groups that ran, where it is known.
    """
    count, micro_batch = processes(spec), spec.passes.micro_batch
    if spec.training is None:
        share = spec.objective.batch / count
        passes = steps * max(1.0, share / micro_batch)
        tokens = steps * share * (expected.prompt + expected.longest(micro_batch))
        return Work(spec, expected, steps=steps, passes=passes, tokens=tokens)
    group = spec.training.group_size
    run = run_share(spec, expected) if run is None else run
    share = run * spec.n_step / count  # of a step's completions, for a process to train on
    padded = min(group, micro_batch)  # completions that are as wide as the longest of them
    prompts = share / min(padded, spec.n_step / count)  # one for those of a group in a micro-batch
    tokens = prompts * expected.prompt + share * expected.longest(padded)
    rounds, drawn = sampling_rounds(spec, expected)
    batches, completions = steps / spec.H * rounds, steps / spec.H * drawn * group / count
    batch = min(spec.sampling_batch or completions / batches, completions / batches)
    scale = steps * (1 + FORWARD * _further_forwards(spec))
    return Work(
        spec,
        expected,
        **_sampling(spec, completions, batch, expected, count),
        batches=batches,
        steps=steps,
        passes=share / min(micro_batch, spec.n_step / count) * scale,
        tokens=tokens * scale,
    )


def _further_forwards(spec: TrainSpec) -> float:
    """Return the forward passes without backward of an RL step: how often all tokens are in one.

    A KL term needs the reference's log-probs in all steps. Later steps of an inference batch
    compute log mu, unless the sampler's is the policy's, and the importance weights of a group that
    is run in several passes where each completion needs them all.
    """
    training, objective = spec.training, spec.objective
    compares_weights = parse(spec.run.algorithm).algorithm.compares_weights(objective)
    is_split = training.micro_batch < min(training.group_size, spec.n_step / processes(spec))
    later = (training.precision != "float32") + (compares_weights and is_split)
    return (getattr(objective, "beta", 0) > 0) + later * (spec.H - 1) / spec.H


def sampling_rounds(spec: TrainSpec, expected: Expected) -> tuple[float, float]:
    """Return the mean rounds of sampling for an inference batch, and the groups that they draw.

    Only dynamic sampling has more than one round. Each draws the groups that are still without
    signal, until none is or the rounds are over.
    """
    rounds = range(parse(spec.run.algorithm).algorithm.rounds(spec.objective))
    groups = spec.H * spec.n_step / spec.training.group_size
    dead = [(1 - expected.signal) ** number for number in rounds]  # share of groups, before each
    return sum(1 - (1 - share) ** groups for share in dead), groups * sum(dead)


def run_share(spec: TrainSpec, expected: Expected) -> float:
    """Return the mean share of groups that may have a gradient. The others are not run."""
    algorithm, objective = parse(spec.run.algorithm).algorithm, spec.objective
    unequal = 1 - (1 - expected.signal) ** algorithm.rounds(objective)
    shares = {"unequal": unequal, "rewarded": expected.rewarded, "all": 1.0}
    first, later = (shares[algorithm.gradient_groups(objective, fresh)] for fresh in (True, False))
    return (first + (spec.H - 1) * later) / spec.H


def _sampling(
    spec: BaseModel, completions: float, batch: float, expected: Expected, waiting: int = 1
) -> dict[str, float]:
    """Return counts of sampling completions, a batch in a call of the sampler.

    vLLM fills the places of completions that have ended; transformers computes every row to the
    last. `waiting` processes wait for each other's calls.
    """
    vllm = spec.compute.sampler == "vllm"
    in_flight = min(batch, IN_FLIGHT) if vllm else batch
    refilled = (batch - in_flight) / in_flight * expected.length
    steps = completions / batch * (refilled + expected.longest(in_flight * waiting))
    rows = completions * expected.length if vllm else batch * steps
    return {"completions": completions, "decoding_steps": steps, "rows": rows}
