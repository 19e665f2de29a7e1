"""One tiny measurement with the machinery of each part, on the toy model."""

import multiprocessing
import time
from dataclasses import replace
from functools import partial

import pytest
import torch
from trl import GRPOTrainer

from performance import (
    bench,
    floor,
    graders,
    loops,
    memory,
    models,
    operators,
    parts,
    report,
    results,
    rewards,
    trainers,
)
from performance.beside_trl import LEARNING, Float64, compare
from performance.trainers import SIDES, Setting, rapid
from rapid.artifacts.files import BadInput
from rapid.benchmarks import BENCHMARKS
from rapid.cost.shapes import Shape, from_config, from_values
from rapid.grading.pool import SteadyGrader
from tests.training.loops import assert_learned_alike, untrained, weights

SMALL = Setting(H=2, n_step=8, micro_batch=4, length=6)


@pytest.fixture(scope="module")
def workload(toy_model) -> models.Workload:
    return models.tiny(toy_model, models.read_problems(None, 8))


@pytest.fixture(scope="module")
def plan() -> parts.Plan:
    return parts.Plan(repeats=1, quick=True)


def loop(workload, reward=None, setting=SMALL, side="rapid", **more) -> loops.Loop:
    build = partial(SIDES[side], workload, **more)
    return loops.Loop(setting, build, reward or partial(rewards.SolveRate, 0.5))


def test_both_sides_sample_the_same_completions_and_are_timed(workload, plan):
    none, every = parts.timing(plan, workload, "some", SMALL, (0.0, 1.0), reference="A").run()
    for row, rate in ((none, 0.0), (every, 1.0)):
        assert (row["reference"], row["rate"], row["N_inference"]) == ("A", rate, 16)
        (ours,), (theirs,) = row["samples"]["rapid"], row["samples"]["stock"]
        assert ours["completions"] == theirs["completions"] == 64
        assert ours["length"] == theirs["length"]
        assert ours["solved"] == ours["alive"] == theirs["alive"] == rate
        assert 0 < sum(ours["phases"].values()) < ours["seconds"]
        assert 0 < theirs["optimizer"] < theirs["seconds"]
        assert row["faster"][0] == pytest.approx(theirs["seconds"] / ours["seconds"], rel=1e-4)


def test_both_sides_have_the_same_batches(workload):
    theirs, ours = (side(workload, SMALL, rewards.SolveRate(0.5)) for side in SIDES.values())
    assert theirs.args.per_device_train_batch_size == ours.args.micro_batch_size == 4
    assert theirs.args.generation_batch_size == ours.args.generation_batch_size == 16
    assert theirs.args.gradient_accumulation_steps == 2
    assert not ours.args.gradient_checkpointing and not theirs.args.gradient_checkpointing
    for name in ("learning_rate", "seed", "temperature", "top_k", "top_p", "bf16", "optim"):
        assert getattr(ours.args, name) == getattr(theirs.args, name), name


def test_completions_are_of_a_fixed_length_where_that_is_asked_for(workload):
    setting = Setting(H=2, n_step=8, micro_batch=4, length=9, fixed_length=True)
    with loop(workload, setting=setting) as one:
        assert one.run(2)["length"] == 9


def test_a_loop_that_is_not_ready_in_time_does_not_go_on(monkeypatch):
    monkeypatch.setattr(loops, "BUILD_SECONDS", 0.1)
    others = multiprocessing.active_children()
    with pytest.raises(RuntimeError, match="not ready after 0 s"):
        loops.Loop(SMALL, lambda **_: time.sleep(3600), partial(rewards.SolveRate, 0.5))
    assert multiprocessing.active_children() == others


def test_the_solve_rate_is_the_same_for_the_same_text():
    some = [f"completion {n}" for n in range(2000)]
    first, second = (rewards.SolveRate(0.1).judge(["prompt"] * 2000, some) for _ in range(2))
    assert first == second
    assert sum(first) / 2000 == pytest.approx(0.1, abs=0.02)


def test_a_verdict_can_take_its_time_beside_sampling(workload):
    reward = partial(rewards.SolveRate, 0.5, wait=0.001)
    with loop(workload, reward, **parts.PLAIN | parts.GRADING) as one:
        sample = one.run(2)
    assert sample["alive"] is None and 0 <= sample["solved"] <= 1


def test_padding_per_pass_leaves_out_tokens_and_changes_nothing_else(workload):
    def learned(kind):
        more = {"kind": kind, "max_steps": 2, "optim": "sgd", "learning_rate": 0.05}
        trainer = trainers.stock(workload, SMALL, rewards.SolveRate(0.5), **more)
        run = []
        trainer.model.base_model.register_forward_pre_hook(
            lambda model, args, inputs: run.append(inputs["input_ids"].numel()), with_kwargs=True
        )
        trainer.train()
        return sum(run), weights(trainer)

    (all_tokens, expected), (fewer, found) = map(learned, (GRPOTrainer, trainers.PaddedPerPass))
    assert fewer < all_tokens
    assert_learned_alike(found, expected, untrained(workload.model, torch.float32))


def test_tokens_and_the_time_of_sampling_are_counted(workload):
    with loop(workload, side="stock") as one:
        for sample in (one.run(2), one.run(2)):
            widths = sample["tokens"] / sample["completions"]
            assert widths == int(widths) > sample["length"]  # a prompt too, padded alike
            assert 0 < sample["cpu_sampling"] < sample["cpu_seconds"]


def test_trls_gradient_is_rapids_on_policy_and_not_quite_later(workload):
    setting = replace(SMALL, micro_batch=8)
    more = {"side": "stock", "kind": Float64, **LEARNING}
    with loop(workload, setting=setting, **more) as one:
        first, second = one.call(compare, setting)
    assert first["staleness"] == 0 and first["cosine"] == pytest.approx(1, abs=1e-12)
    assert max(first["distance"], first["kernel"]) < 1e-6  # the model's norms are in float32
    assert 0 < second["kernel"] < 1e-3 * second["distance"] and second["staleness"] > 0


def test_rewards_of_both_trainers_are_compared_in_pairs(workload, monkeypatch):
    monkeypatch.setattr(parts, "graded", lambda workload: rewards.SolveRate(0.5))
    monkeypatch.setattr(parts.Plan, "usual", lambda plan, workload: SMALL)
    rows = [*parts.learning(parts.Plan(repeats=1, quick=True), workload)]
    assert [row["until"] for row in rows] == [4, 8]
    for [pair] in (row["samples"] for row in rows):
        assert 0 < pair["stock"] < 1 and pair["gap"] == pair["rapid"] - pair["stock"]
    assert "| 8 |" in report.section("n", rows)


def test_the_real_grader_judges(workload):
    with loop(workload, partial(parts.graded, workload)) as one:
        assert one.run(2)["solved"] == 0  # an untrained model


def test_the_savings_are_switches_of_the_trainer(workload):
    setting, reward = SMALL, rewards.SolveRate(0.5)
    plain = rapid(workload, setting, reward, **parts.PLAIN).args
    every = rapid(workload, setting, reward, **parts.PLAIN | parts.ALL | parts.GRADING).args
    assert all(getattr(every, name) and not getattr(plain, name) for name in parts.PLAIN)


def test_two_processes_divide_the_work(workload):
    with loop(workload, setting=replace(SMALL, processes=2)) as two, loop(workload) as one:
        for some, rows in ((one, 16), (two, 8)):
            assert some.run(2)["completions"] == 16
            assert some.call(completions_seen) == rows


def completions_seen(trainer) -> int:
    return len(trainer.reward_funcs[0].lengths)


def test_an_untrained_model_has_the_sizes_that_are_asked_for(workload):
    wide = replace(workload, shape=Shape(2, 128, 384, 2, 1, 64, 300, True))
    model = wide.load()
    assert from_values(model.config.to_dict(), "test") == wide.shape
    assert wide.parameters == pytest.approx(model.num_parameters(), rel=0.01)  # norms, biases


def test_kinds_of_operators_add_up_to_the_whole(workload):
    with loop(workload) as one:
        found = operators.measure(one, 2)
    assert {*found} == {*operators.KINDS, "operators", "outside"}
    assert min(found.values()) > 0


def test_the_floor_samples_again_what_the_loop_sampled(workload):
    with loop(workload) as one:
        sample = one.run(2)
        found = one.call(floor.measure, SMALL)["floor"]
    assert found["sampler"]["length"] == sample["length"] and found["sampler"]["seconds"] > 0
    assert 0 < found["operations"]["least"] < found["operations"]["all"]
    assert found["rate"] > 0


def test_operations_are_two_for_each_weight_and_token(toy_model):
    shape = from_config(toy_model / "config.json")
    weights = 4 * 64 * 64 + 3 * 64 * 64  # of the only layer
    head = 64 * shape.vocabulary
    attention = 2 * 2 * 64 * (1 + 2 + 3 + 4 + 5)  # each token to itself and those before it
    assert floor.operations(shape, 2, 3) == 2 * (5 * weights + 3 * head) + attention


def test_memory_peaks_in_training(workload):
    peak = memory.train("rapid", workload, SMALL, batches=1)
    assert 0 < peak["before"] <= peak["peak"]


@pytest.mark.slow
def test_memory_is_measured_in_a_fresh_process(workload):
    ballast = bytearray(b"x") * 2 * 10**9  # would show in a process that inherits this one's
    peak = memory.measure("stock", workload, SMALL, batches=1)
    assert 0 < peak["before"] < peak["peak"] < len(ballast) / 1e6


def test_a_loop_that_fails_says_why(workload):
    with pytest.raises(RuntimeError, match="make it a multiple of 4"):
        loop(workload, setting=Setting(n_step=6))


def test_a_loop_ends_with_the_process_that_started_it(workload):
    with loop(workload) as one:
        one._connections[0].close()  # as a process does that is killed
        one._processes[0].join(10)
        assert not one._processes[0].is_alive()


def test_every_part_has_experiments_and_a_table(plan, workload):
    assert parts.PARTS.keys() == report.SECTIONS.keys()
    for names, build in parts.PARTS.values():
        trained = names[0] in ("tiny", *models.UNTRAINED)
        named = [one.name for one in build(plan, workload if trained else names[0])]
        assert named and len({*named}) == len(named)


def test_a_model_that_is_not_there_is_said_to_be_missing(tmp_path):
    with pytest.raises(BadInput, match="snakemake"):
        models.tiny(tmp_path / "none", [])


def test_problems_are_read_from_a_file(tmp_path, workload):
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(one.model_dump_json() + "\n" for one in workload.problems))
    assert models.read_problems(path) == workload.problems
    assert len(workload.rows(20)) == 24


@pytest.fixture
def unprepared(monkeypatch):
    """No core is taken for the command, and no page is written."""
    monkeypatch.setattr(bench, "_prepare", lambda processes, gpu: None)
    monkeypatch.setattr(report, "main", lambda folders: None)


def test_what_fails_or_is_missing_stops_nothing_else_and_is_taken_up_again(
    toy_model, tmp_path, monkeypatch, unprepared
):
    broken, asked = [True], []

    def run(name):
        asked.append(name)
        if name == "first" and broken:
            raise RuntimeError("a training loop failed:\nno memory")
        return [{"rate": 0.5, "model": name, "samples": {}}]

    some = [parts.Experiment(name, partial(run, name)) for name in ("first", "second")]
    part = parts.Part(("tiny", "smollm2"), lambda plan, workload: some)
    monkeypatch.setitem(parts.PARTS, "b", part)
    monkeypatch.setattr(models, "smollm2", unavailable)
    arguments = ["--part", "b", "--model", str(toy_model), "--out", str(tmp_path), "--resume"]
    assert bench.main(arguments) == 1
    document = results.read(tmp_path)["b"]
    assert document["commit"] and document["versions"]["torch"]
    assert document["missing"] == ["smollm2: not here", "first: no memory"]
    assert document["rows"] == [{"experiment": "second", "rate": 0.5, "model": "second"}]
    assert (tmp_path / "samples" / "b.json").exists()
    broken.clear()
    assert bench.main(arguments) == 0
    assert asked == ["first", "second", "first"]
    document = results.read(tmp_path)["b"]
    assert [row["model"] for row in document["rows"]] == ["second", "first"]
    assert document["missing"] == ["smollm2: not here"]
    assert bench.main([*arguments, "--repeats", "9"]) == 0  # other options, other figures
    assert asked[3:] == ["first", "second"]


@pytest.mark.parametrize("wrong", [["--part", "z"], ["--models", "z"]])
def test_what_there_is_none_of_is_refused_with_what_there_is(unprepared, wrong):
    with pytest.raises(
        SystemExit, match=r"bench: --\w+ z: no such (part; known: a, b|model; known: t)"
    ):
        bench.main(wrong)


@pytest.mark.parametrize(
    "name", ["mbpp_plus", "math", pytest.param("minif2f", marks=pytest.mark.slow)]
)
def test_every_solution_is_rewarded_and_no_mistake_is(name):
    found = graders.sample(name, models.exercises(name, 3))
    assert all(one > 0 for kind in found.values() for one in kind["latencies"])
    assert [len(kind["latencies"]) for kind in found.values()] == [3, 3]
    assert [found[kind]["rewarded"] for kind in ("correct", "mistaken")] == [3, 0]


def test_no_verdict_is_a_remembered_one(monkeypatch, plan):
    hits, leave = [], SteadyGrader.__exit__
    monkeypatch.setattr(
        SteadyGrader, "__exit__", lambda self, *error: hits.append(self.hits) or leave(self, *error)
    )
    correct, mistaken = parts.verdicts(parts.Plan(repeats=2, quick=True), "mbpp_plus")
    assert (correct["verdicts"], mistaken["verdicts"]) == (20, 20)
    assert hits == [0, 0]


def test_graders_need_no_model_and_one_that_does_not_run_is_said_to_be_missing(
    tmp_path, monkeypatch, capsys, unprepared
):
    for name in BENCHMARKS:
        monkeypatch.setattr(type(BENCHMARKS[name]), "unavailable", lambda self: "not here")
    arguments = ["--part", "g", "--model", str(tmp_path / "none"), "--out", str(tmp_path)]
    assert bench.main(arguments) == 0
    said = capsys.readouterr().err
    assert all(f"{name}: not here" in said for name in parts.PARTS["g"].subjects)
    assert "none" not in said and not results.read(tmp_path)


def unavailable(*_):
    raise BadInput("not here")
