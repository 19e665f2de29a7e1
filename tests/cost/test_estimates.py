"""Estimated costs of all jobs of an experiment, problems with memory, and advice on H."""

from dataclasses import replace

import pytest

from rapid.config.jobs import list_jobs
from rapid.config.params import load
from rapid.cost.estimates import (
    Estimator,
    advise,
    choose_H,
    estimate_jobs,
    estimate_rapid_runtimes,
    find_longest_chain,
    find_problems,
)
from rapid.cost.roofline import build_default_machine, build_gpu_machine
from rapid.cost.shapes import load_published_shapes, load_shapes
from tests.cost.conftest import change_compute


def make_estimator(params, memory=48e9, gpu="a6000"):
    return Estimator(params, build_gpu_machine(gpu, load_shapes(params, {})), memory=memory)


@pytest.fixture
def costs(paper):
    return estimate_jobs(make_estimator(paper))


@pytest.mark.parametrize("experiment", ["params", "paper"])
def test_every_job_has_a_cost(experiment, request):
    params = request.getfixturevalue(experiment)
    costs = estimate_jobs(make_estimator(params))
    assert [cost.job.folder for cost in costs] == [job.folder for job in list_jobs(params)]
    assert all(cost.seconds > 0 for cost in costs)
    assert all(cost.memory for cost in costs if cost.job.stage in ("distill", "train", "evaluate"))


def test_rl_uses_all_gpus_and_the_teacher_its_configured_number(costs):
    units = {(cost.job.stage, getattr(cost.job.spec, "H", None)): cost.units for cost in costs}
    assert units["train", 8] == 4
    assert units["distill", None] == 4
    assert units["evaluate", None] == 1
    assert units["data", None] == 0


def test_job_on_cpus_uses_a_core_for_each_thread(params):
    params = change_compute(params, threads=2)
    costs = estimate_jobs(Estimator(params, build_default_machine("cpu", load_shapes(params, {}))))
    assert {cost.units for cost in costs if cost.job.stage == "train"} == {2}


@pytest.mark.parametrize(
    ("seconds", "length"),
    [
        ({"runs/math/Qwen2.5-0.5B/pg/seed1": 5, "runs/math/Qwen2.5-0.5B/pg/seed2": 5}, 5),
        ({"models/Qwen2.5-0.5B": 3, "runs/math/Qwen2.5-0.5B/pg/seed1": 5}, 8),
        ({"distilled/math": 7, "runs/math/Qwen2.5-0.5B/pg/seed1": 5}, 7),
        ({"distilled/math": 7, "runs/math/Qwen2.5-0.5B/sft/seed1": 5, "reports": 1}, 13),
        ({"data/math": 2, "evaluations/math/Qwen2.5-0.5B/base/seed1": 4}, 6),
    ],
)
def test_longest_chain_follows_the_inputs_of_jobs(costs, seconds, length):
    costs = [replace(cost, seconds=seconds.get(cost.job.folder, 0.0)) for cost in costs]
    assert find_longest_chain(costs) == length


def test_snapshots_add_disk_space_and_evaluations(paper_values):
    def costs(name):
        paper_values["tables"]["main"]["algorithms"] = [name]
        return {
            cost.job.stage: cost
            for cost in estimate_jobs(make_estimator(load(paper_values)))
            if cost.job.folder.endswith(f"/math/Qwen2.5-0.5B/{name}/seed1")
        }

    without_snapshots, with_snapshots = costs("pg"), costs("pg,snapshots=7")
    assert with_snapshots["train"].disk == pytest.approx(8 * without_snapshots["train"].disk)
    assert with_snapshots["evaluate"].seconds == pytest.approx(
        8 * without_snapshots["evaluate"].seconds
    )


@pytest.mark.parametrize(
    ("job", "memory", "settings", "remedy"),
    [
        ("grpo", 24e9, {"micro_batch": 8}, "lower training.micro_batch, or set it to auto"),
        ("grpo", 6e9, {"micro_batch": 1}, "set training.checkpointing to true"),
        ("grpo", 6e9, {"micro_batch": "auto"}, "set training.checkpointing to true"),
        ("grpo", 3e9, {"micro_batch": 1, "checkpointing": True}, "larger GPUs"),
        ("sft", 6e9, {}, "set sft.checkpointing to true"),
    ],
)
def test_job_that_does_not_fit_is_named_with_a_remedy(paper, job, memory, settings, remedy):
    training = paper.training.model_copy(update=settings)
    estimator = make_estimator(paper.model_copy(update={"training": training}), memory)
    problems = find_problems(estimator, estimate_jobs(estimator), 4)
    (problem,) = (line for line in problems if f"math, Qwen2.5-0.5B: {job}" in line)
    assert remedy in problem


def test_only_the_teacher_is_divided_if_it_does_not_fit(paper):
    estimator = make_estimator(paper, memory=2e9)
    problems = find_problems(estimator, estimate_jobs(estimator), 4)
    assert {line.split(": ")[1] for line in problems if "tensor_parallel" in line} == {"distill"}
    (problem,) = (line for line in problems if line.startswith("math, Qwen2.5-0.5B: evaluate"))
    assert problem.endswith(": use larger GPUs")


@pytest.mark.parametrize(("gpus", "can_divide_further"), [(4, False), (8, True)])
def test_a_teacher_is_not_divided_among_more_gpus_than_there_are(paper, gpus, can_divide_further):
    estimator = make_estimator(paper, memory=8e9)
    distill = next(job.spec for job in list_jobs(paper) if job.stage == "distill")
    assert distill.tensor_parallel == 4
    reason = estimator.explain_lack_of_memory(distill, gpus)
    assert (": raise the teacher's tensor_parallel" in reason) == can_divide_further


def test_vllm_uses_no_more_memory_than_there_is(paper):
    """On 24 GB it samples fewer completions at a time than the 256 that it samples on 48 GB."""

    def estimate_memory(memory):
        costs = estimate_jobs(make_estimator(paper, memory))
        return next(cost.memory for cost in costs if cost.job.stage == "distill")

    assert estimate_memory(24e9) == pytest.approx(0.92 * 24e9)
    assert 0.92 * 24e9 < estimate_memory(48e9) == estimate_memory(80e9)


@pytest.mark.parametrize(("gpu", "memory"), [("a6000", 48e9), ("h100", 80e9)])
def test_experiments_of_the_paper_fit_four_gpus_and_not_two(paper, gpu, memory):
    estimator = make_estimator(paper, memory, gpu)
    costs = estimate_jobs(estimator)
    assert find_problems(estimator, costs, 4) == []
    problems = find_problems(estimator, costs, 2)
    assert any("needs 4 GPUs, but there are 2" in line for line in problems)


def test_auto_is_the_largest_micro_batch_that_fits(paper):
    sft = next(
        job.spec for job in list_jobs(paper) if job.folder.endswith("Qwen2.5-0.5B/sft/seed1")
    )
    sizes = []
    for memory in (24e9, 48e9, 80e9, float("inf")):
        estimator = make_estimator(paper, memory)
        sizes.append(estimator.resolve_micro_batch(sft).objective.micro_batch)
        assert estimator.machine.base_memory + estimator.estimate_memory(sft).total <= 0.92 * memory
    assert sizes == sorted(set(sizes)) and sizes[-1] == 96 // 4


def test_values_of_H_are_limited_by_prompts_and_memory(paper):
    runtimes = estimate_rapid_runtimes(make_estimator(paper), "mbpp_plus", "Qwen2.5-0.5B")
    assert list(runtimes) == [1, 2, 4, 8, 16]
    assert list(runtimes.values()) == sorted(runtimes.values(), reverse=True)
    mbpp = paper.benchmarks["mbpp_plus"].model_copy(update={"train": 5})
    with_few_prompts = paper.model_copy(
        update={"benchmarks": {**paper.benchmarks, "mbpp_plus": mbpp}}
    )
    assert (
        max(estimate_rapid_runtimes(make_estimator(with_few_prompts), "mbpp_plus", "Qwen2.5-0.5B"))
        == 4
    )
    with_little_memory = make_estimator(change_compute(paper, sampler="transformers"), 6e9)
    assert max(estimate_rapid_runtimes(with_little_memory, "math", "Qwen2.5-0.5B")) < 16


@pytest.mark.parametrize(
    ("runtimes", "advised_H"),
    [({1: 10, 2: 8, 4: 7.5}, 2), ({1: 10, 2: 9.5, 4: 1}, 1), ({1: 10, 2: 5, 4: 3}, 4)],
)
def test_H_is_doubled_as_long_as_that_saves_a_tenth_of_the_runtime(runtimes, advised_H):
    assert choose_H(runtimes) == advised_H


def test_advice_names_the_largest_micro_batch_and_its_tokens(paper):
    """Completions have 2048 tokens, after prompts of 150."""
    for line in advise(make_estimator(paper)):
        advice = line.partition("; micro_batch up to ")[2].removesuffix(")")
        size, budget = advice.split(" (in RapidConfig, token_budget=")
        assert int(size) >= 1 and int(budget) == int(size) * (150 + 2048)


def test_trained_model_takes_the_disk_space_of_its_weights(params, costs):
    """Embedded models have float32 weights, and the paper's models have bfloat16 weights."""
    for size, experiment_costs in ((4, estimate_jobs(make_estimator(params))), (2, costs)):
        cost = next(cost for cost in experiment_costs if cost.key[2] == "pg")
        shapes = load_shapes(params, {}) | load_published_shapes()
        weights = size * shapes[cost.key[1]].parameters
        assert cost.disk == pytest.approx(weights, rel=0.05)
