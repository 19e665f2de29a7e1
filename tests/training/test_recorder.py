"""Files that a training run writes beside its model: times, snapshots, metrics, token weights."""

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


class SlowFile(type(Path())):
    """A file to which a write takes 30 seconds."""

    def open(self, mode):
        advance_clock(30 if mode == "a" else 0)
        return super().open(mode)


CLOCK = SimpleNamespace(seconds=100.0)


def advance_clock(seconds: float) -> None:
    CLOCK.seconds += seconds


def log_step(recorder, step, save=False):
    """Log a step and, with `save`, save after it; return the saved attributes."""
    control, state = SimpleNamespace(should_save=save), SimpleNamespace(global_step=step)
    state.max_steps = 9
    logs = {"loss": 0.5, "grad_norm": 2.0}
    rapid_metrics = {"rapid/accuracy": 0.75, "rapid/length": 6.0, "rapid/kl": 0.25}
    recorder.on_log(None, state, control, logs | rapid_metrics)
    if save:
        advance_clock(50)
        saved_state = recorder.state()
        recorder.on_save(None, state, control)
        return saved_state["attributes"]
    return None


def make_clock(**seconds):
    return SimpleNamespace(seconds={**seconds}, waited={"grading": 3.0})


def test_pauses_saves_and_progress_writes_are_not_counted_as_run_time(monkeypatch, tmp_path):
    """A resumed run continues from the saved times and numbers."""
    fake_time = SimpleNamespace(perf_counter=lambda: CLOCK.seconds)
    monkeypatch.setattr("rapid.training.recorder.time", fake_time)
    monkeypatch.setattr(Usage, "now", lambda: Usage(0, CLOCK.seconds, 0))
    recorder, file = StepRecorder(), SlowFile(tmp_path / "progress.jsonl")
    recorder.clock = make_clock(sampling=2.0)
    recorder.on_train_begin(None, None, None)
    recorder.write_progress_to(file, 9)
    advance_clock(1)
    recorder.pause(lambda: advance_clock(40))
    log_step(recorder, 1)
    advance_clock(1)
    recorder.clock = make_clock(sampling=5.0, grading=1.0)
    log_step(recorder, 2)
    advance_clock(1)
    saved_attributes = log_step(recorder, 3, save=True)
    advance_clock(4)
    assert [step.seconds for step in recorder.steps] == [1, 2, 3]
    phases = [(step.sampling, step.grading, step.sync) for step in recorder.steps]
    assert phases == [(2, 0, 0), (3, 1, 0), (0, 0, 0)]
    (first, *_) = recorder.steps
    assert (first.loss, first.gradient_norm, first.kl) == (0.5, 2.0, 0.25)
    assert (first.reward, first.completion_length) == (0.75, 6.0)
    assert [(row.step, row.total_steps) for row in read_progress_file(file)] == [
        (1, 9),
        (2, 9),
        (3, 9),
    ]
    recorder.on_train_end(None, None, None)
    advance_clock(100)
    assert recorder.seconds == 7
    assert recorder.usage.waited == 7 + 30 * 4  # waiting includes the 30 seconds of each write

    advance_clock(1000)
    resumed = StepRecorder()
    resumed.clock = SimpleNamespace(seconds={}, waited={})
    resumed.restore(saved_attributes | {"peak_memory_mb": 1e9})
    clocks = {"seconds": {"sampling": 5, "grading": 1}, "waited": {"grading": 3}}
    assert vars(resumed.clock) == clocks
    resumed.on_train_begin(None, None, None)
    resumed.write_progress_to(file, 9)
    advance_clock(5)
    log_step(resumed, 4)
    assert [step.seconds for step in resumed.steps] == [1, 2, 3, 8]
    assert resumed.steps[3].sampling == 0
    assert [row.step for row in read_progress_file(file)] == [1, 2, 3, 4]
    resumed.on_train_end(None, None, None)
    assert resumed.peak_memory_mb == 1e9 > recorder.peak_memory_mb > 0
    assert resumed.usage.waited == 3 + 30 * 4 + 5 + 30 * 2


@pytest.mark.parametrize(
    ("count", "max_steps", "expected"), [(3, 16, [4, 8, 12]), (7, 4, [1, 2, 3])]
)
def test_snapshots_are_evenly_spaced_without_last_step(tmp_path, count, max_steps, expected):
    saved_folders, recorder = [], StepRecorder()
    snapshots = Snapshots(count, tmp_path, saved_folders.append, recorder)
    snapshots.on_train_begin(None, SimpleNamespace(max_steps=max_steps), None)
    for step in range(1, max_steps + 1):
        snapshots.on_step_end(None, SimpleNamespace(global_step=step), None)
    assert saved_folders == [str(tmp_path / f"step{step}") for step in expected]


@pytest.fixture(scope="module")
def trained(toy_model, tmp_path_factory):
    """The folder of a run of RAPID with H = 2, in which half of all completions are rewarded."""
    folder = tmp_path_factory.mktemp("run")
    exercises = draw_exercises(BENCHMARKS["math"], 0, {"train": 10})["train"]
    write_jsonl(folder / "train.jsonl", [exercise.problem for exercise in exercises])
    spec = make_train_spec(f"{RAPID[0]},snapshots=1").model_copy(
        update={"snapshots": 1, "problems": 8}
    )
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("rapid.grading.math.grader.MathGrader.grade", alternate_verdicts())
        slow_clock = partial(PhaseClock, read_waited=itertools.count(step=1000).__next__)
        patches.setattr("rapid.training.trl.sampling_trainer.PhaseClock", slow_clock)
        patches.setattr("rapid.training.usage.MAX_LOST_SHARE", -1e9)
        patches.setenv("RAPID_ATTEMPT", "2")
        train(spec, toy_model, folder / "train.jsonl", folder / "run")
    return folder


def test_summary_has_cpu_and_waiting_time(trained):
    summary = RunSummary.model_validate_json((trained / "run/summary.json").read_text())
    assert summary.cpu > 0
    assert summary.waited < 0  # without the thousands of seconds of waiting during grading
    assert summary.stolen >= 0
    assert summary.disturbed  # the fixture lowers the threshold
    assert summary.attempt == 2


def alternate_verdicts():
    """Return a `grade` that rewards every other completion."""
    calls = []

    def grade(self, problem, completion):
        calls.append(completion)
        return Verdict(reward=float(len(calls) % 2), reason="correct")

    return grade


def test_run_uses_first_problems_only(trained):
    summary = json.loads((trained / "run/summary.json").read_text())
    assert summary["completions"] == 8 * 2


def test_snapshot_is_saved_and_in_manifest(trained):
    outputs = json.loads((trained / "run/manifest.json").read_text())["outputs"]
    snapshot_files = [path for path in outputs if "/snapshots/step2/" in path]
    assert any(path.endswith("model.safetensors") for path in snapshot_files)
    assert not any("step4" in path for path in outputs)


def test_token_weights_are_of_last_step(trained):
    token_weights = TokenWeights.model_validate_json(
        (trained / "run/token_weights.json").read_text()
    )
    steps = list(read_jsonl(trained / "run/steps.jsonl", StepRecord))
    assert (token_weights.H, token_weights.benchmark) == (2, "math")
    assert token_weights.step == steps[-1].step
    assert token_weights.id in (trained / "train.jsonl").read_text()
    assert any(token_weights.log_weights)


@pytest.mark.parametrize(("loss_mask", "chosen_row"), [([0, 1], 1), ([0, 0], None), ([1, 1], 0)])
def test_token_weights_are_of_completion_in_the_loss(trained, loss_mask, chosen_row):
    """Completions masked for their length, and micro-batches without weight, are not chosen."""
    micro_batch = {
        "behavior_logp": torch.zeros(2, 3),
        "completion_mask": torch.tensor(loss_mask)[:, None].expand(2, 3),
        "prompt_ids": torch.tensor([[1], [1]]),
        "completion_ids": torch.full((2, 3), 2),
        "rewards": torch.tensor([1.0, 0.0]),
    }
    logp = torch.tensor([[0.5] * 3, [0.25] * 3])
    tokenizer = SimpleNamespace(decode=lambda ids, **_: "token")
    trainer = SimpleNamespace(last_pass=(4, micro_batch, logp), processing_class=tokenizer)
    spec = SimpleNamespace(chat=False, H=2, run=SimpleNamespace(benchmark="math"))
    token_weights = select_token_weights(spec, trainer, BENCHMARKS["math"], trained / "train.jsonl")
    assert (token_weights and token_weights.log_weights) == (
        None if chosen_row is None else logp[chosen_row].tolist()
    )


def test_curve_has_a_point_per_snapshot(trained, toy_model):
    spec = make_evaluate_spec().model_copy(update={"snapshots": 1})
    folder = trained / "evaluation"
    evaluate(spec, trained / "run/model", trained / "train.jsonl", folder)
    (point,) = read_jsonl(folder / CURVE, CurvePoint)
    steps = {
        step.step: step.seconds for step in read_jsonl(trained / "run/steps.jsonl", StepRecord)
    }
    assert (point.step, point.seconds) == (2, steps[2])
    assert f"{folder}/{CURVE}" in json.loads((folder / "manifest.json").read_text())["outputs"]


def test_reporting_does_not_change_the_run(trained, toy_model, tmp_path, monkeypatch):
    """The reported metrics have TRL's names and RAPID's."""
    reported = {}

    class RandomDrawingReporter(TrainerCallback):
        def __init__(self, folder, problems):
            torch.rand(1)

        def on_log(self, args, state, control, logs, **_):
            torch.rand(1)
            reported.update(logs)

        on_train_begin = on_train_end = lambda *_, **__: torch.rand(1)

    monkeypatch.setenv("RAPID_REPORT_TO", "tensorboard")
    monkeypatch.setattr("rapid.stages.reporting.TensorBoardEvents", RandomDrawingReporter)
    monkeypatch.setattr("rapid.grading.math.grader.MathGrader.grade", alternate_verdicts())
    manifest = json.loads((trained / "run/manifest.json").read_text())
    spec = TrainSpec.model_validate(manifest["spec"])
    train(spec, toy_model, trained / "train.jsonl", tmp_path / "run")
    weights_file = "model/model.safetensors"
    assert (tmp_path / "run" / weights_file).read_bytes() == (
        trained / "run" / weights_file
    ).read_bytes()
    assert set(manifest["outputs"]) == {
        path.replace(str(tmp_path), str(trained))
        for path in json.loads((tmp_path / "run/manifest.json").read_text())["outputs"]
    }
    assert reported.keys() >= {"loss", "grad_norm", "entropy", "num_tokens", "step_time", "reward"}
    assert reported.keys() >= {"rewards/accuracy/mean", "completions/mean_length"}
    assert reported.keys() >= {"clip_ratio/high_mean", "rapid/accuracy", "rapid/staleness"}
    assert "rapid/clip_fraction" in reported
