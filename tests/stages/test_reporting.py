"""Reports of a run while it runs take none of its time and change none of its random numbers."""

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
from rapid.config.specs import Run, TrainSpec, train_spec
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
    """A clock that stands still, but for a second before each step."""
    state = SimpleNamespace(now=100.0)
    time = SimpleNamespace(perf_counter=lambda: state.now)
    monkeypatch.setattr("rapid.training.recorder.time", time)
    return state


def log(callbacks, step: int, of: int = 3) -> None:
    state = SimpleNamespace(global_step=step, max_steps=of, is_world_process_zero=True)
    for callback in callbacks:
        callback.on_log(None, state, SimpleNamespace(should_save=False), logs=dict(LOGS))


def row(step: int, **fields) -> dict:
    return {"step": step, "seconds": float(step), "loss": 0.0, "gradient_norm": 0.0, **fields}


def test_what_reports_take_and_draw_is_not_the_runs(clock):
    class Greedy(TrainerCallback):
        def on_log(self, *given, **named):
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
        log(callbacks, step)
    for callback in callbacks:
        callback.on_train_end(None, None, None)
    assert [step.seconds for step in recorder.steps] == [1, 2]
    assert recorder.seconds == 2
    assert random.getstate() == states[0] and torch.equal(torch.get_rng_state(), states[1])


def test_a_run_can_be_followed_and_that_takes_none_of_its_time(clock, tmp_path, monkeypatch):
    def slow(self, write=Progress.model_dump_json):
        clock.now += 40
        return write(self)

    monkeypatch.setattr(Progress, "model_dump_json", slow)
    file = tmp_path / "checkpoints/0123/progress.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("of an earlier attempt")
    recorder = StepRecorder()
    recorder.steps = [StepRecord(**row(1))]  # before it was resumed
    recorder.on_train_begin(None, None, None)
    recorder.follow(file, 3)
    for step in (2, 3):
        clock.now += 1
        log([recorder], step)
    recorded = [(step.step, step.seconds, step.of, step.reward) for step in read_progress(tmp_path)]
    assert recorded == [(1, 1, 3, None), (2, 1, 3, 0.25), (3, 2, 3, 0.25)]
    assert recorder.seconds == 2
    recorder.follow(tmp_path / "nowhere/progress.jsonl", 3)
    log([recorder], 3)  # a disk that is full ends no run


def of_a_seed(values: dict, seed: int, **changes) -> TrainSpec:
    params = load(values | {"rapid": values["rapid"] | changes})
    run = Run(benchmark="mbpp_plus", model="tiny-qwen2", algorithm="rapid-H4", seed=seed)
    return train_spec(params, run)


def test_live_figures_are_means_over_the_seeds(values, tmp_path, monkeypatch):
    """The means cover seeds under way, and those that have ended with the same parameters."""
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "runs/rapid-H4"
    live = LiveMeans(runs, of_a_seed(values, 1), "MBPP+ (made)")
    log([live], 1)  # nothing is there yet
    under_way = runs / "seed1/checkpoints/0123/progress.jsonl"
    write_jsonl(under_way, [Progress(**row(n, of=9, reward=0.1 * n)) for n in (1, 2)])
    ended = runs / "seed2/steps.jsonl"
    write_jsonl(ended, [StepRecord(**row(9, reward=0.6, staleness=0.5))])
    write_jsonl(runs / "seed3/steps.jsonl", [StepRecord(**row(9, reward=1.0))])  # is no result
    write_manifest(runs / "seed2", "train", of_a_seed(values, 2), {}, [ended])
    before = runs / "seed4/steps.jsonl"
    write_jsonl(before, [StepRecord(**row(9, reward=1.0))])
    write_manifest(runs / "seed4", "train", of_a_seed(values, 4, eta=3.0), {}, [before])
    log([live], 2)
    metrics = json.loads((tmp_path / "reports/experiment/metrics.json").read_text())
    assert metrics.pop("problems") == "MBPP+ (made)"
    assert metrics == pytest.approx({"step": 5.5, "runtime": 5.5, "reward": 0.4, "staleness": 0.5})
    ended.write_text("")  # damaged: to be said by who makes something of it
    log([live], 3)


def test_a_reporter_that_fails_is_left_out(capsys):
    calls = []

    class Failing(TrainerCallback):
        def on_log(self, *given, **named):
            calls.append(given)
            raise OSError("no service")

    callbacks = [Failing(), working := Failing()]
    working.on_log = lambda *given, **named: calls.append("other")
    reports = ReportingCallback(callbacks, StepRecorder())
    for step in (1, 2):
        log([reports], step)
    assert len(calls) == 3 and calls[1:] == ["other", "other"]
    assert (
        "Failing failed, and the run goes on without it: OSError('no service')"
        in capsys.readouterr().out
    )


def test_a_run_reports_where_it_is_told_to(values, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, recorder = tmp_path / "runs/rapid-H4/seed1", StepRecorder()
    spec = of_a_seed(values, 1)
    for variable in ("RAPID_REPORT_TO", "RAPID_LIVE"):
        monkeypatch.delenv(variable, raising=False)
    assert build_report_callbacks(run, spec, PROBLEMS, recorder, main=True) == []
    monkeypatch.setenv("RAPID_LIVE", str(run.parent))
    assert len(build_report_callbacks(run, spec, PROBLEMS, recorder, main=True)) == 1
    assert build_report_callbacks(run, spec, PROBLEMS, recorder, main=False) == []
    assert (
        build_report_callbacks(tmp_path / "runs/pg/seed1", spec, PROBLEMS, recorder, main=True)
        == []
    )


def test_events_are_read_back_and_those_of_an_earlier_attempt_are_not(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    args = SimpleNamespace(to_json_string=lambda: "{}")
    for first, last in [(1, 4), (3, 5)]:  # killed, and gone on from step 2
        events = TensorBoardEvents(tmp_path / "events", "Made problems.")
        flags = {"is_world_process_zero": True, "is_hyper_param_search": False}
        begin = SimpleNamespace(global_step=first - 1, **flags)
        events.on_train_begin(args, begin, None)
        for step in range(first, last + 1):
            log([events], step, last)
        events.on_train_end(args, begin, None)
    events_read = EventAccumulator(str(tmp_path / "events")).Reload()
    assert [event.step for event in events_read.Scalars("train/rapid/accuracy")] == [1, 2, 3, 4, 5]
    assert events_read.Scalars("train/loss")[0].value == 0.5
    (text,) = {
        event.tensor_proto.string_val[0] for event in events_read.Tensors("problems/text_summary")
    }
    assert text == b"Made problems."
