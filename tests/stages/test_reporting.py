"""Live reports of a run: they cost no counted time and no random numbers, and never stop it."""

import json
import random
from types import SimpleNamespace

import pytest
import torch
from transformers import TrainerCallback

from rapid.artifacts.files import write_jsonl
from rapid.artifacts.manifests import write_manifest
from rapid.artifacts.runs import Progress, StepRecord, read_progress
from rapid.benchmarks.problem_source import ProblemSource
from rapid.config.params import load
from rapid.config.specs import Run, TrainSpec, build_train_spec
from rapid.stages import reporting
from rapid.stages.reporting import (
    LiveMeans,
    ReportingCallback,
    TensorBoardEvents,
    build_report_callbacks,
)
from rapid.training.recorder import StepRecorder

PROBLEMS = ProblemSource("mbpp_plus", "made", "data_seed 0")
LOGS = {"loss": 0.5, "grad_norm": 1.0, "rapid/accuracy": 0.25}


@pytest.fixture
def clock(monkeypatch):
    """A clock that only the tests advance."""
    state = SimpleNamespace(now=100.0)
    time = SimpleNamespace(perf_counter=lambda: state.now)
    monkeypatch.setattr("rapid.training.recorder.time", time)
    return state


def log_step(callbacks, step: int, last_step: int = 3) -> None:
    """Log a step with these callbacks."""
    state = SimpleNamespace(global_step=step, max_steps=last_step, is_world_process_zero=True)
    for callback in callbacks:
        callback.on_log(None, state, SimpleNamespace(should_save=False), logs=dict(LOGS))


def make_row(step: int, **fields) -> dict:
    return {"step": step, "seconds": float(step), "loss": 0.0, "gradient_norm": 0.0, **fields}


def test_reporters_use_no_counted_time_and_no_random_numbers_of_the_run(clock):
    class Greedy(TrainerCallback):
        def on_log(self, *arguments, **options):
            clock.now += 40
            return random.random(), torch.rand(1)

        on_train_begin = on_train_end = on_log

    recorder = StepRecorder()
    callbacks = [ReportingCallback([Greedy()], recorder), recorder]
    states = random.getstate(), torch.get_rng_state()
    for callback in callbacks:
        callback.on_train_begin(None, None, None)
    for step in (1, 2):
        clock.now += 1
        log_step(callbacks, step)
    for callback in callbacks:
        callback.on_train_end(None, None, None)
    assert [step.seconds for step in recorder.steps] == [1, 2]
    assert recorder.seconds == 2
    assert random.getstate() == states[0] and torch.equal(torch.get_rng_state(), states[1])


def test_progress_file_is_written_without_counted_time(clock, tmp_path, monkeypatch):
    def write_slowly(self, write=Progress.model_dump_json):
        clock.now += 40
        return write(self)

    monkeypatch.setattr(Progress, "model_dump_json", write_slowly)
    file = tmp_path / "checkpoints/0123/progress.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("from an earlier attempt")
    recorder = StepRecorder()
    recorder.steps = [StepRecord(**make_row(1))]  # from before the resume
    recorder.on_train_begin(None, None, None)
    recorder.write_progress_to(file, 3)
    for step in (2, 3):
        clock.now += 1
        log_step([recorder], step)
    recorded = [
        (step.step, step.seconds, step.total_steps, step.reward) for step in read_progress(tmp_path)
    ]
    assert recorded == [(1, 1, 3, None), (2, 1, 3, 0.25), (3, 2, 3, 0.25)]
    assert recorder.seconds == 2
    recorder.write_progress_to(tmp_path / "nowhere/progress.jsonl", 3)
    log_step([recorder], 3)  # a file that cannot be written does not stop the run


def make_seed_spec(values: dict, seed: int, **changes) -> TrainSpec:
    params = load(values | {"rapid": values["rapid"] | changes})
    run = Run(benchmark="mbpp_plus", model="tiny-qwen2", algorithm="rapid-H4", seed=seed)
    return build_train_spec(params, run)


def test_live_values_are_means_over_the_seeds(values, tmp_path, monkeypatch):
    """Means cover seeds in progress, and finished ones with the same parameters."""
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "runs/rapid-H4"
    live = LiveMeans(runs, make_seed_spec(values, 1), "MBPP+ (made)")
    log_step([live], 1)  # there are no files yet
    in_progress = runs / "seed1/checkpoints/0123/progress.jsonl"
    write_jsonl(
        in_progress, [Progress(**make_row(n, total_steps=9, reward=0.1 * n)) for n in (1, 2)]
    )
    finished = runs / "seed2/steps.jsonl"
    write_jsonl(finished, [StepRecord(**make_row(9, reward=0.6, staleness=0.5))])
    without_manifest = runs / "seed3/steps.jsonl"
    write_jsonl(without_manifest, [StepRecord(**make_row(9, reward=1.0))])
    write_manifest(runs / "seed2", "train", make_seed_spec(values, 2), {}, [finished])
    other_eta = runs / "seed4/steps.jsonl"
    write_jsonl(other_eta, [StepRecord(**make_row(9, reward=1.0))])
    write_manifest(runs / "seed4", "train", make_seed_spec(values, 4, eta=3.0), {}, [other_eta])
    log_step([live], 2)
    metrics = json.loads((tmp_path / "reports/experiment/metrics.json").read_text())
    assert metrics.pop("problems") == "MBPP+ (made)"
    assert metrics == pytest.approx({"step": 5.5, "runtime": 5.5, "reward": 0.4, "staleness": 0.5})
    finished.write_text("")  # a damaged file does not stop the run
    log_step([live], 3)


def test_failing_reporter_is_left_out(capsys):
    calls = []

    class Failing(TrainerCallback):
        def on_log(self, *arguments, **options):
            calls.append(arguments)
            raise OSError("no service")

    callbacks = [Failing(), working := Failing()]
    working.on_log = lambda *arguments, **options: calls.append("working")
    reports = ReportingCallback(callbacks, StepRecorder())
    for step in (1, 2):
        log_step([reports], step)
    assert len(calls) == 3 and calls[1:] == ["working", "working"]
    assert (
        "Failing failed, and the run goes on without it: OSError('no service')"
        in capsys.readouterr().out
    )


def test_environment_decides_where_a_run_reports(values, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, recorder = tmp_path / "runs/rapid-H4/seed1", StepRecorder()
    spec = make_seed_spec(values, 1)
    for variable in ("RAPID_REPORT_TO", "RAPID_LIVE"):
        monkeypatch.delenv(variable, raising=False)
    assert build_report_callbacks(run, spec, PROBLEMS, recorder, is_main=True) == []
    monkeypatch.setenv("RAPID_LIVE", str(run.parent))
    assert len(build_report_callbacks(run, spec, PROBLEMS, recorder, is_main=True)) == 1
    assert build_report_callbacks(run, spec, PROBLEMS, recorder, is_main=False) == []
    assert (
        build_report_callbacks(tmp_path / "runs/pg/seed1", spec, PROBLEMS, recorder, is_main=True)
        == []
    )


def test_dashboards_name_the_source_of_the_problems(values, tmp_path, monkeypatch):
    events = []
    monkeypatch.setattr(reporting, "TensorBoardEvents", lambda *given: events.append(given))
    monkeypatch.setenv("RAPID_REPORT_TO", "tensorboard")
    spec, run = make_seed_spec(values, 1), tmp_path / "seed1"
    build_report_callbacks(run, spec, PROBLEMS, StepRecorder(), is_main=True)
    ((_, problems),) = events
    assert problems == "Made problems in the format of MBPP+, not the published ones."


def test_events_of_an_earlier_attempt_are_replaced(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    args = SimpleNamespace(to_json_string=lambda: "{}")
    for first, last in [(1, 4), (3, 5)]:  # killed, and resumed from step 2
        events = TensorBoardEvents(tmp_path / "events", "Made problems.")
        flags = {"is_world_process_zero": True, "is_hyper_param_search": False}
        begin = SimpleNamespace(global_step=first - 1, **flags)
        events.on_train_begin(args, begin, None)
        for step in range(first, last + 1):
            log_step([events], step, last)
        events.on_train_end(args, begin, None)
    events_read = EventAccumulator(str(tmp_path / "events")).Reload()
    assert [event.step for event in events_read.Scalars("train/rapid/accuracy")] == [1, 2, 3, 4, 5]
    assert events_read.Scalars("train/loss")[0].value == 0.5
    (text,) = {
        event.tensor_proto.string_val[0] for event in events_read.Tensors("problems/text_summary")
    }
    assert text == b"Made problems."
