"""Seconds on a named GPU."""

import pytest

from rapid.algorithms import RAPID
from rapid.config.jobs import list_jobs
from rapid.cost.estimates import Estimator
from rapid.cost.expected import Expected
from rapid.cost.roofline import Machine, efficiency, gpu, named_gpu
from rapid.cost.shapes import load_shapes, published
from rapid.cost.work import Work
from reports import paper as printed
from tests.cost.conftest import computing, spec_of

IDEAL = dict.fromkeys(efficiency("gpu"), 0) | {"bandwidth": 1, "arithmetic": 1, "link": 1}
SHAPES = published()
NAME = "Qwen2.5-0.5B"


@pytest.fixture
def seconds(paper):
    """Seconds of counted work of a run in bfloat16 with vLLM, on so many A6000."""

    def seconds(phase, processes=1, layer=0, prompt=0, **counts):
        spec, expected = spec_of(paper, "pg"), Expected(limit=1, length=0, prompt=prompt)
        work = Work(computing(spec, processes=processes), expected, **counts)
        return Machine(gpu("a6000"), IDEAL | {"layer": layer}, SHAPES).seconds(work)[phase]

    return seconds


@pytest.fixture
def sampling(seconds):
    """Seconds of 100 decoding steps of so many rows after prompts of a length."""

    def sampling(rows, prompt=0):
        counts = {"completions": rows, "decoding_steps": 100, "rows": 100 * rows}
        return seconds("sampling", prompt=prompt, **counts)

    return sampling


def test_a_small_decoding_step_reads_all_weights_and_the_keys_and_values(sampling):
    weights = SHAPES[NAME].multiplied * 2
    assert sampling(1) == pytest.approx(100 * weights / 768e9)
    assert sampling(64) == pytest.approx(sampling(1))
    cached = 8 * 1000 * 24 * 2 * 2 * 64 * 2  # 24 layers, keys and values of 2 heads of 64, 2 bytes
    assert sampling(8, prompt=1000) == pytest.approx(100 * (weights + cached) / 768e9)


def test_a_large_decoding_step_multiplies_with_them(sampling):
    assert sampling(10000) == pytest.approx(100 * 2 * SHAPES[NAME].multiplied * 10000 / 154.8e12)


def test_backpropagation_takes_six_operations_a_weight_and_token(seconds):
    small, large = (
        seconds("backpropagation", steps=1, passes=1, tokens=tokens) for tokens in (1e7, 2e7)
    )
    assert large - small == pytest.approx(6 * SHAPES[NAME].multiplied * 1e7 / 154.8e12)


def test_small_passes_are_bound_by_launching(seconds):
    single, double = (
        seconds("backpropagation", layer=1e-3, steps=1, passes=passes, tokens=10)
        for passes in (1, 2)
    )
    assert double - single == pytest.approx(3 * SHAPES[NAME].layers * 1e-3)


def test_processes_exchange_gradients_and_weights(seconds):
    """And share out the optimizer's state."""
    elsewhere = 3 / 4 * SHAPES[NAME].parameters
    sent, spared = 2 * 2 * elsewhere / 32e9, 28 * elsewhere / 768e9
    single, shared = (seconds("backpropagation", count, steps=1) for count in (1, 4))
    assert shared - single == pytest.approx(sent - spared)


def test_vllm_launches_a_graph_and_takes_time_to_start_and_for_new_weights(paper):
    machine = named_gpu("a6000", SHAPES)
    counts = {"completions": 1, "decoding_steps": 1000, "rows": 1, "batches": 10}
    engine, plain = (
        machine.seconds(
            Work(computing(spec_of(paper, "pg"), sampler=name), Expected(1, 1), **counts)
        )
        for name in ("vllm", "transformers")
    )
    layers = SHAPES[NAME].layers * 0.0008  # launched from Python
    assert plain["sampling"] - engine["sampling"] == pytest.approx(1000 * (layers - 0.003))
    assert engine["startup"] - plain["startup"] == 60
    assert (engine["sync"], plain["sync"]) == (10 * 0.1, 0)


def test_a_teacher_is_shared_out_over_gpus(paper):
    spec = next(job.spec for job in list_jobs(paper) if job.stage == "distill")
    machine = Machine(gpu("a6000"), IDEAL, load_shapes(paper, {}))
    counts = {"completions": 1, "decoding_steps": 100, "rows": 100}
    single, shared = (
        machine.seconds(Work(of, Expected(1, 0, prompt=0), **counts))["sampling"]
        for of in (spec.model_copy(update={"tensor_parallel": 1}), spec)
    )
    assert single == pytest.approx(4 * shared)


def test_verdicts_beside_sampling_take_only_what_is_waited_for(params):
    """Of 10 completions that are sampled in t seconds: 10 verdicts of t / 5 take t more."""
    machine = Machine(gpu("a6000"), efficiency("gpu"), load_shapes(params, {}))
    counts = {"steps": 1, "completions": 10, "decoding_steps": 100, "rows": 100}
    expected = Expected(limit=1, length=0)
    for threads, waited in ((1, 2), (2, 1)):
        work = Work(computing(spec_of(params, "pg"), threads=threads), expected, **counts)
        sampling = machine.seconds(work)["sampling"]
        graded = Machine(
            machine.rates, machine.efficiency, machine.shapes, {"math": sampling / 5}
        ).seconds(work)
        assert graded["grading"] == pytest.approx(waited * sampling)


@pytest.mark.parametrize("length", [0.05, 0.25, 0.5])
def test_the_plan_has_the_papers_order_of_runtimes(paper, length):
    """RAPID is faster than pg at every H and grpo slower, and an H100 faster than an A6000.

    The paper's trainer skipped no group, as here with a signal in all. Its ratios are not the
    plan's: it saves less, and something in it does not fall with H (docs/plan.md).
    """
    user = {"length": length, "signal": 1.0, "rewarded": 1.0}
    slow, fast = (
        Estimator(paper, named_gpu(name, load_shapes(paper, {})), user)
        for name in ("a6000", "h100")
    )

    def runtime(estimator, benchmark, name):
        return estimator.machine.runtime(estimator.work(spec_of(paper, name, benchmark)))

    for benchmark in paper.benchmarks:
        for name in (*(RAPID.at(h) for h in (2, 4, 8, 16)), "grpo"):
            planned, reference = (runtime(slow, benchmark, of) for of in (name, "pg"))
            paper_runtime, paper_reference = (
                printed.main(benchmark, of, "runtime") for of in (name, "pg")
            )
            is_faster = RAPID.named(name)
            assert (planned < reference) == (paper_runtime < paper_reference) == is_faster
            assert runtime(fast, benchmark, name) < planned


def test_gpus_have_rates_in_their_units():
    rates = gpu("A6000")
    assert rates.memory == 48e9
    assert 1e9 < rates.link < rates.bandwidth < 1e13 < rates.fp32 < rates.bf16 < 1e16
