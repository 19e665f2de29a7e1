"""Automatic micro-batches in training jobs, of RL and of SFT."""

import pytest

from rapid.artifacts.demonstrations import Demonstration
from rapid.artifacts.files import read_jsonl, write_jsonl
from rapid.artifacts.runs import StepRecord
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import draw_exercises
from rapid.config.specs import Run, TrainSpec
from rapid.stages.train import train
from tests.stages.test_ungraded import COMMON, make_train_spec

SFT = {"learning_rate": 0.01, "epochs": 1, "batch": 4, "temperature": 1.0, "top_p": 1.0}


@pytest.fixture
def exercises():
    return draw_exercises(BENCHMARKS["math"], 0, {"train": 8})["train"]


def make_rl_job(micro_batch, exercises, folder) -> tuple:
    """Return the spec and the problems of a training with RL."""
    data = folder / "problems.jsonl"
    write_jsonl(data, [exercise.problem for exercise in exercises])
    spec = make_train_spec()
    training = spec.training.model_copy(update={"micro_batch": micro_batch})
    return spec.model_copy(update={"training": training}), data


def make_sft_job(micro_batch, exercises, folder) -> tuple:
    """Return the spec and the demonstrations of a training with SFT."""
    data = folder / "samples.jsonl"
    write_jsonl(data, [
        Demonstration(id=problem.id, prompt="ab\n", message="AB", completion=correct)
        for problem, correct, _ in exercises
    ])  # fmt: skip
    spec = TrainSpec(
        run=Run(benchmark="math", model="toy", algorithm="sft", seed=1), n_step=0, H=1,
        training=None, objective=SFT | {"samples": 1, "micro_batch": micro_batch},
        sampling_batch=None, snapshots=0, **COMMON,
    )  # fmt: skip
    return spec, data


@pytest.mark.parametrize("make_job", [make_rl_job, make_sft_job])
def test_automatic_micro_batch_has_the_losses_of_a_fixed_one(
    make_job, exercises, toy_model, tmp_path
):
    """Memory suffices for a whole step; summary.json has the size for auto only."""
    results = {}
    for micro_batch in ("auto", 4):
        folder = tmp_path / str(micro_batch)
        folder.mkdir()
        spec, data = make_job(micro_batch, exercises, folder)
        summary = train(spec, toy_model, data, folder / "run")
        losses = [step.loss for step in read_jsonl(folder / "run/steps.jsonl", StepRecord)]
        results[micro_batch] = (summary.pass_completions, summary.halvings), losses
    assert (results["auto"][0], results[4][0]) == ((4, 0), (0, 0))
    assert results["auto"][1] == pytest.approx(results[4][1], rel=1e-4, abs=1e-6)
