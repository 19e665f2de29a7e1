"""Completions over which graders died: stages leave them out and count them; too many end a job."""

import json

import pytest

from rapid.algorithms.names import parse
from rapid.artifacts.files import read_jsonl, write_jsonl
from rapid.artifacts.runs import StepRecord
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import draw_exercises
from rapid.cli import run
from rapid.config.specs import DistillSpec, EvaluateSpec, Run, TrainSpec
from rapid.grading import verdicts
from rapid.grading.grader import GraderDied
from rapid.grading.math.grader import MathGrader
from rapid.stages.train import train

COMMON = {
    "compute": {"device": "cpu", "threads": 1, "processes": 1, "sampler": "transformers"},
    "max_completion_length": 6,
    "timeout": 2.0,
    "chat": False,
}
TRAINING = {"learning_rate": 0.01, "epochs": 1, "group_size": 2, "micro_batch": 2, "temperature": 1}
RAPID = ("rapid-H2", {"eta": 2.0, "clip": "advantage"})
DAPO = ("dapo", {"epsilon_low": 0.2, "epsilon_high": 0.28, "rounds": 1, "overlong_buffer": 0.5})


def training(algorithm: str = RAPID[0], objective: dict | None = RAPID[1]) -> TrainSpec:
    return TrainSpec(
        run=Run(benchmark="math", model="toy", algorithm=algorithm, seed=1),
        n_step=4,
        H=parse(algorithm).H,
        training=TRAINING,
        objective=objective,
        sampling_batch=None,
        snapshots=0,
        **COMMON,
    )


@pytest.fixture
def problems(tmp_path):
    path = tmp_path / "problems.jsonl"
    exercises = draw_exercises(BENCHMARKS["math"], 0, {"train": 8})["train"]
    write_jsonl(path, [exercise.problem for exercise in exercises])
    return path


@pytest.fixture
def deaths(monkeypatch):
    """Lets the grader die over the completions of these numbers, from 0; every other one is right."""
    numbers, seen = set(), []

    def grade(self, problem, completion):
        if not completion:  # the start-up's
            return verdicts.verdict(verdicts.NO_ANSWER)
        if (pair := (problem.id, completion)) not in seen:
            seen.append(pair)
        number = seen.index(pair)
        if number in numbers:
            raise GraderDied("in a test")
        return verdicts.verdict(verdicts.WRONG_ANSWER if number % 2 else verdicts.PASSED)

    monkeypatch.setattr(MathGrader, "grade", grade)
    return numbers


@pytest.mark.parametrize("algorithm, objective", [RAPID, DAPO])
def test_training_leaves_the_group_out_and_counts(
    problems, deaths, toy_model, tmp_path, algorithm, objective
):
    deaths.add(6)
    summary = train(training(algorithm, objective), toy_model, problems, tmp_path / "run")
    assert summary.reasons["infrastructure"] == 1
    assert sum(summary.reasons.values()) == summary.completions == 16
    assert json.loads((tmp_path / "run/summary.json").read_text())["reasons"] == summary.reasons
    rewards = [step.reward for step in read_jsonl(tmp_path / "run/steps.jsonl", StepRecord)]
    assert rewards[0] == 0.5
    assert rewards[1] in (0.0, 0.5, 1.0)  # of one group of two


@pytest.mark.parametrize("stage", ["train", "evaluate", "distill"])
def test_a_job_ends_where_too_much_is_not_graded(
    problems, deaths, toy_model, tmp_path, capsys, monkeypatch, stage
):
    monkeypatch.setattr("rapid.resources.requests.lease_resources", lambda spec: None)
    deaths |= {0, 1}
    spec = {"train": training(), "evaluate": evaluation(), "distill": distillation()}[stage]
    command = [stage, "--spec", spec.model_dump_json(), "--out", str(tmp_path / "out")]
    assert run([*command, "--model", str(toy_model), "--data", str(problems)]) == 1
    message = capsys.readouterr().err
    assert f"rapid {stage}: the grader of math died twice on each of 2 of 2 completions" in message
    assert "in a test" in message and "out-of-memory" in message
    assert not (tmp_path / "out/manifest.json").exists()


def evaluation() -> EvaluateSpec:
    return EvaluateSpec(
        run=Run(benchmark="math", model="toy", algorithm="base", seed=1),
        pass_at=[1, 2],
        snapshots=0,
        evaluation={"samples": 2, "temperature": 1.0, "top_p": 1.0},
        **COMMON,
    )


def distillation() -> DistillSpec:
    return DistillSpec(
        benchmark="math",
        teacher="toy",
        data_seed=0,
        samples=2,
        temperature=1.0,
        top_p=1.0,
        precision="float32",
        tensor_parallel=1,
        **COMMON,
    )


def test_distillation_keeps_nothing_that_was_not_graded(
    problems, deaths, toy_model, tmp_path, monkeypatch
):
    """By its command, which no workflow of the fast tests starts."""
    monkeypatch.setattr("rapid.resources.requests.lease_resources", lambda spec: None)
    deaths.add(4)
    command = ["distill", "--spec", distillation().model_dump_json(), "--out", str(tmp_path / "d")]
    assert run([*command, "--model", str(toy_model), "--data", str(problems)]) == 0
    manifest = json.loads((tmp_path / "d/manifest.json").read_text())
    assert manifest["reasons"]["infrastructure"] == 1
    assert manifest["kept"] == manifest["reasons"]["passed"] == 7


def test_groups_without_a_gradient_run_where_a_variant_asks(problems, toy_model, tmp_path):
    """No completion of the toy model is right: no group has a gradient."""
    variant = training(f"{RAPID[0]},skip_zero_groups=false")
    summary = train(variant, toy_model, problems, tmp_path / "run")
    assert (summary.run, summary.reward_last) == (1, 0)
    assert summary.staleness is not None


def test_a_variant_sets_the_bound_of_the_gradient_s_norm(problems, deaths, toy_model, tmp_path):
    """The norms that are logged, before the bound, exceed 1: without it other weights come out."""
    models = []
    for name in (RAPID[0], f"{RAPID[0]},max_grad_norm=1000000"):
        train(training(name), toy_model, problems, tmp_path / name)
        steps = read_jsonl(tmp_path / name / "steps.jsonl", StepRecord)
        assert 1 < max(step.gradient_norm for step in steps) < 1e6
        models.append((tmp_path / name / "model/model.safetensors").read_bytes())
    assert models[0] != models[1]
