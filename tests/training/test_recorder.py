"""What a training run leaves beside its model, on a toy model."""

import itertools
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import TrainerCallback

from rapid.artifacts.evaluations import CurvePoint
from rapid.artifacts.files import read_jsonl, write_jsonl
from rapid.artifacts.runs import RunSummary, StepRecord, TokenWeights, read_progress_file
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import draw_exercises
from rapid.config.specs import TrainSpec
from rapid.grading.verdicts import Verdict
from rapid.stages.evaluate import CURVE, evaluate
from rapid.stages.train import select_token_weights, train
from rapid.training.clock import PhaseClock
from rapid.training.recorder import Snapshots, StepRecorder
from rapid.training.usage import Usage
from tests.stages.test_ungraded import RAPID, make_evaluate_spec, make_train_spec


class Disk(type(Path())):
    """A file that takes long to write to."""

    def open(self, mode):
        spend(30 if mode == "a" else 0)
        return super().open(mode)


NOW = SimpleNamespace(seconds=100.0)


def spend(seconds: float) -> None:
    NOW.seconds += seconds


def log(recorder, step, save=False):
    """Log a step, and save after it."""
    control, state = SimpleNamespace(should_save=save), SimpleNamespace(global_step=step)
    state.max_steps = 9
    logs = {"loss": 0.5, "grad_norm": 2.0}
    own = {"rapid/accuracy": 0.75, "rapid/length": 6.0, "rapid/kl": 0.25}
    recorder.on_log(None, state, control, logs | own)
    if save:
        spend(50)
        kept = recorder.state()
        recorder.on_save(None, state, control)
        return kept["attributes"]
    return None


def clock(**seconds):
    return SimpleNamespace(seconds={**seconds}, waited={"grading": 3.0})


def test_what_is_paused_saved_or_shown_is_not_the_runs_time(monkeypatch, tmp_path):
    """Nor of a run that goes on from what was saved, whose other numbers go on, too."""
    read = SimpleNamespace(perf_counter=lambda: NOW.seconds)
    monkeypatch.setattr("rapid.training.recorder.time", read)
    monkeypatch.setattr(Usage, "now", lambda: Usage(0, NOW.seconds, 0))
    recorder, file = StepRecorder(), Disk(tmp_path / "progress.jsonl")
    recorder.clock = clock(sampling=2.0)
    recorder.on_train_begin(None, None, None)
    recorder.follow(file, 9)
    spend(1)
    recorder.pause(lambda: spend(40))
    log(recorder, 1)
    spend(1)
    recorder.clock = clock(sampling=5.0, grading=1.0)
    log(recorder, 2)
    spend(1)
    kept = log(recorder, 3, save=True)
    spend(4)
    assert [step.seconds for step in recorder.steps] == [1, 2, 3]
    phases = [(step.sampling, step.grading, step.sync) for step in recorder.steps]
    assert phases == [(2, 0, 0), (3, 1, 0), (0, 0, 0)]
    (first, *_) = recorder.steps
    assert (first.loss, first.gradient_norm, first.kl) == (0.5, 2.0, 0.25)
    assert (first.reward, first.completion_length) == (0.75, 6.0)
    assert [(row.step, row.of) for row in read_progress_file(file)] == [(1, 9), (2, 9), (3, 9)]
    recorder.on_train_end(None, None, None)
    spend(100)
    assert recorder.seconds == 7
    assert recorder.used.waited == 7 + 30 * 4  # of shown steps it is

    spend(1000)
    again = StepRecorder()
    again.clock = SimpleNamespace(seconds={}, waited={})
    again.restore(kept | {"peak_memory_mb": 1e9})
    clocks = {"seconds": {"sampling": 5, "grading": 1}, "waited": {"grading": 3}}
    assert vars(again.clock) == clocks
    again.on_train_begin(None, None, None)
    again.follow(file, 9)
    spend(5)
    log(again, 4)
    assert [step.seconds for step in again.steps] == [1, 2, 3, 8]
    assert again.steps[3].sampling == 0
    assert [row.step for row in read_progress_file(file)] == [1, 2, 3, 4]
    again.on_train_end(None, None, None)
    assert again.peak_memory_mb == 1e9 > recorder.peak_memory_mb > 0
    assert again.used.waited == 3 + 30 * 4 + 5 + 30 * 2


@pytest.mark.parametrize(("count", "last", "expected"), [(3, 16, [4, 8, 12]), (7, 4, [1, 2, 3])])
def test_snapshots_are_at_equal_distances_and_never_the_last(tmp_path, count, last, expected):
    saved, recorder = [], StepRecorder()
    keeper = Snapshots(count, tmp_path, saved.append, recorder)
    keeper.on_train_begin(None, SimpleNamespace(max_steps=last), None)
    for step in range(1, last + 1):
        keeper.on_step_end(None, SimpleNamespace(global_step=step), None)
    assert saved == [str(tmp_path / f"step{step}") for step in expected]


@pytest.fixture(scope="module")
def trained(toy_model, tmp_path_factory):
    """The folder of a run of RAPID with H = 2 and a reward for half of all completions."""
    folder = tmp_path_factory.mktemp("run")
    made = draw_exercises(BENCHMARKS["math"], 0, {"train": 10})["train"]
    write_jsonl(folder / "train.jsonl", [exercise.problem for exercise in made])
    spec = make_train_spec(f"{RAPID[0]},snapshots=1").model_copy(
        update={"snapshots": 1, "problems": 8}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rapid.grading.math.grader.MathGrader.grade", half_right())
        clock = partial(PhaseClock, waited=itertools.count(step=1000).__next__)
        patch.setattr("rapid.training.trl.sampling_trainer.PhaseClock", clock)
        patch.setattr("rapid.training.usage.LOST", -1e9)
        patch.setenv("RAPID_ATTEMPT", "2")
        train(spec, toy_model, folder / "train.jsonl", folder / "run")
    return folder


def test_a_summary_says_what_a_run_had_of_its_core(trained):
    summary = RunSummary.model_validate_json((trained / "run/summary.json").read_text())
    assert summary.cpu > 0
    assert summary.waited < 0  # without the thousands that the fixture has it wait to be graded
    assert summary.stolen >= 0
    assert summary.disturbed  # by what the fixture sets
    assert summary.attempt == 2


def half_right():
    """Rewards every other completion."""
    calls = []

    def grade(self, problem, completion):
        calls.append(completion)
        return Verdict(reward=float(len(calls) % 2), reason="correct")

    return grade


def test_a_run_learns_from_the_first_so_many_problems(trained):
    summary = json.loads((trained / "run/summary.json").read_text())
    assert summary["completions"] == 8 * 2


def test_a_snapshot_is_kept_and_in_the_manifest(trained):
    outputs = json.loads((trained / "run/manifest.json").read_text())["outputs"]
    kept = [path for path in outputs if "/snapshots/step2/" in path]
    assert any(path.endswith("model.safetensors") for path in kept)
    assert not any("step4" in path for path in outputs)


def test_token_weights_are_of_the_last_step_and_add_up(trained):
    found = TokenWeights.model_validate_json((trained / "run/token_weights.json").read_text())
    steps = list(read_jsonl(trained / "run/steps.jsonl", StepRecord))
    assert (found.H, found.benchmark) == (2, "math")
    assert found.step == steps[-1].step
    assert found.id in (trained / "train.jsonl").read_text()
    assert any(found.log_weights)


@pytest.mark.parametrize(("learned", "shown"), [([0, 1], 1), ([0, 0], None), ([1, 1], 0)])
def test_token_weights_are_of_a_completion_that_counts(trained, learned, shown):
    """Not of one that was left out for its length, nor of a pass for another process's sake."""
    micro_batch = {
        "behavior_logp": torch.zeros(2, 3),
        "completion_mask": torch.tensor(learned)[:, None].expand(2, 3),
        "prompt_ids": torch.tensor([[1], [1]]),
        "completion_ids": torch.full((2, 3), 2),
        "rewards": torch.tensor([1.0, 0.0]),
    }
    logp = torch.tensor([[0.5] * 3, [0.25] * 3])
    tokenizer = SimpleNamespace(decode=lambda ids, **_: "token")
    trainer = SimpleNamespace(last_pass=(4, micro_batch, logp), processing_class=tokenizer)
    spec = SimpleNamespace(chat=False, H=2, run=SimpleNamespace(benchmark="math"))
    found = select_token_weights(spec, trainer, BENCHMARKS["math"], trained / "train.jsonl")
    assert (found and found.log_weights) == (None if shown is None else logp[shown].tolist())


def test_a_curve_has_a_point_for_each_snapshot(trained, toy_model):
    spec = make_evaluate_spec().model_copy(update={"snapshots": 1})
    folder = trained / "evaluation"
    evaluate(spec, trained / "run/model", trained / "train.jsonl", folder)
    (point,) = read_jsonl(folder / CURVE, CurvePoint)
    steps = {
        step.step: step.seconds for step in read_jsonl(trained / "run/steps.jsonl", StepRecord)
    }
    assert (point.step, point.seconds) == (2, steps[2])
    assert f"{folder}/{CURVE}" in json.loads((folder / "manifest.json").read_text())["outputs"]


def test_a_run_that_reports_is_the_run_that_does_not(trained, toy_model, tmp_path, monkeypatch):
    """And what it reports has TRL's names and ours."""
    reported = {}

    class Drawing(TrainerCallback):
        def __init__(self, folder, problems):
            torch.rand(1)

        def on_log(self, args, state, control, logs, **_):
            torch.rand(1)
            reported.update(logs)

        on_train_begin = on_train_end = lambda *_, **__: torch.rand(1)

    monkeypatch.setenv("RAPID_REPORT_TO", "tensorboard")
    monkeypatch.setattr("rapid.stages.reporting.TensorBoardEvents", Drawing)
    monkeypatch.setattr("rapid.grading.math.grader.MathGrader.grade", half_right())
    manifest = json.loads((trained / "run/manifest.json").read_text())
    spec = TrainSpec.model_validate(manifest["spec"])
    train(spec, toy_model, trained / "train.jsonl", tmp_path / "run")
    weights = "model/model.safetensors"
    assert (tmp_path / "run" / weights).read_bytes() == (trained / "run" / weights).read_bytes()
    assert set(manifest["outputs"]) == {
        path.replace(str(tmp_path), str(trained))
        for path in json.loads((tmp_path / "run/manifest.json").read_text())["outputs"]
    }
    theirs = {"reward", "rewards/accuracy/mean", "completions/mean_length", "clip_ratio/high_mean"}
    assert reported.keys() >= {*theirs, "loss", "grad_norm", "entropy", "num_tokens", "step_time"}
    assert reported.keys() >= {f"rapid/{n}" for n in ("accuracy", "staleness", "clip_fraction")}
