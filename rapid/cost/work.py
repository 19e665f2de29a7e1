"""Counts the work of each job, which does not depend on the machine.

Counts are those of the busiest process of the job. If they depend on random lengths or rewards,
they are expected values. See `rapid.cost` for terms.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from pydantic import BaseModel

from rapid.config.params import Params
from rapid.config.specs import (
    DistillSpec,
    EvaluateSpec,
    PretrainSpec,
    TrainSpec,
    uses_vllm_server,
)
from rapid.cost.expected import Expected

BYTES_PER_NUMBER = {"bfloat16": 2, "float32": 4}  # by precision
TRANSFORMERS_BATCH = 256  # completions that `rapid.sampling` samples at a time with transformers
VLLM_CONCURRENCY = 256  # sequences that vLLM processes at the same time
FORWARD_SHARE = 1 / 3  # share of the forward pass in the time of a forward and backward pass


@dataclass(frozen=True)
class Work:
    """The work of one job."""

    spec: BaseModel
    expected: Expected
    loads: int = 1  # number of times that a model is loaded
    # Sampling.
    completions: float = 0.0  # completions that are sampled and graded
    decoding_steps: float = 0.0  # summed over the calls of the sampler
    rows: float = 0.0  # sequences that a decoding step computes, summed over the steps
    batches: float = 0.0  # inference batches times sampling rounds (DAPO can have several)
    # Training. A forward pass without a backward pass counts `FORWARD_SHARE`.
    steps: float = 0.0  # optimizer steps
    passes: float = 0.0  # forward and backward passes of micro-batches
    tokens: float = 0.0  # tokens in all passes, with prompts and padding

    @property
    def is_supervised(self) -> bool:
        """Return whether the job trains on demonstrations (SFT, pre-training) and not by RL."""
        return self.steps > 0 and not self.completions

    @property
    def grades_while_sampling(self) -> bool:
        """Return whether an RL job grades while it samples.

        It does if it has several cores, and samples in its own processes.
        """
        is_rl = self.steps > 0 and self.completions > 0
        return is_rl and self.spec.compute.threads > 1 and not uses_vllm_server(self.spec)


def get_benchmark_and_model(spec: BaseModel) -> tuple[str, str]:
    """Return the benchmark and the model of a job; "" if it has no benchmark, or no model.

    Pre-training may have several benchmarks. The first of them is returned.
    """
    match spec:
        case DistillSpec():
            return spec.benchmark, spec.teacher
        case PretrainSpec():
            return spec.params.benchmarks[0], spec.model
    run = getattr(spec, "run", spec)
    return getattr(run, "benchmark", ""), getattr(run, "model", "")


def get_precision(spec: BaseModel) -> str:
    """Return the precision of a job's model. For `auto` it is float32, which needs more bytes."""
    # A training spec has the precision in `pass_settings`: its section `training` (for SFT,
    # `objective`). An evaluation spec has it in its section `evaluation`, a distillation spec in
    # none of its sections.
    section = getattr(spec, "pass_settings", getattr(spec, "evaluation", spec))
    precision = getattr(section, "precision", "float32")
    return "float32" if precision == "auto" else precision


def count_processes(spec: BaseModel) -> int:
    """Return the number of a run's training processes, or of the GPUs that share a teacher."""
    if isinstance(spec, TrainSpec):
        return spec.compute.processes
    return getattr(spec, "tensor_parallel", 1)


def count_job_work(spec: BaseModel, params: Params, expect: Callable[[str, str], Expected]) -> Work:
    """Return the work of a job that runs a model.

    Args:
        expect: returns the expectations for a benchmark and a model.
    """
    benchmark, model = get_benchmark_and_model(spec)
    expected, problem_counts = expect(benchmark, model), params.benchmarks[benchmark]
    match spec:
        case PretrainSpec():  # demonstrations in a batch have similar lengths: no padding
            expectations = [expect(name, model) for name in spec.params.benchmarks]
            batch = spec.pretraining.batch
            steps = spec.params.steps * len(expectations)  # `params.steps` are for each benchmark
            lengths = [expectation.prompt + expectation.length for expectation in expectations]
            tokens = spec.params.steps * batch * sum(lengths)
            return Work(spec, expected, steps=steps, passes=steps, tokens=tokens)
        case TrainSpec(training=None):  # SFT, which has no RL settings
            # Of the teacher's completions, only the correct ones are kept as demonstrations.
            kept = problem_counts.train * spec.objective.samples * expected.kept
            demonstrations = spec.objective.demonstrations or kept
            steps = spec.objective.epochs * ceil(demonstrations / spec.objective.batch)
            return count_train_work(spec, steps, expected)
        case TrainSpec():
            problems = spec.problems or problem_counts.train
            # Only whole inference batches of an epoch are sampled.
            batches = problems * spec.training.group_size // (spec.H * spec.n_step)
            steps = spec.training.epochs * batches * count_batch_steps(spec)
            return count_train_work(spec, steps, expected)
        case EvaluateSpec():
            settings = spec.evaluation
            samples = [settings.samples, *[settings.effective_snapshot_samples] * spec.snapshots]
            completions = [problem_counts.test * n for n in samples]  # of each evaluated model
        case _:  # distillation: a teacher samples completions of the training problems
            completions = [problem_counts.train * spec.samples]
    calls = [
        1 if spec.compute.sampler == "vllm" else ceil(count / TRANSFORMERS_BATCH)
        for count in completions
    ]
    total = sum(completions)
    counts = _count_sampling(spec, total, total / sum(calls), expected)
    return Work(spec, expected, loads=len(completions), **counts)


def count_train_work(
    spec: TrainSpec, steps: float, expected: Expected, trained_share: float | None = None
) -> Work:
    """Return the work of a training run.

    Args:
        steps: number of optimizer steps.
        trained_share: share of completions that were trained on, if it was measured. By default it
            is estimated by `estimate_trained_share`.
    """
    processes, micro_batch = count_processes(spec), spec.pass_settings.micro_batch
    if spec.training is None:
        demonstrations = spec.objective.batch / processes  # of a step, in one process
        passes = steps * max(1.0, demonstrations / micro_batch)
        tokens = steps * demonstrations * (expected.prompt + expected.estimate_longest(micro_batch))
        return Work(spec, expected, steps=steps, passes=passes, tokens=tokens)
    group = spec.training.group_size
    if trained_share is None:
        trained_share = estimate_trained_share(spec, expected)
    trained = trained_share * spec.n_step / processes  # completions per step, in one process
    padded = min(group, micro_batch)  # completions that are padded to the longest of them
    # The prompt is computed once for the completions of a group in a micro-batch.
    prompts = trained / min(padded, spec.n_step / processes)
    tokens = prompts * expected.prompt + trained * expected.estimate_longest(padded)
    rounds, drawn = estimate_sampling_rounds(spec, expected)
    inference_batches = steps / count_batch_steps(spec)
    batches = inference_batches * rounds
    completions = inference_batches * drawn * group / processes
    # Completions in a call of the sampler: all of a sampling round, or at most `sampling_batch`.
    batch = min(spec.sampling_batch or completions / batches, completions / batches)
    # How often the tokens of a step are computed, summed over the steps of the run. A forward and
    # backward pass counts as 1, an extra forward pass as FORWARD_SHARE.
    scale = steps * (1 + FORWARD_SHARE * _count_extra_forwards(spec))
    return Work(
        spec,
        expected,
        **_count_sampling(spec, completions, batch, expected, processes),
        batches=batches,
        steps=steps,
        passes=trained / min(micro_batch, spec.n_step / processes) * scale,
        tokens=tokens * scale,
    )


def count_batch_steps(spec: TrainSpec) -> int:
    """Return the optimizer steps of an RL run on each inference batch."""
    return spec.H * spec.training.reuse


def _count_extra_forwards(spec: TrainSpec) -> float:
    """Return how many forward passes without a backward pass an RL step takes on average.

    1. A KL term needs the log-probs of every completion under the reference policy, once.
    2. All but the first step of an inference batch need log mu, the log-probs under the behaviour
       policy. They are computed once, unless the sampler's values are used instead. In float32, or
       with `trust_sampler`, the sampler's values are certain to be used; otherwise we assume that
       they are not. The first step needs log mu too if completions are used again (`reuse`).
    3. All but the first step need the importance weights of a whole group before its backward
       pass, if the loss of a completion depends on all of them (`depends_on_group_weights`) and the
       group takes several micro-batches.
    """
    training, objective = spec.training, spec.objective
    depends_on_group_weights = spec.algorithm.depends_on_group_weights(objective)
    is_split = training.micro_batch < min(training.group_size, spec.n_step / count_processes(spec))
    steps = count_batch_steps(spec)
    computes_log_mu = training.precision != "float32" and not training.trust_sampler
    forward_steps = (getattr(objective, "beta", 0) > 0) * spec.H
    forward_steps += computes_log_mu * (spec.H if training.reuse > 1 else spec.H - 1)
    return (forward_steps + (depends_on_group_weights and is_split) * (steps - 1)) / steps


def estimate_sampling_rounds(spec: TrainSpec, expected: Expected) -> tuple[float, float]:
    """Estimate the numbers of sampling rounds and of sampled groups for an inference batch.

    Only dynamic sampling (DAPO) has more than one round. Each further round replaces the groups
    without a signal (all rewards are equal), until all groups have a signal or the rounds are used
    up.
    """
    rounds = range(spec.algorithm.get_sampling_rounds(spec.objective))
    groups = spec.H * spec.n_step / spec.training.group_size
    # Share of groups that a round has to draw: all groups in the first round, later those that
    # still have no signal.
    missing_shares = [(1 - expected.signal) ** number for number in rounds]
    # A round takes place if at least one group is to be drawn.
    return sum(1 - (1 - share) ** groups for share in missing_shares), groups * sum(missing_shares)


def estimate_trained_share(spec: TrainSpec, expected: Expected) -> float:
    """Estimate the share of groups that are trained on; groups without a gradient are skipped."""
    algorithm, objective = spec.algorithm, spec.objective
    unequal = 1 - (1 - expected.signal) ** algorithm.get_sampling_rounds(objective)
    # By the kind of groups that have a gradient (`rapid.algorithms.groups.GroupKind`).
    shares = {"unequal": unequal, "rewarded": expected.rewarded, "all": 1.0}
    # Only the first step of an inference batch is on-policy.
    first, later = (
        shares[algorithm.get_gradient_group_kind(objective, is_on_policy)]
        for is_on_policy in (True, False)
    )
    steps = count_batch_steps(spec)
    return (first + (steps - 1) * later) / steps


def _count_sampling(
    spec: BaseModel, completions: float, batch: float, expected: Expected, processes: int = 1
) -> dict[str, float]:
    """Return the fields of `Work` that count sampling.

    When a completion ends, vLLM starts another one in its place. transformers computes every row of
    a batch until the longest completion has ended.

    Args:
        completions: number of all completions of a process.
        batch: completions in one call of the process's sampler.
        processes: number of processes that sample, and wait for the slowest after each call.
    """
    vllm = spec.compute.sampler == "vllm"
    in_flight = min(batch, VLLM_CONCURRENCY) if vllm else batch
    # First each completion that ends is replaced by another one, for `refill_steps` decoding steps.
    # Then the last `in_flight` completions run until the longest ends.
    refill_steps = (batch - in_flight) / in_flight * expected.length
    steps = completions / batch * (refill_steps + expected.estimate_longest(in_flight * processes))
    rows = completions * expected.length if vllm else batch * steps
    return {"completions": completions, "decoding_steps": steps, "rows": rows}
