"""Completions that crash the grader: stages leave them out and count them; too many end a job."""

import json

import pytest

from rapid.algorithms.variant_names import parse_variant_name
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


def make_train_spec(algorithm: str = RAPID[0], objective: dict | None = RAPID[1]) -> TrainSpec:
    return TrainSpec(
        run=Run(benchmark="math", model="toy", algorithm=algorithm, seed=1),
        n_step=4,
        H=parse_variant_name(algorithm).H,
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
def crashes(monkeypatch):
    """Numbers, from 0, of completions that crash the grader; of the rest, even ones are correct."""
    crashing, completions = set(), []

    def grade(self, problem, completion):
        if not completion:  # the first call, at start-up
            return verdicts.build_verdict(verdicts.NO_ANSWER)
        if (pair := (problem.id, completion)) not in completions:
            completions.append(pair)
        number = completions.index(pair)
        if number in crashing:
            raise GraderDied("in a test")
        return verdicts.build_verdict(verdicts.WRONG_ANSWER if number % 2 else verdicts.PASSED)

    monkeypatch.setattr(MathGrader, "grade", grade)
    return crashing


@pytest.mark.parametrize("algorithm, objective", [RAPID, DAPO])
def test_training_leaves_out_the_group_and_counts_it(
    problems, crashes, toy_model, tmp_path, algorithm, objective
):
    crashes.add(6)
    summary = train(make_train_spec(algorithm, objective), toy_model, problems, tmp_path / "run")
    assert summary.reasons["infrastructure"] == 1
    assert sum(summary.reasons.values()) == summary.completions == 16
    assert json.loads((tmp_path / "run/summary.json").read_text())["reasons"] == summary.reasons
    rewards = [step.reward for step in read_jsonl(tmp_path / "run/steps.jsonl", StepRecord)]
    assert rewards[0] == 0.5
    assert rewards[1] in (0.0, 0.5, 1.0)  # of the one group of two that is left


@pytest.mark.parametrize("stage", ["train", "evaluate", "distill"])
def test_job_fails_where_too_many_completions_are_ungraded(
    problems, crashes, toy_model, tmp_path, capsys, monkeypatch, stage
):
    monkeypatch.setattr("rapid.resources.requests.lease_resources", lambda spec: None)
    crashes |= {0, 1}
    make_spec = {
        "train": make_train_spec, "evaluate": make_evaluate_spec, "distill": make_distill_spec,
    }[stage]  # fmt: skip
    command = [stage, "--spec", make_spec().model_dump_json(), "--out", str(tmp_path / "out")]
    assert run([*command, "--model", str(toy_model), "--data", str(problems)]) == 1
    message = capsys.readouterr().err
    assert f"rapid {stage}: the grader of math died twice in a row on 2 of 2 completions" in message
    assert "in a test" in message and "out-of-memory" in message
    assert not (tmp_path / "out/manifest.json").exists()


def make_evaluate_spec() -> EvaluateSpec:
    return EvaluateSpec(
        run=Run(benchmark="math", model="toy", algorithm="base", seed=1),
        pass_at=[1, 2],
        snapshots=0,
        evaluation={"samples": 2, "temperature": 1.0, "top_p": 1.0},
        **COMMON,
    )


def make_distill_spec() -> DistillSpec:
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


def test_distillation_keeps_no_ungraded_completion(
    problems, crashes, toy_model, tmp_path, monkeypatch
):
    """The test runs the command, since no workflow of the fast tests does."""
    monkeypatch.setattr("rapid.resources.requests.lease_resources", lambda spec: None)
    crashes.add(4)
    spec = make_distill_spec().model_dump_json()
    command = ["distill", "--spec", spec, "--out", str(tmp_path / "d")]
    assert run([*command, "--model", str(toy_model), "--data", str(problems)]) == 0
    manifest = json.loads((tmp_path / "d/manifest.json").read_text())
    assert manifest["reasons"]["infrastructure"] == 1
    assert manifest["kept"] == manifest["reasons"]["passed"] == 7


def test_variant_runs_groups_without_a_gradient(problems, toy_model, tmp_path):
    """No completion of the toy model is correct, so no group has a gradient."""
    variant = make_train_spec(f"{RAPID[0]},skip_zero_groups=false")
    summary = train(variant, toy_model, problems, tmp_path / "run")
    assert (summary.run, summary.reward_last) == (1, 0)
    assert summary.staleness is not None


def test_variant_sets_the_bound_of_the_gradient_norm(problems, crashes, toy_model, tmp_path):
    """The logged norms are those before clipping and exceed 1, so the bound changes the weights."""
    models = []
    for name in (RAPID[0], f"{RAPID[0]},max_grad_norm=1000000"):
        train(make_train_spec(name), toy_model, problems, tmp_path / name)
        steps = read_jsonl(tmp_path / name / "steps.jsonl", StepRecord)
        assert 1 < max(step.gradient_norm for step in steps) < 1e6
        models.append((tmp_path / name / "model/model.safetensors").read_bytes())
    assert models[0] != models[1]
