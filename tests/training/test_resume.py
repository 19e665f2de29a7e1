"""When a run saves where it is, how it ends when it is told to, and that it goes on there."""

import math
import signal
import time
from types import SimpleNamespace

import pytest
import torch
from transformers import TrainerCallback

from rapid.artifacts.files import write_json, write_jsonl
from rapid.artifacts.runs import Progress, shown
from rapid.training.recorder import StepRecorder
from rapid.training.resume import Attempt, ResumableRun
from tests.training.conformance.test_resume import STEPS, build
from tests.training.loops import weights


class Told(TrainerCallback):
    """Tells the process to end at an event after so many steps."""

    def __init__(self, event: str, step: int, number: int = signal.SIGTERM):
        self.event, self.step, self.number = event, step, number

    def __getattribute__(self, name):
        if not name.startswith("on_") or name != self.event:
            return super().__getattribute__(name)

        def tell(args, state, control, **_):
            if state.global_step == self.step:
                signal.raise_signal(self.number)

        return tell


def resumable(model, folder, told=None, seconds=math.inf, main=True, steps=STEPS):
    """Return a run, its trainer and its recorder."""
    settings = {"H": 4, "max_steps": steps, "save_strategy": "no", "save_total_limit": 2}
    trainer = build(model, folder, arguments={"callbacks": [told] if told else []}, **settings)
    recorder = StepRecorder()
    recorder.clock = trainer.clock
    trainer.add_callback(recorder)
    return ResumableRun(trainer, recorder, seconds, main), trainer, recorder


@pytest.fixture(scope="module")
def whole(toy_model, tmp_path_factory) -> torch.Tensor:
    """The weights that an undisturbed run ends with."""
    trainer = build(toy_model, tmp_path_factory.mktemp("whole"), H=4, save_strategy="no")
    trainer.train()
    return weights(trainer)


@pytest.mark.parametrize(
    ("event", "at", "number", "saved"),
    [
        ("on_step_begin", 1, signal.SIGTERM, 1),
        ("on_optimizer_step", 4, signal.SIGINT, 5),  # weights change: only after the step
    ],
)
def test_a_run_that_is_told_to_end_goes_on_where_it_was(
    toy_model, tmp_path, whole, capsys, event, at, number, saved
):
    name, handlers = signal.Signals(number).name, [*map(signal.getsignal, (15, 2))]
    run, trainer, recorder = resumable(toy_model, tmp_path, Told(event, at, number))
    assert run.checkpoint is None
    save = trainer.save_model
    trainer.save_model = lambda *a, **k: (signal.raise_signal(number), save(*a, **k))  # told again
    with pytest.raises(SystemExit) as end:
        run.train()
    assert end.value.code == 128 + number
    assert f"{name}: ended after step {saved} of {STEPS}. The same" in capsys.readouterr().err
    assert [*map(signal.getsignal, (15, 2))] == handlers
    checkpoint = tmp_path / f"checkpoint-{saved}"
    assert [*tmp_path.glob("checkpoint-*")] == [checkpoint]
    progress, lost = shown(tmp_path / "progress.jsonl"), recorder.steps[-1].seconds
    assert [(row.step, row.of) for row in progress] == [(n, STEPS) for n in range(1, saved + 1)]

    again, _, _ = resumable(toy_model, tmp_path, Told("on_step_begin", saved))
    written = checkpoint.stat().st_ino
    with pytest.raises(SystemExit):
        again.train()
    assert checkpoint.stat().st_ino == written  # nothing is new since it was saved

    run, trainer, resumed = resumable(toy_model, tmp_path)
    assert run.checkpoint == checkpoint
    assert f"{checkpoint}: going on from here\n" in capsys.readouterr().err
    run.train()
    assert run.attempt == Attempt(interrupted=2, lost=0.0)
    assert torch.equal(weights(trainer), whole)
    assert resumed.steps[:saved] == recorder.steps
    assert [step.step for step in resumed.steps] == [*range(1, STEPS + 1)]
    assert resumed.steps[saved].seconds >= lost
    assert shown(tmp_path / "progress.jsonl") == [
        Progress(**step.model_dump(), of=STEPS) for step in resumed.steps
    ]


def test_a_run_without_a_checkpoint_begins_anew_and_what_it_did_is_lost(toy_model, tmp_path):
    run, _, recorder = resumable(toy_model, tmp_path, Told("on_step_begin", 2))
    with pytest.raises(SystemExit):
        run.train()
    (tmp_path / "checkpoint-2/optimizer.pt").unlink()
    (tmp_path / "checkpoint-3").mkdir()
    run, trainer, _ = resumable(toy_model, tmp_path, Told("on_optimizer_step", STEPS - 1))
    assert not [*tmp_path.glob("checkpoint-*")]  # those are no checkpoints, and deleted
    run.train()  # told to end in its last step, it has ended
    assert trainer.state.global_step == STEPS
    assert run.attempt == Attempt(interrupted=1, lost=recorder.steps[-1].seconds)
    assert not [*tmp_path.glob("checkpoint-*")]


def test_a_run_is_saved_when_it_is_time_by_the_process_that_writes(toy_model, tmp_path):
    since_the_machine_began = time.monotonic()
    for seconds, main, saved in ((0, True, [2, 3]), (since_the_machine_began, True, [])):
        folder = tmp_path / str(seconds)
        resumable(toy_model, folder, None, seconds, main, 4)[0].train()
        assert sorted(int(one.name[11:]) for one in folder.glob("checkpoint-*")) == saved
    resumable(toy_model, tmp_path / "other", None, 0, False, 4)[0].train()
    assert not [*(tmp_path / "other").glob("*")]


class OneOfTwo:
    """A trainer in one of two processes: the other says whether it is time, and its signal."""

    def __init__(self, folder, others=(0, 0)):
        self.args = SimpleNamespace(output_dir=str(folder), world_size=2, device="cpu")
        self.state = SimpleNamespace(global_step=3, max_steps=8)
        self.control = SimpleNamespace(should_save=False, should_training_stop=False)
        others = torch.tensor([[*others]])
        self.accelerator = SimpleNamespace(gather=lambda own: torch.cat([own, others]))

    def add_callback(self, callback):
        self.callback = callback

    def train(self, checkpoint):
        given = self.args, self.state, self.control
        self.callback.on_step_begin(*given)
        signal.raise_signal(signal.SIGTERM)
        self.callback.on_step_end(*given)


@pytest.mark.parametrize(
    ("others", "saves", "stops"),
    [((0, 0), False, False), ((1, 0), True, False), ((0, signal.SIGINT), True, True)],
)
def test_processes_save_and_stop_together(tmp_path, others, saves, stops):
    trainer = OneOfTwo(tmp_path, others)
    run = ResumableRun(trainer, StepRecorder(), math.inf, True)
    run.on_step_end(trainer.args, trainer.state, trainer.control)
    assert vars(trainer.control) == {"should_save": saves, "should_training_stop": stops}


def test_one_of_several_processes_ends_after_the_step(tmp_path, capsys):
    trainer = OneOfTwo(tmp_path)
    with pytest.raises(SystemExit):
        ResumableRun(trainer, StepRecorder(), math.inf, False).train()
    assert vars(trainer.control) == {"should_save": True, "should_training_stop": True}
    assert not capsys.readouterr().err  # the other says it


def test_a_signal_that_comes_while_processes_agree_is_for_the_next_step(tmp_path):
    trainer = OneOfTwo(tmp_path)
    run = ResumableRun(trainer, StepRecorder(), math.inf, True)
    given = trainer.args, trainer.state, trainer.control
    gather = trainer.accelerator.gather
    trainer.accelerator.gather = lambda own: (run._told(signal.SIGTERM, None), gather(own))[1]
    run.on_step_end(*given)
    assert not trainer.control.should_training_stop  # nor does the other, which knows nothing
    trainer.accelerator.gather = gather
    run.on_step_end(*given)
    assert trainer.control.should_training_stop


def test_what_was_lost_is_what_the_file_tells(tmp_path):
    """Also where the files are copied, and their times are those of the copies."""
    file = tmp_path / "attempt.json"
    assert Attempt.after(tmp_path, 0.0) == Attempt(interrupted=0, lost=0.0)
    write_json(file, Attempt(interrupted=1, lost=2.0))
    assert Attempt.after(tmp_path, 0.0) == Attempt(interrupted=2, lost=2.0)  # before its first step
    steps = [Progress(step=n, of=9, seconds=10.0 * n, loss=0, gradient_norm=0) for n in (1, 2, 3)]
    write_jsonl(tmp_path / "progress.jsonl", steps)  # and the checkpoint is after 20 seconds
    assert Attempt.after(tmp_path, 20.0) == Attempt(interrupted=2, lost=12.0)
    assert Attempt.after(tmp_path, 30.5) == Attempt(interrupted=2, lost=2.0)
    file.write_text("[]")
    assert Attempt.after(tmp_path, 20.0) == Attempt()
