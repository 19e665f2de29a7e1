"""What a job does, counted: the same for every machine that does it.

Counts are of the busiest process; where completions or groups are random, they are means.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, sqrt

from rapid.config.params import Params
from rapid.config.sections import Compute, ModelParams, Section
from rapid.config.specs import DistillSpec, EvaluateSpec, PretrainSpec, TrainSpec
from rapid.cost.expected import Expected, rounds, run_share
from rapid.cost.lengths import Lengths

AT_A_TIME = 512  # completions that evaluation and distillation sample at a time with transformers
IN_FLIGHT = 256  # sequences that vLLM works on at a time


@dataclass(frozen=True)
class Sampling:
    """Calls of the sampler, all alike.

    Args:
        calls: one after another.
        completions: of a call.
        steps: decoding steps of a call.
        rows: sequences computed, summed over the steps of a call.
        tokens: mean of a completion.
        prompt: tokens of a prompt.
        sharing: completions of one prompt.
    """

    calls: float
    completions: float
    steps: float
    rows: float
    tokens: float
    prompt: float
    sharing: int


@dataclass(frozen=True)
class Training:
    """Forward and backward passes and what goes with them.

    Args:
        imitates: supervised, not RL: another loop.
        steps: of the optimizer.
        passes: forward and backward.
        tokens: of these, prompts and padding included.
        forward_passes, forward_tokens: without backward: log mu, and the reference model's.
        context: tokens that a token attends to, about.
    """

    imitates: bool
    steps: float
    passes: float
    tokens: float
    forward_passes: float = 0.0
    forward_tokens: float = 0.0
    reference_tokens: float = 0.0
    context: float = 0.0


@dataclass(frozen=True)
class Work:
    """One job: `model` is whose weights it computes with, `loads` how often it loads such."""

    model: str
    benchmark: str
    precision: str
    sampler: str
    processes: int
    sampling: tuple[Sampling, ...] = ()
    sampling_batches: float = 0.0
    graded: float = 0.0
    graders: int = 1
    training: Training | None = None
    loads: int = 1

    @property
    def completions(self) -> float:
        """Sampled, of one process."""
        return sum(one.calls * one.completions for one in self.sampling)


Expect = Callable[[str, str], Expected]  # of a benchmark and a model


def processes(spec: Section) -> int:
    """Of a job: only RL runs have several."""
    is_rl = isinstance(spec, TrainSpec) and spec.training is not None
    return spec.compute.processes if is_rl else 1


def optimizer_steps(spec: TrainSpec, problems: int) -> int:
    """Of an RL run."""
    return problems * spec.training.group_size * spec.training.epochs // spec.n_step


def rl_work(spec: TrainSpec, steps: int, expected: Expected, run: float | None = None) -> Work:
    """An RL run of so many optimizer steps.

    Args:
        run: share of groups that ran, where it is known.
    """
    training, count = spec.training, processes(spec)
    group, lengths = training.group_size, expected.lengths(spec.max_completion_length)
    run = run_share(spec, expected) if run is None else run
    sampled = _rl_sampling(spec, steps, expected, lengths)

    groups = spec.n_step / group
    alive = 1 - (1 - run) ** groups  # the probability that a step has anything to run
    # Processes divide a step's groups; where they are more than the groups, its completions.
    busiest = max(groups * run / count, alive if groups >= count else 0.0)
    passes = max(busiest * group / training.micro_batch, alive)
    prompts = max(busiest, alive) * expected.prompt
    tokens = prompts + busiest * group * lengths.longest(group)
    exact = spec.training.precision == "float32"  # the sampler's log mu is the policy's
    again = 0.0 if exact else (spec.H - 1) / spec.H
    beta = getattr(spec.objective, "beta", 0)
    whole = spec.n_step / count * (expected.prompt + lengths.longest(group))  # TRL's own pass
    return Work(
        model=spec.run.model,
        benchmark=spec.run.benchmark,
        precision=training.precision,
        sampler=spec.compute.sampler,
        processes=count,
        sampling=sampled,
        sampling_batches=sum(steps / spec.H * one.probability for one in rounds(spec, expected)),
        graded=sum(one.calls * one.completions for one in sampled),
        graders=spec.compute.threads,
        training=Training(
            imitates=False,
            steps=steps,
            passes=steps * passes,
            tokens=steps * tokens,
            forward_passes=steps * passes * again,
            forward_tokens=steps * tokens * again,
            reference_tokens=steps * whole if beta else 0.0,
            context=expected.prompt + lengths.mean / 2,
        ),
    )


def _rl_sampling(
    spec: TrainSpec, steps: float, expected: Expected, lengths: Lengths
) -> tuple[Sampling, ...]:
    """The rounds of sampling of a run. All processes wait for the one that samples longest."""
    group, count = spec.training.group_size, processes(spec)
    made = []
    for number, one in enumerate(rounds(spec, expected)):
        each = one.groups * group * spec.H / count
        each = max(group, each) if number else each  # a process draws whole groups anew
        size = min(spec.sampling_batch or each, each)
        chunks = each / size
        # The sum over a process's chunks varies less, the more there are.
        wait = lengths.longest(size * count) - lengths.longest(size)
        made.append(
            _calls(
                spec.compute.sampler,
                steps / spec.H * one.probability * chunks,
                size,
                lengths.longest(size) + wait / sqrt(chunks),
                lengths,
                expected,
                group,
            )
        )
    return tuple(made)


def _calls(
    sampler: str,
    calls: float,
    completions: float,
    steps: float,
    lengths: Lengths,
    expected: Expected,
    sharing: int,
) -> Sampling:
    """vLLM drops what has ended from its batch; transformers computes every row to the last step."""
    rows = completions * (lengths.mean if sampler == "vllm" else lengths.longest(completions))
    return Sampling(calls, completions, steps, rows, lengths.mean, expected.prompt, sharing)


def _sampled_once(
    sampler: str, completions: float, lengths: Lengths, expected: Expected
) -> tuple[Sampling, ...]:
    """One process samples them all and does nothing else meanwhile."""
    if sampler == "vllm":
        together = min(completions, IN_FLIGHT)
        steps = (completions - together) * lengths.mean / together + lengths.longest(together)
        rows = completions * lengths.mean
        return (Sampling(1, completions, steps, rows, lengths.mean, expected.prompt, 1),)
    calls = ceil(completions / AT_A_TIME)
    each = completions / calls
    return (_calls(sampler, calls, each, lengths.longest(each), lengths, expected, 1),)


def evaluation_work(spec: EvaluateSpec, problems: int, expected: Expected) -> Work:
    completions = problems * spec.evaluation.samples
    lengths = expected.lengths(spec.max_completion_length)
    models = 1 + spec.snapshots
    return Work(
        model=spec.run.model,
        benchmark=spec.run.benchmark,
        precision=spec.evaluation.precision,
        sampler=spec.compute.sampler,
        processes=1,
        sampling=_sampled_once(spec.compute.sampler, completions, lengths, expected) * models,
        graded=models * completions,
        loads=models,
    )


def distillation_work(spec: DistillSpec, problems: int, expected: Expected) -> Work:
    completions = problems * spec.samples
    lengths = expected.lengths(spec.max_completion_length)
    return Work(
        model=spec.teacher,
        benchmark=spec.benchmark,
        precision=spec.precision,
        sampler=spec.compute.sampler,
        processes=spec.tensor_parallel,
        sampling=_sampled_once(spec.compute.sampler, completions, lengths, expected),
        graded=completions,
    )


def sft_steps(spec: TrainSpec, demonstrations: float) -> float:
    """Optimizer steps on so many demonstrations."""
    return spec.objective.epochs * ceil(demonstrations / spec.objective.batch)


def sft_work(spec: TrainSpec, steps: float, expected: Expected) -> Work:
    lengths, batch = expected.lengths(spec.max_completion_length), spec.objective.batch
    return _imitation(
        spec.run.model,
        spec.run.benchmark,
        spec.objective.precision,
        spec.compute,
        steps,
        batch * (expected.prompt + lengths.longest(spec.objective.micro_batch)),
        expected.prompt + lengths.mean / 2,
    )


def pretraining_work(spec: PretrainSpec, params: Params, expect: Expect) -> Work:
    model: ModelParams = spec.params
    means = [expect(name, spec.model) for name in model.benchmarks]
    tokens = sum(one.prompt + one.length for one in means) / len(
        means
    )  # of like lengths: no padding
    steps = model.steps * len(model.benchmarks)
    return _imitation(
        spec.model,
        model.benchmarks[0],
        "float32",
        params.compute,
        steps,
        spec.pretraining.batch * tokens,
        tokens / 2,
    )


def _imitation(
    model: str,
    benchmark: str,
    precision: str,
    compute: Compute,
    steps: float,
    batch_tokens: float,
    context: float,
) -> Work:
    return Work(
        model=model,
        benchmark=benchmark,
        precision=precision,
        sampler=compute.sampler,
        processes=1,
        training=Training(
            imitates=True, steps=steps, passes=steps, tokens=steps * batch_tokens, context=context
        ),
    )
