"""Seconds on a named GPU."""

from dataclasses import replace

import pytest

from rapid.cost.assumptions import Assumptions
from rapid.cost.estimates import train_work
from rapid.cost.gpus import gpu
from rapid.cost.roofline import Efficiency, Roofline
from rapid.cost.sizes import published
from rapid.cost.work import Sampling, Training, Work
from reports import paper as printed
from reports.plan_versus_paper import COMPARED, rows
from tests.cost.conftest import spec_of

IDEAL = Efficiency(
    bandwidth=1, arithmetic=1, link=1, layer=0, graph_step=0, step=0, batch=0, sync=0,
    startup=0, startup_vllm=0,
)  # fmt: skip
SHAPES = published()
NAME = "Qwen2.5-0.5B"


def machine(efficiency=IDEAL, name="a6000"):
    return Roofline(gpu(name), SHAPES, {"math": 0.0}, efficiency)


def sampling_seconds(rows_in_a_step, efficiency=IDEAL):
    one = Sampling(
        calls=1, completions=rows_in_a_step, steps=100, rows=100 * rows_in_a_step, tokens=0,
        prompt=0, sharing=1,
    )  # fmt: skip
    work = Work(NAME, "math", "bfloat16", "vllm", 1, sampling=(one,))
    return machine(efficiency).seconds(work).sampling


def test_a_small_decoding_step_reads_all_weights():
    weights = SHAPES[NAME].multiplied * 2
    assert sampling_seconds(1) == pytest.approx(100 * weights / 768e9)
    assert sampling_seconds(64) == pytest.approx(sampling_seconds(1))


def test_a_large_decoding_step_multiplies_with_them():
    assert sampling_seconds(10000) == pytest.approx(
        100 * 2 * SHAPES[NAME].multiplied * 10000 / 154.8e12
    )


def training_seconds(processes, tokens=1e6, passes=1.0, efficiency=IDEAL):
    one = Training(imitates=False, steps=1, passes=passes, tokens=tokens)
    work = Work(NAME, "math", "bfloat16", "vllm", processes, training=one)
    return machine(efficiency).seconds(work).backpropagation


def test_backpropagation_takes_six_operations_a_weight_and_token():
    many, more = training_seconds(1, 1e7), training_seconds(1, 2e7)
    assert more - many == pytest.approx(6 * SHAPES[NAME].multiplied * 1e7 / 154.8e12)


def test_small_passes_are_bound_by_launching():
    slow = replace(IDEAL, layer=1e-3)
    one, two = (training_seconds(1, 10, n, slow) for n in (1, 2))
    assert two - one == pytest.approx(3 * SHAPES[NAME].layers * 1e-3)


def test_processes_exchange_gradients_and_weights():
    """And share out the optimizer's state."""
    elsewhere = 3 / 4 * SHAPES[NAME].parameters
    sent, spared = 2 * 2 * elsewhere / 32e9, 28 * elsewhere / 768e9
    assert training_seconds(4, 0) - training_seconds(1, 0) == pytest.approx(sent - spared)


@pytest.mark.parametrize("name", ["pg", "grpo", "rapid-H8"])
def test_a_better_gpu_is_faster(paper, name):
    expect = Assumptions().expected(paper)
    work = train_work(paper, spec_of(paper, name), expect)
    slow, fast = (machine(Efficiency(), gpu).seconds(work).runtime for gpu in ("a6000", "h100"))
    assert fast < slow


@pytest.mark.parametrize("length", [0.05, 0.25, 0.5])
def test_algorithms_are_in_the_papers_order(paper, length):
    """pg is slower than RAPID at every H and grpo slower than pg, in the paper and in the plan."""
    found = rows(paper, "a6000", Assumptions(length=length, signal=1.0, rewarded=1.0))
    ratios = {(row[0], row[1]): float(row[4]) for row in found}
    for benchmark in paper.benchmarks:
        theirs = printed.main(benchmark, "pg", "runtime")
        for algorithm in COMPARED[2:]:
            assert ratios[benchmark, algorithm] < 1
            assert printed.main(benchmark, algorithm, "runtime") < theirs
        assert ratios[benchmark, "grpo"] >= 1


def test_every_deviation_from_the_paper_is_printed(paper, tmp_path, capsys):
    import yaml

    from reports.plan_versus_paper import main

    file = tmp_path / "params.yaml"
    file.write_text(yaml.safe_dump(paper.model_dump(mode="json")))
    main(["--configfile", str(file), "--completion-length", "0.1"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 3 * (1 + len(COMPARED))
    assert sum(line.endswith("%") for line in lines) == 3 * len(COMPARED)
