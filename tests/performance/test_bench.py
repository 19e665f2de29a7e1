"""`make bench`: small measurements on the toy model, and the command's errors."""

import multiprocessing
import time
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from performance import (
    bench,
    loops,
    measures,
    memory,
    models,
    reference_times,
    report,
    results,
    rewards,
    steps,
)
from performance.parts import DEFAULT_PARTS, PARTS, Experiment, Setting, list_experiments
from performance.trainers import TRAINERS
from rapid.artifacts.code import ROOT
from rapid.artifacts.files import BadInput
from rapid.benchmarks import BENCHMARKS
from rapid.config.params import load_files
from rapid.cost.shapes import Shape, parse_shape
from rapid.grading.pool import GraderPool

SMALL = Setting(H=2, n_step=8, micro_batch=4, length=6)


@pytest.fixture(scope="module")
def workload(toy_model) -> models.Workload:
    return models.load_subject("tiny", toy_model)


def start_loop(workload, setting=SMALL) -> loops.TrainingLoop:
    return loops.TrainingLoop(
        setting, partial(TRAINERS["rapid"], workload), rewards.SolveRateReward
    )


def test_both_trainers_sample_the_same_completions_and_are_timed(workload, monkeypatch):
    samples = []
    summarize = measures.summary.summarize_timing
    monkeypatch.setattr(
        measures.summary,
        "summarize_timing",
        lambda turns: samples.extend(turns) or summarize(turns),
    )
    experiment = Experiment(
        "rates",
        "tiny",
        SMALL,
        trainers=("trl", "rapid"),
        solve_rates=(0.0, 1.0),
        completions=64,
        varied="length",
    )
    rows = [*measures.time_trainers(experiment, workload, repeats=1)]
    for row, pair, rate in zip(rows, samples, (0.0, 1.0), strict=True):
        assert (row["varied"], row["solve_rate"], row["N_inference"]) == ("length", rate, 16)
        (trl,), (rapid,) = pair["trl"], pair["rapid"]
        assert rapid["completions"] == trl["completions"] == 64
        assert rapid["length"] == trl["length"]
        assert (
            rapid["rewarded_share"]
            == rapid["rewarded_group_share"]
            == trl["rewarded_group_share"]
            == rate
        )
        assert 0 < sum(rapid["phases"].values()) < rapid["seconds"]
        assert 0 < trl["optimizer"] < trl["seconds"]
        assert (0 < rapid["log_mu"] < rapid["phases"]["backpropagation"]) == bool(rate)
        assert row["speedup"][0] == pytest.approx(trl["seconds"] / rapid["seconds"], rel=1e-4)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_both_trainers_have_the_same_batches_and_settings(workload, checkpointing):
    setting = replace(SMALL, checkpointing=checkpointing)
    trl, rapid = (
        TRAINERS[name](workload, setting, rewards.SolveRateReward()) for name in ("trl", "rapid")
    )
    assert trl.args.per_device_train_batch_size == rapid.args.micro_batch_size == 4
    assert trl.args.generation_batch_size == rapid.args.generation_batch_size == 16
    assert trl.args.gradient_accumulation_steps == 2
    assert rapid.args.gradient_checkpointing == checkpointing
    names = [
        "learning_rate",
        "seed",
        "temperature",
        "top_k",
        "top_p",
        "bf16",
        "optim",
        "gradient_checkpointing",
    ]
    for name in names:
        assert getattr(rapid.args, name) == getattr(trl.args, name), name


def test_on_policy_trainers_sample_before_each_step(workload):
    trl, policy_gradient = (
        TRAINERS[name](workload, SMALL, rewards.SolveRateReward())
        for name in ("trl_on_policy", "policy_gradient")
    )
    assert trl.args.generation_batch_size == SMALL.n_step
    assert (policy_gradient.args.H, policy_gradient.args.n_step) == (1, SMALL.n_step)


@pytest.mark.parametrize("kind", ["fixed_length", "scripted"])
def test_fixed_length_and_scripted_completions_have_one_length(workload, kind):
    with start_loop(workload, replace(SMALL, length=9, **{kind: True})) as loop:
        assert loop.run(2)["length"] == 9


def test_reference_times_are_of_completions_with_the_greatest_length(workload):
    prompts = reference_times._tokenize_prompts(workload, SMALL)
    completions = reference_times._prepare_transformers(workload, SMALL, prompts)()
    width = max(map(len, prompts))
    assert completions.shape == (SMALL.inference_batch, width + SMALL.length)
    assert [
        row[width - len(p) : width].tolist() for row, p in zip(completions, prompts, strict=True)
    ] == prompts
    assert min(reference_times.measure_reference_times(workload, SMALL).values()) > 0


def test_loop_that_is_not_ready_in_time_is_ended(monkeypatch):
    monkeypatch.setattr(loops, "BUILD_SECONDS", 0.1)
    before = multiprocessing.active_children()
    with pytest.raises(RuntimeError, match="not ready after 0 s"):
        loops.TrainingLoop(SMALL, lambda **_: time.sleep(3600), rewards.SolveRateReward)
    assert multiprocessing.active_children() == before


def test_error_of_a_failed_loop_has_the_reason(workload):
    with pytest.raises(RuntimeError, match="set it to a multiple of 4"):
        start_loop(workload, Setting(n_step=6))


def test_loop_ends_with_the_process_that_started_it(workload):
    with start_loop(workload) as loop:
        loop._connection.close()  # as when that process is killed
        loop._process.join(10)
        assert not loop._process.is_alive()


def test_verdicts_beside_sampling_are_those_after_sampling(workload):
    samples = []
    for grading_workers in (0, 2):
        with start_loop(workload, replace(SMALL, grading_workers=grading_workers)) as loop:
            samples.append(loop.run(8, 0.3))
    same = ("completions", "length", "rewarded_share", "rewarded_group_share")
    after, beside = ({name: sample[name] for name in same} for sample in samples)
    assert (
        after == pytest.approx(beside, abs=1e-12)
        and 0 < after["rewarded_share"] < after["rewarded_group_share"] < 1
    )


@pytest.mark.parametrize("experiment", list_experiments("h"), ids=lambda e: e.name)
def test_grading_beside_sampling_is_measured_with_the_settings_of_the_pipeline(experiment):
    params = load_files(ROOT / "params.yaml")
    benchmark, setting = params.benchmarks[experiment.benchmark], experiment.setting
    assert (setting.n_step, setting.length) == (benchmark.n_step, benchmark.max_completion_length)
    assert (setting.group, setting.micro_batch) == (
        params.training.group_size,
        params.training.micro_batch,
    )
    assert experiment.subject == "tiny" and setting.cores > setting.threads


@pytest.mark.parametrize(
    ("name", "family"),
    [("Qwen2.5-0.5B", "qwen2"), ("Llama-3.2-1B", "llama"), ("Gemma-3-1B", "gemma3_text")],
)
def test_untrained_model_has_the_declared_family_and_sizes(tmp_path, monkeypatch, name, family):
    monkeypatch.setenv("RAPID_CACHE", str(tmp_path))
    shape = Shape(2, 128, 384, 2, 1, 64, 300, True)
    workload = models.build_untrained_workload(
        name, shape, vocabulary_size=100, prompt_lengths=(5, 5)
    )
    model = workload.load()
    assert model.config.model_type == family and model.dtype == torch.float32
    assert parse_shape(model.config.to_dict(), "test") == shape
    assert shape.parameters == pytest.approx(model.num_parameters(), rel=0.01)  # norms, biases
    assert {len(prompt.split()) for prompt in workload.prompts} == {5}


@pytest.mark.parametrize("trainer_name", ["rapid", "sft"])
def test_memory_peaks_in_training(workload, trainer_name):
    setting = replace(SMALL, scripted=True, checkpointing=True)
    sizes = memory.measure_training_memory(trainer_name, workload, setting, 1, 0.5)
    # Building a trainer may also free memory of this process, which has run other tests.
    assert sizes["before_model"] > 0
    assert 0 < sizes["before_training"] <= sizes["peak"]


def test_memory_on_a_gpu_is_what_torch_has_allocated(monkeypatch):
    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(device=torch.device("cuda")), train=lambda: None
    )
    monkeypatch.setitem(TRAINERS, "on_gpu", lambda *_, **__: trainer)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 2_000_000)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 5_000_000)
    sizes = memory.measure_training_memory("on_gpu", SimpleNamespace(shape=None), SMALL, 1, 0.5)
    assert sizes == {"peak": 5.0, "before_training": 2.0, "before_model": 0.0}


@pytest.mark.slow
def test_memory_is_measured_in_a_fresh_process(workload):
    ballast = (
        bytearray(b"x") * 2 * 10**9
    )  # memory of this process, which a forked process would count
    sizes = memory.call_in_fresh_process(
        memory.measure_training_memory, "rapid", workload, SMALL, 1, 0.5
    )
    assert (
        0 < sizes["before_model"] <= sizes["before_training"] <= sizes["peak"] < len(ballast) / 1e6
    )
    experiment = Experiment("memory", "tiny", SMALL, trainers=("trl",), solve_rates=(0.5,))
    [row] = measures.measure_memory(experiment, workload, repeats=1)
    assert 0 < row["increase_mb_trl"][0] < row["peak_mb_trl"][0] < len(ballast) / 1e6


def test_steps_are_measured_again_unless_resumed(tmp_path, monkeypatch, capsys):
    path = tmp_path / "planned_memory.jsonl"
    sizes = {"peak": 3000.0, "before_training": 2000.0, "before_model": 1000.0}
    measured = []
    monkeypatch.setenv("RAPID_CACHE", str(tmp_path))
    monkeypatch.setattr(
        steps, "call_in_fresh_process", lambda function, *inputs: measured.append(inputs) or sizes
    )
    arguments = ["planned_memory", "--out", str(path), "--only", "Llama"]
    steps.main(arguments)
    trainer_name, workload, setting, batches, _ = measured[-1]
    assert (trainer_name, workload.shape.layers, setting.micro_batch, batches) == ("rapid", 3, 2, 1)
    assert (setting.n_step, setting.group, setting.length) == (4, 4, 512) and setting.checkpointing
    assert "| Llama-3.2-1B, 3 of 16 layers (CPU) | RL | 2 x 576 |" in capsys.readouterr().out
    rows = steps.read_tables(path)["planned_memory"]
    assert len(rows) == len(measured) == 6 and {row["measured_bytes"] for row in rows} == {2e9}
    steps.main([*arguments, "--resume"])
    assert len(measured) == 6
    steps.main(arguments)
    assert len(measured) == 12 and steps.read_tables(path)["planned_memory"] == rows
    figures = steps.measure_trainer_memory({"length": 512, "group": 8, "micro_batch": 2})
    assert figures == {"trl": 1000.0, "rapid": 1000.0}
    assert [arguments[0] for arguments in measured[-2:]] == ["trl", "rapid"]


@pytest.mark.parametrize("part", PARTS)
def test_every_part_has_named_experiments_with_a_measurement(part):
    experiments = [*list_experiments(part)]
    quick = [*list_experiments(part, quick=True)]
    assert len({experiment.name for experiment in experiments}) == len(experiments) >= len(quick)
    for experiment in experiments + quick:
        assert getattr(measures, experiment.measure) and experiment.batches >= 1
        assert experiment.setting.n_step % experiment.setting.micro_batch == 0


def test_list_of_values_gives_an_experiment_for_each_value():
    pairs = [(e.setting.n_step, e.setting.H) for e in list_experiments("b")]
    assert pairs == [(n_step, H) for n_step in (4, 16, 32, 64) for H in (1, 2, 4, 8, 16)]
    assert [e.setting.micro_batch for e in list_experiments("b", quick=True)] == [4, 4, 8, 8]
    *_, smollm2 = list_experiments("a")
    assert (smollm2.setting.n_step, smollm2.setting.length, smollm2.repeats) == (4, 48, 3)
    lengths = [e for e in list_experiments("d") if e.varied == "length"]
    assert [e.batches for e in lengths] == [2, 2, 2, 1, 1, 1]
    assert "j" not in DEFAULT_PARTS and "a" in DEFAULT_PARTS


@pytest.fixture
def unprepared(monkeypatch):
    """Make the command lease no cores, and write no page."""
    monkeypatch.setattr(bench, "_prepare", lambda *_: [])
    monkeypatch.setattr(report, "main", lambda folders: None)


def raise_unavailable(*_, **__):
    """Replaces a function that downloads, as if there were no network."""
    raise BadInput("not here")


def test_failed_experiment_stops_no_other_and_is_resumed(
    toy_model, tmp_path, monkeypatch, unprepared
):
    broken, measured = [True], []

    def measure(experiment, subject, repeats):
        measured.append(experiment.name)
        if experiment.name == "first" and broken:
            raise RuntimeError("a training loop failed:\nno memory")
        return [{"solve_rate": 0.5, "model": experiment.name}]

    monkeypatch.setattr(measures, "time_trainers", measure)
    experiments = [Experiment(name, "tiny", SMALL) for name in ("first", "second")]
    experiments.append(Experiment("third", "smollm2", SMALL))
    monkeypatch.setattr(bench, "list_experiments", lambda part, quick: experiments)
    monkeypatch.setattr(models, "fetch", raise_unavailable)
    monkeypatch.setenv("RAPID_CACHE", str(tmp_path))
    earlier = {"date": "a day", "missing": [], "rows": [{"model": "another part's"}]}
    results.write_summary(tmp_path, {"a": earlier})
    arguments = ["--part", "b", "--model", str(toy_model), "--out", str(tmp_path), "--resume"]
    assert bench.main(arguments) == 1
    document = results.read_parts(tmp_path)["b"]
    assert document["commit"] and document["versions"]["torch"]
    assert document["missing"] == ["first: no memory", "smollm2: not here"]
    assert document["rows"] == [{"experiment": "second", "solve_rate": 0.5, "model": "second"}]
    broken.clear()
    assert bench.main(arguments) == 0
    assert measured == ["first", "second", "first"]
    document = results.read_parts(tmp_path)["b"]
    assert [row["model"] for row in document["rows"]] == ["second", "first"]
    assert document["missing"] == ["smollm2: not here"]
    assert (
        bench.main([*arguments, "--repeats", "9"]) == 0
    )  # with another option all are measured again
    assert measured[3:] == ["first", "second"]
    assert results.read_parts(tmp_path)["a"] == earlier


def test_error_of_an_unknown_name_lists_the_known_names(capsys):
    with pytest.raises(SystemExit, match="bench: --part z: no such part; known: a, b"):
        bench.main(["--part", "z"])
    with pytest.raises(SystemExit):
        bench.main(["--models", "tini"])
    assert capsys.readouterr().err.endswith("; did you mean tiny?\n")


@pytest.mark.parametrize("benchmark", ["math", pytest.param("minif2f", marks=pytest.mark.slow)])
def test_correct_completions_are_rewarded_and_mistaken_ones_are_not(benchmark):
    samples = measures.grade_exercises(benchmark, models.make_exercises(benchmark, 3))
    assert all(latency > 0 for sample in samples.values() for latency in sample["latencies"])
    assert [len(sample["latencies"]) for sample in samples.values()] == [3, 3]
    assert [samples[kind]["rewarded"] for kind in ("correct", "mistaken")] == [3, 0]


def test_timed_verdicts_do_not_come_from_the_cache(monkeypatch):
    calls, grade = [], GraderPool.grade

    def record_and_grade(self, problem, completion):
        calls.append((self, problem.id, completion))
        return grade(self, problem, completion)

    monkeypatch.setattr(GraderPool, "grade", record_and_grade)
    experiment = Experiment("mbpp_plus", "mbpp_plus", SMALL, completions=10)
    correct, mistaken = measures.time_verdicts(experiment, "mbpp_plus", repeats=2)
    assert (correct["verdicts"], mistaken["verdicts"]) == (20, 20)
    assert (correct["rewarded"], mistaken["rewarded"]) == (1, 0)
    assert len(set(calls)) == len(calls) >= 40


def test_graders_are_measured_without_a_model_and_listed_if_unavailable(
    tmp_path, monkeypatch, unprepared
):
    for name in BENCHMARKS:
        monkeypatch.setattr(type(BENCHMARKS[name]), "explain_unavailable", lambda self: "not here")
    arguments = ["--part", "g", "--model", str(tmp_path / "none"), "--out", str(tmp_path)]
    assert bench.main(arguments) == 0
    names = [experiment.subject for experiment in list_experiments("g")]
    assert results.read_parts(tmp_path)["g"]["missing"] == [f"{name}: not here" for name in names]


def test_grader_is_needed_only_by_experiments_that_use_it(toy_model, monkeypatch):
    kind = type(BENCHMARKS["mbpp_plus"])
    monkeypatch.setattr(kind, "explain_unavailable", lambda self: "not here")
    workload = models.load_subject("tiny", toy_model)
    simulated = Experiment("rates", "tiny", SMALL, trainers=("rapid",), solve_rates=(0.5,))
    assert len([*measures.time_trainers(simulated, workload, repeats=1)]) == 1
    with pytest.raises(BadInput, match="not here"):
        next(measures.time_trainers(replace(simulated, solve_rates=(None,)), workload, repeats=1))


def test_error_of_a_missing_tiny_model_has_the_command_that_makes_it(tmp_path):
    with pytest.raises(BadInput, match="snakemake"):
        models.load_subject("tiny", tmp_path / "none")
