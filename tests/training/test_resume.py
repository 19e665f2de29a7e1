"""A run of the pipeline is saved at intervals, ends on a signal, and is resumed exactly."""

import math
import signal
import time
from types import SimpleNamespace

import pytest
import torch
from transformers import TrainerCallback

from rapid.artifacts.files import write_json, write_jsonl
from rapid.artifacts.runs import Progress, read_progress_file
from rapid.training.recorder import StepRecorder
from rapid.training.resume import Attempt, ResumableRun
from tests.training.conformance.test_resume import STEPS, build_trainer
from tests.training.loops import get_weights


class SignalSender(TrainerCallback):
    """Sends the process a signal at an event after `step` steps."""

    def __init__(self, event: str, step: int, number: int = signal.SIGTERM):
        self.event, self.step, self.number = event, step, number

    def __getattribute__(self, name):
        if not name.startswith("on_") or name != self.event:
            return super().__getattribute__(name)

        def send(args, state, control, **_):
            if state.global_step == self.step:
                signal.raise_signal(self.number)

        return send


def build_resumable_run(model, folder, sender=None, seconds=math.inf, is_main=True, steps=STEPS):
    """Return a run, its trainer and its recorder."""
    settings = {"H": 2, "max_steps": steps, "save_strategy": "no", "save_total_limit": 2}
    trainer = build_trainer(
        model, folder, arguments={"callbacks": [sender] if sender else []}, **settings
    )
    recorder = StepRecorder()
    recorder.clock = trainer.clock
    trainer.add_callback(recorder)
    return ResumableRun(trainer, recorder, seconds, is_main), trainer, recorder


@pytest.fixture(scope="module")
def uninterrupted_weights(toy_model, tmp_path_factory) -> torch.Tensor:
    """The final weights of an uninterrupted run."""
    trainer = build_trainer(toy_model, tmp_path_factory.mktemp("whole"), H=2, save_strategy="no")
    trainer.train()
    return get_weights(trainer)


@pytest.mark.parametrize(
    ("event", "signal_step", "number", "saved_step"),
    [
        ("on_step_begin", 2, signal.SIGTERM, 4),
        ("on_optimizer_step", 3, signal.SIGINT, 4),
    ],
)
def test_run_ended_by_signal_is_resumed_exactly(
    toy_model, tmp_path, uninterrupted_weights, capsys, event, signal_step, number, saved_step
):
    name, handlers = signal.Signals(number).name, [*map(signal.getsignal, (15, 2))]
    run, trainer, recorder = build_resumable_run(
        toy_model, tmp_path, SignalSender(event, signal_step, number)
    )
    assert run.checkpoint is None
    save = trainer.save_model
    # A second signal comes while the model is saved.
    trainer.save_model = lambda *args, **kwargs: (
        signal.raise_signal(number),
        save(*args, **kwargs),
    )
    with pytest.raises(SystemExit) as error:
        run.train()
    assert error.value.code == 128 + number
    assert (
        f"{name}: ended after step {saved_step} of {STEPS}. To resume, run the same"
        in capsys.readouterr().err
    )
    assert [*map(signal.getsignal, (15, 2))] == handlers
    checkpoint = tmp_path / f"checkpoint-{saved_step}"
    assert [*tmp_path.glob("checkpoint-*")] == [checkpoint]
    progress, lost = read_progress_file(tmp_path / "progress.jsonl"), recorder.steps[-1].seconds
    assert [(row.step, row.total_steps) for row in progress] == [
        (n, STEPS) for n in range(1, saved_step + 1)
    ]

    run, trainer, resumed_recorder = build_resumable_run(toy_model, tmp_path)
    assert run.checkpoint == checkpoint
    assert f"{checkpoint}: resuming from here\n" in capsys.readouterr().err
    run.train()
    assert run.attempt == Attempt(interrupted=1, lost=0.0)
    assert torch.equal(get_weights(trainer), uninterrupted_weights)
    assert resumed_recorder.steps[:saved_step] == recorder.steps
    assert [step.step for step in resumed_recorder.steps] == [*range(1, STEPS + 1)]
    assert resumed_recorder.steps[saved_step].seconds >= lost
    assert read_progress_file(tmp_path / "progress.jsonl") == [
        Progress(**step.model_dump(), total_steps=STEPS) for step in resumed_recorder.steps
    ]


def test_run_without_undamaged_checkpoint_starts_again(toy_model, tmp_path):
    run, _, recorder = build_resumable_run(toy_model, tmp_path, SignalSender("on_step_begin", 1))
    with pytest.raises(SystemExit):
        run.train()
    (tmp_path / "checkpoint-2/optimizer.pt").unlink()
    (tmp_path / "checkpoint-3").mkdir()
    run, trainer, _ = build_resumable_run(
        toy_model, tmp_path, SignalSender("on_optimizer_step", STEPS - 2)
    )
    assert not [*tmp_path.glob("checkpoint-*")]  # both are damaged, and deleted
    run.train()  # the signal comes in the last inference batch, so the run finishes
    assert trainer.state.global_step == STEPS
    assert run.attempt == Attempt(interrupted=1, lost=recorder.steps[-1].seconds)
    assert not [*tmp_path.glob("checkpoint-*")]


def test_main_process_saves_at_intervals(toy_model, tmp_path):
    seconds_since_boot = time.monotonic()
    for seconds, saved_steps in ((0, [2, 4]), (seconds_since_boot, [])):
        folder = tmp_path / str(seconds)
        build_resumable_run(toy_model, folder, None, seconds, steps=6)[0].train()
        assert sorted(int(path.name[11:]) for path in folder.glob("checkpoint-*")) == saved_steps
    build_resumable_run(toy_model, tmp_path / "second-process", None, 0, is_main=False, steps=4)[
        0
    ].train()
    assert not [*(tmp_path / "second-process").glob("*")]


class OneOfTwoProcesses:
    """Trainer in one of two processes; the other's flags say if a save is due, and its signal."""

    def __init__(self, folder, flags_of_other=(0, 0)):
        self.args = SimpleNamespace(output_dir=str(folder), world_size=2, device="cpu")
        self.state = SimpleNamespace(global_step=3, max_steps=8)
        self.control = SimpleNamespace(should_save=False, should_training_stop=False)
        other_flags = torch.tensor([[*flags_of_other]])
        self.accelerator = SimpleNamespace(gather=lambda flags: torch.cat([flags, other_flags]))

    def add_callback(self, callback):
        self.callback = callback

    def has_pending_steps(self):
        return False

    def train(self, checkpoint):
        event_arguments = self.args, self.state, self.control
        signal.raise_signal(signal.SIGTERM)
        self.callback.on_step_end(*event_arguments)


@pytest.mark.parametrize(
    ("flags_of_other", "saves", "stops"),
    [((0, 0), False, False), ((1, 0), True, False), ((0, signal.SIGINT), True, True)],
)
def test_processes_save_and_stop_together(tmp_path, flags_of_other, saves, stops):
    trainer = OneOfTwoProcesses(tmp_path, flags_of_other)
    run = ResumableRun(trainer, StepRecorder(), math.inf, True)
    run.on_step_end(trainer.args, trainer.state, trainer.control)
    assert vars(trainer.control) == {"should_save": saves, "should_training_stop": stops}


def test_signal_during_agreement_counts_at_next_step(tmp_path):
    trainer = OneOfTwoProcesses(tmp_path)
    run = ResumableRun(trainer, StepRecorder(), math.inf, True)
    event_arguments = trainer.args, trainer.state, trainer.control
    gather = trainer.accelerator.gather
    trainer.accelerator.gather = lambda local_flags: (
        run._handle_signal(signal.SIGTERM, None),
        gather(local_flags),
    )[1]
    run.on_step_end(*event_arguments)
    # The other process, which got no signal, does not stop at this step either.
    assert not trainer.control.should_training_stop
    trainer.accelerator.gather = gather
    run.on_step_end(*event_arguments)
    assert trainer.control.should_training_stop


def test_repeated_signal_ends_process_at_once(tmp_path, monkeypatch):
    run = ResumableRun(OneOfTwoProcesses(tmp_path), StepRecorder(), math.inf, True)
    for _ in range(2):  # processes often get a signal twice at once
        run._handle_signal(signal.SIGTERM, None)
    monkeypatch.setattr("rapid.training.resume.REPEATED_AFTER", 0.0)
    with pytest.raises(SystemExit) as end:
        run._handle_signal(signal.SIGINT, None)
    assert end.value.code == 128 + signal.SIGINT


def test_lost_seconds_come_from_progress_file(tmp_path):
    """They do not depend on the files' times, which copying changes."""
    file = tmp_path / "attempt.json"
    assert Attempt.from_previous(tmp_path, 0.0) == Attempt(interrupted=0, lost=0.0)
    write_json(file, Attempt(interrupted=1, lost=2.0))
    # Interrupted before its first step.
    assert Attempt.from_previous(tmp_path, 0.0) == Attempt(interrupted=2, lost=2.0)
    steps = [
        Progress(step=step, total_steps=9, seconds=10.0 * step, loss=0, gradient_norm=0)
        for step in (1, 2, 3)
    ]
    write_jsonl(tmp_path / "progress.jsonl", steps)  # the checkpoint is at 20 seconds
    assert Attempt.from_previous(tmp_path, 20.0) == Attempt(interrupted=2, lost=12.0)
    assert Attempt.from_previous(tmp_path, 30.5) == Attempt(interrupted=2, lost=2.0)
    file.write_text("[]")
    assert Attempt.from_previous(tmp_path, 20.0) == Attempt()
