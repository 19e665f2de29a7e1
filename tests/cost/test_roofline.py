"""Estimated seconds of work on a GPU, from its published rates."""

import pytest

from rapid.algorithms import RAPID
from rapid.config.jobs import list_jobs
from rapid.cost.estimates import Estimator
from rapid.cost.expected import Expected
from rapid.cost.roofline import EFFICIENCY, Machine, build_gpu_machine, get_gpu_rates
from rapid.cost.shapes import load_published_shapes, load_shapes
from rapid.cost.work import Work
from reports import paper as printed
from tests.cost.conftest import change_compute, make_spec

IDEAL = dict.fromkeys(EFFICIENCY["gpu"], 0) | {"bandwidth": 1, "arithmetic": 1, "link": 1}
SHAPES = load_published_shapes()
NAME = "Qwen2.5-0.5B"


@pytest.fixture
def seconds(paper):
    """A function: the seconds of a phase of some work in bfloat16 with vLLM, on A6000 GPUs."""

    def seconds(phase, processes=1, layer=0, prompt=0, **counts):
        spec, expected = make_spec(paper, "pg"), Expected(limit=1, length=0, prompt=prompt)
        work = Work(change_compute(spec, processes=processes), expected, **counts)
        return Machine(get_gpu_rates("a6000"), IDEAL | {"layer": layer}, SHAPES).estimate_seconds(
            work
        )[phase]

    return seconds


@pytest.fixture
def sampling(seconds):
    """A function: the seconds of 100 decoding steps of `rows` sequences after their prompts."""

    def sampling(rows, prompt=0):
        counts = {"completions": rows, "decoding_steps": 100, "rows": 100 * rows}
        return seconds("sampling", prompt=prompt, **counts)

    return sampling


def test_small_decoding_step_is_bound_by_reading_weights_keys_and_values(sampling):
    weights = SHAPES[NAME].matmul_weights * 2
    assert sampling(1) == pytest.approx(100 * weights / 768e9)
    assert sampling(64) == pytest.approx(sampling(1))
    cached = 8 * 1000 * 24 * 2 * 2 * 64 * 2  # 24 layers, keys and values of 2 heads of 64, 2 bytes
    assert sampling(8, prompt=1000) == pytest.approx(100 * (weights + cached) / 768e9)


def test_large_decoding_step_is_bound_by_multiplication(sampling):
    assert sampling(10000) == pytest.approx(
        100 * 2 * SHAPES[NAME].matmul_weights * 10000 / 154.8e12
    )


def test_backpropagation_takes_six_flops_per_weight_and_token(seconds):
    small, large = (
        seconds("backpropagation", steps=1, passes=1, tokens=tokens) for tokens in (1e7, 2e7)
    )
    assert large - small == pytest.approx(6 * SHAPES[NAME].matmul_weights * 1e7 / 154.8e12)


def test_small_micro_batches_are_bound_by_kernel_launches(seconds):
    single, double = (
        seconds("backpropagation", layer=1e-3, steps=1, passes=passes, tokens=10)
        for passes in (1, 2)
    )
    assert double - single == pytest.approx(3 * SHAPES[NAME].layers * 1e-3)


def test_processes_exchange_gradients_and_weights(seconds):
    """Processes also divide the optimizer state."""
    on_other_processes = 3 / 4 * SHAPES[NAME].parameters
    sent, saved = 2 * 2 * on_other_processes / 32e9, 28 * on_other_processes / 768e9
    single, shared = (seconds("backpropagation", count, steps=1) for count in (1, 4))
    assert shared - single == pytest.approx(sent - saved)


def test_vllm_saves_kernel_launches_but_takes_time_to_start_and_to_get_new_weights(paper):
    machine = build_gpu_machine("a6000", SHAPES)
    counts = {"completions": 1, "decoding_steps": 1000, "rows": 1, "batches": 10}
    vllm, transformers = (
        machine.estimate_seconds(
            Work(change_compute(make_spec(paper, "pg"), sampler=name), Expected(1, 1), **counts)
        )
        for name in ("vllm", "transformers")
    )
    layers = SHAPES[NAME].layers * 0.0008  # each launched from Python
    assert transformers["sampling"] - vllm["sampling"] == pytest.approx(1000 * (layers - 0.003))
    assert vllm["startup"] - transformers["startup"] == 60
    assert (vllm["sync"], transformers["sync"]) == (10 * 0.1, 0)


def test_tensor_parallel_teacher_is_divided_among_gpus(paper):
    spec = next(job.spec for job in list_jobs(paper) if job.stage == "distill")
    machine = Machine(get_gpu_rates("a6000"), IDEAL, load_shapes(paper, {}))
    counts = {"completions": 1, "decoding_steps": 100, "rows": 100}
    single, shared = (
        machine.estimate_seconds(Work(job_spec, Expected(1, 0, prompt=0), **counts))["sampling"]
        for job_spec in (spec.model_copy(update={"tensor_parallel": 1}), spec)
    )
    assert single == pytest.approx(4 * shared)


def test_grading_during_sampling_costs_only_the_time_of_waiting_afterwards(params):
    """10 completions are sampled in t seconds, and each of `threads` graders takes 0.3 t for one."""
    machine = Machine(get_gpu_rates("a6000"), EFFICIENCY["gpu"], load_shapes(params, {}))
    counts = {"steps": 1, "completions": 10, "decoding_steps": 100, "rows": 100}
    expected = Expected(limit=1, length=0)
    for threads, waited in ((1, 3), (2, 0.5), (4, 0)):
        work = Work(change_compute(make_spec(params, "pg"), threads=threads), expected, **counts)
        sampling = machine.estimate_seconds(work)["sampling"]
        with_verdicts = Machine(
            machine.rates, machine.efficiency, machine.shapes, {"math": 0.3 * sampling}
        ).estimate_seconds(work)
        assert with_verdicts["grading"] == pytest.approx(waited * sampling)


@pytest.mark.parametrize("length", [0.05, 0.25, 0.5])
def test_planned_runtimes_are_in_the_order_of_the_papers(paper, length):
    """RAPID is faster than PG at every H, GRPO is slower, and an H100 is faster than an A6000.

    All groups have a signal, since the paper's trainer skips none. The ratios differ from the
    paper's, which saves less and has a part that does not fall with H (docs/plan.md).
    """
    user = {"length": length, "signal": 1.0, "rewarded": 1.0}
    slow, fast = (
        Estimator(paper, build_gpu_machine(name, load_shapes(paper, {})), user)
        for name in ("a6000", "h100")
    )

    def runtime(estimator, benchmark, name):
        return estimator.machine.estimate_runtime(
            estimator.count_work(make_spec(paper, name, benchmark))
        )

    for benchmark in paper.benchmarks:
        for name in (*(RAPID.format_name(h) for h in (2, 4, 8, 16)), "grpo"):
            planned, reference = (runtime(slow, benchmark, run_name) for run_name in (name, "pg"))
            paper_runtime, paper_reference = (
                printed.get_main_value(benchmark, run_name, "runtime") for run_name in (name, "pg")
            )
            is_faster = RAPID.matches_name(name)
            assert (planned < reference) == (paper_runtime < paper_reference) == is_faster
            assert runtime(fast, benchmark, name) < planned


def test_rates_of_gpus_are_converted_to_bytes_and_flops_per_second():
    rates = get_gpu_rates("A6000")
    assert rates.memory == 48e9
    assert 1e9 < rates.link < rates.bandwidth < 1e13 < rates.fp32 < rates.bf16 < 1e16
