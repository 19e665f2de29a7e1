"""When a run of the pipeline is saved, how a signal ends it, and that it is resumed exactly."""

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
from tests.training.conformance.test_resume import STEPS, build
from tests.training.loops import weights


class SignalSender(TrainerCallback):
    """Sends the process a signal at an event after so many steps."""

    def __init__(self, event: str, step: int, number: int = signal.SIGTERM):
        self.event, self.step, self.number = event, step, number

    def __getattribute__(self, name):
        if not name.startswith("on_") or name != self.event:
            return super().__getattribute__(name)

        def send(args, state, control, **_):
            if state.global_step == self.step:
                signal.raise_signal(self.number)

        return send


def resumable(model, folder, sender=None, seconds=math.inf, main=True, steps=STEPS):
    """Return a run, its trainer and its recorder."""
    settings = {"H": 2, "max_steps": steps, "save_strategy": "no", "save_total_limit": 2}
    trainer = build(model, folder, arguments={"callbacks": [sender] if sender else []}, **settings)
    recorder = StepRecorder()
    recorder.clock = trainer.clock
    trainer.add_callback(recorder)
    return ResumableRun(trainer, recorder, seconds, main), trainer, recorder


@pytest.fixture(scope="module")
def whole(toy_model, tmp_path_factory) -> torch.Tensor:
    """The weights that an undisturbed run ends with."""
    trainer = build(toy_model, tmp_path_factory.mktemp("whole"), H=2, save_strategy="no")
    trainer.train()
    return weights(trainer)


@pytest.mark.parametrize(
    ("event", "at", "number", "saved"),
    [
        ("on_step_begin", 2, signal.SIGTERM, 4),
        ("on_optimizer_step", 3, signal.SIGINT, 4),
    ],
)
def test_a_run_that_a_signal_ended_is_resumed_exactly(
    toy_model, tmp_path, whole, capsys, event, at, number, saved
):
    name, handlers = signal.Signals(number).name, [*map(signal.getsignal, (15, 2))]
    run, trainer, recorder = resumable(toy_model, tmp_path, SignalSender(event, at, number))
    assert run.checkpoint is None
    save = trainer.save_model
    trainer.save_model = lambda *a, **k: (
        signal.raise_signal(number),
        save(*a, **k),
    )  # a second one
    with pytest.raises(SystemExit) as end:
        run.train()
    assert end.value.code == 128 + number
    assert (
        f"{name}: ended after step {saved} of {STEPS}. To resume, run the same"
        in capsys.readouterr().err
    )
    assert [*map(signal.getsignal, (15, 2))] == handlers
    checkpoint = tmp_path / f"checkpoint-{saved}"
    assert [*tmp_path.glob("checkpoint-*")] == [checkpoint]
    progress, lost = read_progress_file(tmp_path / "progress.jsonl"), recorder.steps[-1].seconds
    assert [(row.step, row.of) for row in progress] == [(n, STEPS) for n in range(1, saved + 1)]

    run, trainer, resumed = resumable(toy_model, tmp_path)
    assert run.checkpoint == checkpoint
    assert f"{checkpoint}: resuming from here\n" in capsys.readouterr().err
    run.train()
    assert run.attempt == Attempt(interrupted=1, lost=0.0)
    assert torch.equal(weights(trainer), whole)
    assert resumed.steps[:saved] == recorder.steps
    assert [step.step for step in resumed.steps] == [*range(1, STEPS + 1)]
    assert resumed.steps[saved].seconds >= lost
    assert read_progress_file(tmp_path / "progress.jsonl") == [
        Progress(**step.model_dump(), of=STEPS) for step in resumed.steps
    ]


def test_a_run_without_a_whole_checkpoint_begins_anew(toy_model, tmp_path):
    run, _, recorder = resumable(toy_model, tmp_path, SignalSender("on_step_begin", 1))
    with pytest.raises(SystemExit):
        run.train()
    (tmp_path / "checkpoint-2/optimizer.pt").unlink()
    (tmp_path / "checkpoint-3").mkdir()
    run, trainer, _ = resumable(toy_model, tmp_path, SignalSender("on_optimizer_step", STEPS - 2))
    assert not [*tmp_path.glob("checkpoint-*")]  # those are no checkpoints, and deleted
    run.train()  # the signal comes in its last inference batch: it ends by itself
    assert trainer.state.global_step == STEPS
    assert run.attempt == Attempt(interrupted=1, lost=recorder.steps[-1].seconds)
    assert not [*tmp_path.glob("checkpoint-*")]


def test_the_main_process_saves_when_the_time_has_come(toy_model, tmp_path):
    since_the_machine_began = time.monotonic()
    for seconds, saved in ((0, [2, 4]), (since_the_machine_began, [])):
        folder = tmp_path / str(seconds)
        resumable(toy_model, folder, None, seconds, steps=6)[0].train()
        assert sorted(int(path.name[11:]) for path in folder.glob("checkpoint-*")) == saved
    resumable(toy_model, tmp_path / "other", None, 0, main=False, steps=4)[0].train()
    assert not [*(tmp_path / "other").glob("*")]


class OneOfTwo:
    """A trainer in one of two processes: the other says whether it is time, and its signal."""

    def __init__(self, folder, flags_of_other=(0, 0)):
        self.args = SimpleNamespace(output_dir=str(folder), world_size=2, device="cpu")
        self.state = SimpleNamespace(global_step=3, max_steps=8)
        self.control = SimpleNamespace(should_save=False, should_training_stop=False)
        other = torch.tensor([[*flags_of_other]])
        self.accelerator = SimpleNamespace(gather=lambda flags: torch.cat([flags, other]))

    def add_callback(self, callback):
        self.callback = callback

    def has_pending_steps(self):
        return False

    def train(self, checkpoint):
        given = self.args, self.state, self.control
        signal.raise_signal(signal.SIGTERM)
        self.callback.on_step_end(*given)


@pytest.mark.parametrize(
    ("flags_of_other", "saves", "stops"),
    [((0, 0), False, False), ((1, 0), True, False), ((0, signal.SIGINT), True, True)],
)
def test_processes_save_and_stop_together(tmp_path, flags_of_other, saves, stops):
    trainer = OneOfTwo(tmp_path, flags_of_other)
    run = ResumableRun(trainer, StepRecorder(), math.inf, True)
    run.on_step_end(trainer.args, trainer.state, trainer.control)
    assert vars(trainer.control) == {"should_save": saves, "should_training_stop": stops}


def test_a_signal_that_comes_while_processes_agree_is_for_the_next_step(tmp_path):
    trainer = OneOfTwo(tmp_path)
    run = ResumableRun(trainer, StepRecorder(), math.inf, True)
    given = trainer.args, trainer.state, trainer.control
    gather = trainer.accelerator.gather
    trainer.accelerator.gather = lambda own: (
        run._handle_signal(signal.SIGTERM, None),
        gather(own),
    )[1]
    run.on_step_end(*given)
    assert not trainer.control.should_training_stop  # nor does the other, which knows nothing
    trainer.accelerator.gather = gather
    run.on_step_end(*given)
    assert trainer.control.should_training_stop


def test_a_signal_that_is_repeated_after_a_while_ends_the_process_at_once(tmp_path, monkeypatch):
    run = ResumableRun(OneOfTwo(tmp_path), StepRecorder(), math.inf, True)
    for _ in range(2):  # as processes often get it
        run._handle_signal(signal.SIGTERM, None)
    monkeypatch.setattr("rapid.training.resume.REPEATED_AFTER", 0.0)
    with pytest.raises(SystemExit) as end:
        run._handle_signal(signal.SIGINT, None)
    assert end.value.code == 128 + signal.SIGINT


def test_the_lost_seconds_are_those_of_the_progress_file(tmp_path):
    """Also where the files are copied, and their times are those of the copies."""
    file = tmp_path / "attempt.json"
    assert Attempt.from_previous(tmp_path, 0.0) == Attempt(interrupted=0, lost=0.0)
    write_json(file, Attempt(interrupted=1, lost=2.0))
    assert Attempt.from_previous(tmp_path, 0.0) == Attempt(
        interrupted=2, lost=2.0
    )  # before its first step
    steps = [Progress(step=n, of=9, seconds=10.0 * n, loss=0, gradient_norm=0) for n in (1, 2, 3)]
    write_jsonl(tmp_path / "progress.jsonl", steps)  # and the checkpoint is after 20 seconds
    assert Attempt.from_previous(tmp_path, 20.0) == Attempt(interrupted=2, lost=12.0)
    assert Attempt.from_previous(tmp_path, 30.5) == Attempt(interrupted=2, lost=2.0)
    file.write_text("[]")
    assert Attempt.from_previous(tmp_path, 20.0) == Attempt()
