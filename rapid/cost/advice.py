"""Which H to take, and how large passes may be."""

from dataclasses import dataclass
from math import inf

from rapid.algorithms import RAPID
from rapid.config.params import Params
from rapid.config.specs import Run, TrainSpec, runs, train_spec
from rapid.cost.estimates import Plant, train_work
from rapid.cost.memory import largest_h, largest_micro_batch

WORTH = 0.9  # twice the H is worth its staleness where the runtime is less than this share
LARGEST = 16  # what the paper went to; more only where params.yaml does


@dataclass(frozen=True)
class Advice:
    """For RAPID with one model on one benchmark.

    Args:
        runtimes: seconds by H: powers of two up to 16, or to the largest in params.yaml, as far as there
            are prompts and memory for the inference batch.
        H: the last whose doubling saved a tenth.
        micro_batch: completions of full length that fit in a pass; None where memory is not known.
        token_budget: padded tokens of such a pass.
    """

    benchmark: str
    model: str
    runtimes: dict[int, float]
    H: int
    micro_batch: int | None
    token_budget: int | None


def advise(params: Params, plant: Plant) -> list[Advice]:
    """For each model and benchmark that RAPID is run with."""
    pairs = dict.fromkeys(
        (run.benchmark, run.model) for run in runs(params) if RAPID.named(run.algorithm)
    )
    return [_advise(params, plant, *pair) for pair in pairs]


def _advise(params: Params, plant: Plant, benchmark: str, model: str) -> Advice:
    shape, expected = plant.shapes[model], plant.expect(benchmark, model)
    first = _spec(params, benchmark, model, 1)
    prompts = first.n_step // first.training.group_size
    most = params.benchmarks[benchmark].train / prompts
    micro_batch = budget = None
    if plant.memory:
        most = min(most, max(1.0, largest_h(first, shape, expected, plant.memory, plant.base)))
        micro_batch = largest_micro_batch(first, shape, expected, plant.memory, plant.base)
        budget = round(micro_batch * (expected.prompt + first.max_completion_length))
    largest = max(LARGEST, *params.tables.staleness.H)
    ratios = [2**n for n in range(largest.bit_length()) if 2**n <= min(most, largest)]
    runtimes = {h: _runtime(params, plant, _spec(params, benchmark, model, h)) for h in ratios}
    best = ratios[0]
    while runtimes.get(2 * best, inf) < WORTH * runtimes[best]:
        best *= 2
    return Advice(benchmark, model, runtimes, best, micro_batch, budget)


def _spec(params: Params, benchmark: str, model: str, h: int) -> TrainSpec:
    run = Run(benchmark=benchmark, model=model, algorithm=RAPID.at(h), seed=0)
    return train_spec(params, run)


def _runtime(params: Params, plant: Plant, spec: TrainSpec) -> float:
    return plant.machine.seconds(train_work(params, spec, plant.expect)).runtime
