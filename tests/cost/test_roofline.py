"""Seconds on a named GPU."""

from types import SimpleNamespace

import pytest

from rapid.cost.estimates import Estimator
from rapid.cost.expected import Expected
from rapid.cost.roofline import Roofline, efficiency, gpu
from rapid.cost.shapes import published, shapes
from rapid.cost.work import Work
from reports import paper as printed
from reports.plan_versus_paper import COMPARED, rows
from tests.cost.conftest import computing, spec_of

IDEAL = {name: 0 for name in vars(efficiency())} | {"bandwidth": 1, "arithmetic": 1, "link": 1}
SHAPES = published()
NAME = "Qwen2.5-0.5B"


@pytest.fixture
def seconds(paper):
    """Seconds of counted work of a run in bfloat16 with vLLM, on so many A6000."""

    def seconds(processes=1, layer=0, **counts):
        spec, nothing = spec_of(paper, "pg"), Expected(limit=1, length=0, prompt=0)
        work = Work(computing(spec, processes=processes), nothing, **counts)
        reached = SimpleNamespace(**IDEAL | {"layer": layer})
        return Roofline(gpu("a6000"), SHAPES, efficiency=reached).seconds(work)

    return seconds


@pytest.fixture
def sampling(seconds):
    """Seconds of 100 decoding steps of so many rows."""
    return lambda rows: (
        seconds(calls=1, completions=rows, decoding_steps=100, rows=100 * rows).sampling
    )


def test_a_small_decoding_step_reads_all_weights(sampling):
    weights = SHAPES[NAME].multiplied * 2
    assert sampling(1) == pytest.approx(100 * weights / 768e9)
    assert sampling(64) == pytest.approx(sampling(1))


def test_a_large_decoding_step_multiplies_with_them(sampling):
    assert sampling(10000) == pytest.approx(100 * 2 * SHAPES[NAME].multiplied * 10000 / 154.8e12)


def test_backpropagation_takes_six_operations_a_weight_and_token(seconds):
    many, more = (
        seconds(steps=1, passes=1, tokens=tokens).backpropagation for tokens in (1e7, 2e7)
    )
    assert more - many == pytest.approx(6 * SHAPES[NAME].multiplied * 1e7 / 154.8e12)


def test_small_passes_are_bound_by_launching(seconds):
    one, two = (
        seconds(layer=1e-3, steps=1, passes=passes, tokens=10).backpropagation for passes in (1, 2)
    )
    assert two - one == pytest.approx(3 * SHAPES[NAME].layers * 1e-3)


def test_processes_exchange_gradients_and_weights(seconds):
    """And share out the optimizer's state."""
    elsewhere = 3 / 4 * SHAPES[NAME].parameters
    sent, spared = 2 * 2 * elsewhere / 32e9, 28 * elsewhere / 768e9
    one, four = (seconds(count, steps=1).backpropagation for count in (1, 4))
    assert four - one == pytest.approx(sent - spared)


@pytest.mark.parametrize("name", ["pg", "grpo", "rapid-H8"])
def test_a_better_gpu_is_faster(paper, name):
    slow, fast = (
        Estimator(paper, Roofline(gpu(one), shapes(paper, {})), {}).runtime(spec_of(paper, name))
        for one in ("a6000", "h100")
    )
    assert fast < slow


@pytest.mark.parametrize("length", [0.05, 0.25, 0.5])
def test_algorithms_are_in_the_papers_order(paper, length):
    """pg is slower than RAPID at every H and grpo slower than pg, in the paper and in the plan."""
    found = rows(paper, "a6000", {"length": length, "signal": 1.0, "rewarded": 1.0})
    ratios = {(row[0], row[1]): float(row[4]) for row in found}
    for benchmark in paper.benchmarks:
        theirs = printed.main(benchmark, "pg", "runtime")
        for algorithm in COMPARED[2:]:
            assert ratios[benchmark, algorithm] < 1
            assert printed.main(benchmark, algorithm, "runtime") < theirs
        assert ratios[benchmark, "grpo"] >= 1


def test_gpus_have_rates_in_their_units():
    one = gpu("A6000")
    assert one.memory == 48e9
    assert 1e9 < one.link < one.bandwidth < 1e13 < one.fp32 < one.bf16 < 1e16
