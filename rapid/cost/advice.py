"""Which H to take, and how large passes may be."""

from math import inf
from typing import NamedTuple

from rapid.algorithms import RAPID
from rapid.config.specs import Run, runs, train_spec
from rapid.cost.estimates import Estimator
from rapid.cost.memory import USABLE

WORTH = 0.9  # twice the H is worth its staleness where the runtime is less than this share
LARGEST = 16  # what the paper went to; more only where params.yaml does


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
        held, room = (
            estimator.held(first),
            USABLE * estimator.memory - estimator.machine.base_memory,
        )
        most = min(most, max(1.0, (room - held.state) / max(held.sampling, 1.0)))
        micro_batch = held.most_completions(room) // group * group
        prompt = estimator.expect(benchmark, model).prompt
        budget = round(micro_batch * (prompt + first.max_completion_length))
    ratios = [2**n for n in range(largest.bit_length()) if 2**n <= most]
    runtimes = {h: estimator.runtime(spec(h)) for h in ratios}
    best = 1
    while runtimes.get(2 * best, inf) < WORTH * runtimes[best]:
        best *= 2
    return Advice(benchmark, model, runtimes, best, micro_batch, budget)
