"""One tiny measurement with the machinery of each part, on the toy model."""

import json
from dataclasses import asdict
from functools import partial

import pytest

from performance import (
    bench,
    floor,
    graders,
    memory,
    models,
    parts,
    results,
    rewards,
    runs,
    trainers,
)
from performance.trainers import SIDES, Setting, rapid
from rapid.benchmarks import BENCHMARKS
from rapid.grading.pool import SteadyGrader

SMALL = Setting(H=2, n_step=8, micro_batch=4, length=6)


@pytest.fixture(scope="module")
def workload(toy_model) -> models.Workload:
    return models.tiny(toy_model, models.read_problems(None, 8))


@pytest.fixture(scope="module")
def plan() -> parts.Plan:
    return parts.Plan(repeats=1, quick=True)


def loop(workload, reward=None, setting=SMALL, side="rapid", **more) -> runs.Loop:
    build = partial(SIDES[side], workload, **more)
    return runs.Loop(setting, build, reward or partial(rewards.SolveRate, 0.5))


def test_both_sides_sample_the_same_completions_and_are_timed(workload, plan):
    each = [({"rate": rate}, {"rate": rate}) for rate in (0.0, 1.0)]
    reward = partial(rewards.SolveRate, 0.5)
    none, every = parts.paired(plan, workload, SMALL, SIDES, reward, each, lambda share: None)
    for row, rate in ((none, 0.0), (every, 1.0)):
        (ours,), (theirs,) = row["sides"]["rapid"], row["sides"]["stock"]
        assert ours["completions"] == theirs["completions"] == 64
        assert ours["length"] == theirs["length"]
        assert ours["solved"] == ours["alive"] == theirs["alive"] == rate
        assert 0 < sum(ours["phases"].values()) < ours["seconds"]
        assert 0 < theirs["optimizer"] < theirs["seconds"]


def test_both_sides_have_the_same_batches(workload):
    ours, theirs = (side(workload, SMALL, rewards.SolveRate(0.5)) for side in SIDES.values())
    assert theirs.args.per_device_train_batch_size == ours.args.micro_batch_size == 4
    assert theirs.args.generation_batch_size == ours.args.generation_batch_size == 16
    assert theirs.args.gradient_accumulation_steps == 2
    assert not ours.args.gradient_checkpointing and not theirs.args.gradient_checkpointing
    for name in ("learning_rate", "seed", "temperature", "top_k", "top_p", "bf16", "optim"):
        assert getattr(ours.args, name) == getattr(theirs.args, name), name


def test_completions_are_of_a_fixed_length_where_that_is_asked_for(workload):
    setting = Setting(H=2, n_step=8, micro_batch=4, length=9, fixed_length=True)
    with loop(workload, setting=setting) as one:
        assert one.run(2).length == 9


def test_the_solve_rate_is_the_same_for_the_same_text():
    some = [f"completion {n}" for n in range(2000)]
    first, second = (rewards.SolveRate(0.1).judge(["prompt"] * 2000, some) for _ in range(2))
    assert first == second
    assert sum(first) / 2000 == pytest.approx(0.1, abs=0.02)


def test_a_verdict_can_take_its_time_beside_sampling(workload):
    reward = partial(rewards.SolveRate, 0.5, 0.001)
    with loop(workload, reward, **parts.PLAIN | parts.GRADING) as one:
        sample = one.run(2)
    assert sample.alive is None and 0 <= sample.solved <= 1


def test_the_real_grader_judges(workload):
    with loop(workload, partial(parts._graded, workload)) as one:
        assert one.run(2).solved == 0  # an untrained model


def test_the_savings_are_switches_of_the_trainer(workload):
    setting, reward = SMALL, rewards.SolveRate(0.5)
    plain = rapid(workload, setting, reward, **parts.PLAIN).args
    every = rapid(workload, setting, reward, **parts.PLAIN | parts.ALL | parts.GRADING).args
    assert all(getattr(every, name) and not getattr(plain, name) for name in parts.PLAIN)


def test_the_floor_samples_again_what_the_loop_sampled(workload):
    with loop(workload) as one:
        sample = one.run(2)
        again = one.call(floor.sampler_seconds, SMALL)
        work = one.call(floor.work, SMALL)
        assert one.call(floor.multiply_rate, SMALL) > 0
    assert again["length"] == sample.length and again["seconds"] > 0
    assert 0 < work["least"] < work["all"]


def test_operations_are_two_for_each_weight_and_token(toy_model):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(toy_model)
    weights = 4 * 64 * 64 + 3 * 64 * 64  # of the only layer
    head = 64 * model.config.vocab_size
    attention = 2 * 2 * 64 * (1 + 2 + 3 + 4 + 5)  # each token to itself and those before it
    assert floor.operations(model, 2, 3) == 2 * (5 * weights + 3 * head) + attention
    rest = floor.operations(model, 2, 3, prompt_known=True)
    assert rest == floor.operations(model, 2, 3) - floor.operations(model, 2, 0)


def test_memory_peaks_in_training(workload):
    order = {
        "side": "rapid",
        "name": "tiny",
        "model": str(workload.model),
        "problems": None,
        "count": 8,
        "setting": asdict(SMALL),
        "batches": 1,
    }
    peak = memory.train(order)
    assert 0 < peak["before"] <= peak["peak"]


@pytest.mark.slow
def test_memory_is_measured_in_a_fresh_process(workload):
    peak = memory.measure("stock", workload, None, SMALL, batches=1)
    assert 0 < peak["before"] < peak["peak"] < memory.resident_mb("VmHWM") + 2000


def test_a_loop_that_fails_says_why(workload):
    with pytest.raises(RuntimeError, match="make it a multiple of 4"):
        loop(workload, setting=Setting(n_step=6))


def test_a_loop_ends_with_the_process_that_started_it(workload):
    with loop(workload) as one:
        one._connection.close()  # as a process does that is killed
        one._process.join(10)
        assert not one._process.is_alive()


def test_every_part_has_experiments_and_a_table(plan, workload):
    for part in results.PARTS:
        some = parts.experiments(plan, part, [workload])
        assert some and all(one.part == part and one.seconds > 0 for one in some)


def test_a_model_that_is_not_there_is_said_to_be_missing(tmp_path):
    with pytest.raises(models.NotAvailable, match="snakemake"):
        models.tiny(tmp_path / "none", [])


def test_problems_are_read_from_a_file(tmp_path, workload):
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(one.model_dump_json() + "\n" for one in workload.problems))
    assert models.read_problems(path) == workload.problems
    assert len(workload.rows(20)) == 24


def test_the_command_writes_a_part_and_the_page(toy_model, tmp_path, monkeypatch):
    one = parts.Experiment("b", "one", 1.0, lambda advance: [])
    monkeypatch.setattr(parts, "experiments", lambda *_: [one])
    monkeypatch.setattr(bench, "_prepare", lambda: None)
    arguments = ["--part", "b", "--models", "tiny", "--model", str(toy_model)]
    assert bench.main([*arguments, "--quick", "--out", str(tmp_path)]) == 0
    document = json.loads((tmp_path / "b.json").read_text())
    assert document["title"] and document["commit"] and document["versions"]["torch"]
    assert (tmp_path / "README.md").exists()


@pytest.mark.parametrize(
    "name", ["mbpp_plus", "math", pytest.param("minif2f", marks=pytest.mark.slow)]
)
def test_every_solution_is_rewarded_and_no_mistake_is(name):
    sides = graders.measure(name, 3, 2, lambda share: None)
    assert [len(one["latencies"]) for side in sides.values() for one in side] == [3] * 4
    assert all(one > 0 for side in sides.values() for sample in side for one in sample["latencies"])
    assert [one["rewarded"] for one in sides["correct"]] == [3, 3]
    assert [one["rewarded"] for one in sides["mistaken"]] == [0, 0]


def test_no_verdict_is_a_remembered_one(monkeypatch):
    hits, leave = [], SteadyGrader.__exit__
    monkeypatch.setattr(
        SteadyGrader, "__exit__", lambda self, *error: hits.append(self.hits) or leave(self, *error)
    )
    graders.measure("mbpp_plus", 10, 2, lambda share: None)
    assert hits == [0, 0]


def test_graders_need_no_model_and_one_that_does_not_run_is_said_to_be_missing(
    tmp_path, monkeypatch
):
    for name in BENCHMARKS:
        monkeypatch.setattr(type(BENCHMARKS[name]), "unavailable", lambda self: "not here")
    monkeypatch.setattr(bench, "_prepare", lambda: None)
    arguments = ["--part", "g", "--model", str(tmp_path / "none"), "--out", str(tmp_path)]
    assert bench.main(arguments) == 0
    document = json.loads((tmp_path / "g.json").read_text())
    assert document["missing"] == [f"{name}: not here" for name in BENCHMARKS]
    assert not document["rows"]


def test_learning_is_too_slow_to_change_what_is_sampled():
    assert trainers.LEARNING_RATE <= 1e-6
