"""Costs of all jobs together."""

from dataclasses import replace

import pytest

from rapid.artifacts.files import BadInput
from rapid.config.jobs import jobs
from rapid.config.params import load
from rapid.cost.estimates import Estimator, advise, estimates, longest_chain, wall_clock, warnings
from rapid.cost.expected import Expected
from rapid.cost.roofline import Roofline
from rapid.cost.roofline import gpu as rates
from rapid.cost.shapes import published, shapes
from rapid.cost.work import Seconds


def plan_of(params, memory=48e9, verdict=None, **given):
    machine = Roofline(rates("a6000"), shapes(params, {}))
    if verdict:
        machine = replace(machine, verdict=verdict)
    return Estimator(params, machine, given, memory)


@pytest.fixture
def found(paper):
    return estimates(plan_of(paper))


@pytest.mark.parametrize("which", ["params", "paper"])
def test_every_job_has_a_cost(which, request):
    params = request.getfixturevalue(which)
    found = estimates(plan_of(params))
    assert [one.job.folder for one in found] == [job.folder for job in jobs(params)]
    assert all(one.seconds.total > 0 and one.disk >= 0 for one in found)
    assert all(one.memory for one in found if one.job.stage in ("distill", "train", "evaluate"))


def test_rl_takes_all_gpus_and_the_teacher_its_own_number(found):
    units = {(one.job.stage, getattr(one.job.spec, "H", None)): one.units for one in found}
    assert units["train", 8] == 4
    assert units["distill", None] == 4
    assert units["evaluate", None] == 1
    assert units["data", None] == 0


@pytest.mark.parametrize(
    ("chosen", "length"),
    [
        ({"runs/math/Qwen2.5-0.5B/pg/seed1": 5, "runs/math/Qwen2.5-0.5B/pg/seed2": 5}, 5),
        ({"models/Qwen2.5-0.5B": 3, "runs/math/Qwen2.5-0.5B/pg/seed1": 5}, 8),
        ({"distilled/math": 7, "runs/math/Qwen2.5-0.5B/pg/seed1": 5}, 7),
        ({"distilled/math": 7, "runs/math/Qwen2.5-0.5B/sft/seed1": 5, "reports": 1}, 13),
        ({"models/Qwen2.5-32B-Instruct": 9, "evaluations/math/Qwen2.5-0.5B/sft/seed1": 1}, 10),
        ({"data/math": 2, "evaluations/math/Qwen2.5-0.5B/base/seed1": 4}, 6),
    ],
)
def test_the_longest_chain_follows_what_jobs_read(found, chosen, length):
    seconds = [Seconds(other=chosen.get(one.job.folder, 0.0)) for one in found]
    timed = [replace(one, seconds=each) for one, each in zip(found, seconds, strict=True)]
    assert longest_chain(timed) == length


def test_wall_clock_is_bound_by_work_and_by_the_longest_chain(found):
    work, chain = sum(one.unit_seconds for one in found), longest_chain(found)
    assert chain < wall_clock(found, 4) == pytest.approx(work / 4)
    assert wall_clock(found, 10**6) == chain


def test_snapshots_take_disk_and_time(paper_values):
    def costs(name):
        paper_values["tables"]["main"]["algorithms"] = [name]
        params = load(paper_values)
        return {
            one.job.stage: one
            for one in estimates(plan_of(params))
            if one.job.folder.endswith(f"/math/Qwen2.5-0.5B/{name}/seed1")
        }

    plain, kept = costs("pg"), costs("pg,snapshots=7")
    assert kept["train"].disk > 7 * plain["train"].disk
    for phase in ("sampling", "grading"):
        one, many = (getattr(of["evaluate"].seconds, phase) for of in (plain, kept))
        assert many == pytest.approx(8 * one) and one > 0


def test_what_does_not_fit_is_named_with_what_to_change(paper):
    def said(key: str, memory: float, **settings) -> str:
        """What is said of grpo on MATH."""
        section = paper.training.model_copy(update=settings)
        plan = plan_of(paper.model_copy(update={"training": section}), memory=memory)
        (line,) = (one for one in warnings(plan, estimates(plan), 4) if key in one)
        return line

    key = "math, Qwen2.5-0.5B: grpo"
    assert "training.micro_batch smaller, or auto" in said(key, 24e9, micro_batch=8)
    assert "set training.checkpointing to true" in said(key, 6e9, micro_batch=1)
    assert "set training.checkpointing to true" in said(key, 6e9, micro_batch="auto")
    assert "larger GPUs" in said(key, 3e9, micro_batch=1, checkpointing=True)
    assert "set sft.checkpointing to true" in said("math, Qwen2.5-0.5B: sft", 6e9)


@pytest.mark.parametrize("gpu", ["a6000", "h100"])
def test_the_papers_grid_fits_the_papers_gpus(paper, gpu):
    """Four of them, and four with 80 GB."""
    machine = Roofline(rates(gpu), shapes(paper, {}))
    plan = Estimator(paper, machine, {}, machine.gpu.memory)
    assert warnings(plan, estimates(plan), 4) == []


def test_auto_is_the_largest_pass_that_fits(paper):
    sft = next(job.spec for job in jobs(paper) if job.folder.endswith("Qwen2.5-0.5B/sft/seed1"))
    sizes = []
    for memory in (24e9, 48e9, 80e9, 1e12):
        plan = plan_of(paper, memory=memory)
        sizes.append(plan.sized(sft).objective.micro_batch)
        assert plan.machine.base_memory + plan.held(sft).total <= 0.92 * memory
    assert sizes == sorted(set(sizes)) and sizes[-1] == 96 // 4
    assert plan_of(paper, memory=None).sized(sft).objective.micro_batch == 96 // 4


def test_nothing_is_said_of_what_fits(params):
    plan = plan_of(params)
    assert warnings(plan, estimates(plan), 4) == []


def test_more_gpus_than_there_are_is_said(paper):
    plan = plan_of(paper)
    said = warnings(plan, estimates(plan), 2)
    assert any("takes 4 GPUs, and there are 2" in line for line in said)


def test_advice_is_on_h_within_what_there_are_prompts_for(paper):
    for one in advise(plan_of(paper)):
        assert one.H in one.runtimes and max(one.runtimes) <= 16
        assert list(one.runtimes.values()) == sorted(one.runtimes.values(), reverse=True)
        assert one.micro_batch >= 1
    mbpp = paper.benchmarks["mbpp_plus"].model_copy(update={"train": 5})
    few = paper.model_copy(update={"benchmarks": {**paper.benchmarks, "mbpp_plus": mbpp}})
    assert max(advise(plan_of(few))[0].runtimes) == 4


def test_without_sampling_to_save_h_stays_small(paper):
    """Where verdicts take nearly all of the time, no H is worth its staleness."""
    plan = plan_of(paper, verdict={"mbpp_plus": 100.0, "math": 100.0, "minif2f": 100.0})
    assert {one.H for one in advise(plan)} == {1}


@pytest.mark.parametrize("stage", ["train", "distill", "evaluate"])
def test_longer_completions_take_longer(paper, stage):
    def sampling(length):
        found = estimates(plan_of(paper, length=length))
        return sum(one.seconds.sampling for one in found if one.job.stage == stage)

    assert sampling(0.5) > 2 * sampling(0.1)


def test_an_assumption_that_contradicts_another_is_refused():
    with pytest.raises(BadInput, match="raise --rewarded"):
        Expected(80, 30).changed({"signal": 0.5, "rewarded": 0.2})


def test_a_trained_model_takes_its_weights_on_disk(params, found):
    """In float32 for the embedded models, in bfloat16 for the paper's."""
    for size, some in ((4, estimates(plan_of(params))), (2, found)):
        one = next(one for one in some if one.key[2] == "pg")
        known = shapes(params, {}) | published()
        weights = size * known[one.key[1]].parameters
        assert one.disk == pytest.approx(weights, rel=0.05)
