"""Training loops that are measured side by side.

Each loop lives in a process of its own, forked from one that has imported everything, and pinned to
the same core. It trains until it has done the optimizer steps it was told to, sends what they took, and
waits. So two loops take turns (ABAB...), always warm, and neither's memory is the other's.

Sampling is seeded anew for every inference batch, so that both loops sample the same completions as
long as their policies are about the same.
"""

import gc
import multiprocessing
import os
import statistics
import time
import traceback
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from transformers import TrainerCallback

from performance.rewards import Counted
from performance.trainers import Setting

SEED = 1000
BUILD_SECONDS = 300.0  # a loop that is not ready by then never will be


@dataclass
class Sample:
    """What some optimizer steps took. Seconds are wall-clock.

    Args:
        cpu_seconds: of this process: far below `seconds` where others used the core, or it waited.
        completions: trained on.
        length: mean tokens of the completions.
        solved: share of them that were rewarded.
        alive: share of groups with a reward that is not 0; None where verdicts come in no order.
        optimizer: seconds of the optimizer's own step.
        phases: seconds by the trainer's clock, of RapidTrainer.
    """

    seconds: float
    cpu_seconds: float
    steps: int
    completions: int
    length: float
    solved: float
    alive: float | None
    optimizer: float
    phases: dict[str, float] = field(default_factory=dict)


class Gate(TrainerCallback):
    """Holds a training loop until it is told how many steps to take, and measures them."""

    def __init__(self, connection, trainer, setting: Setting, reward: Counted):
        self._connection, self._trainer = connection, trainer
        self._setting, self._reward = setting, reward
        self._left = self._steps = 0
        self._optimizer = 0.0

    def on_train_begin(self, args, state, control, **kwargs):
        self._connection.send("ready")
        self._wait()

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step % self._setting.H == 0:
            torch.manual_seed(SEED + state.global_step)

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        self._optimizer -= time.perf_counter()

    def on_optimizer_step(self, args, state, control, **kwargs):
        self._optimizer += time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        self._left -= 1
        if not self._left:
            self._connection.send(self._sample())
            self._wait()

    def _wait(self) -> None:
        """Do what is asked until it is to take steps.

        Raises:
            SystemExit: it is to end, or nobody is there to ask.
        """
        while True:
            try:
                order, *arguments = self._connection.recv()
            except EOFError:
                order = "stop"
            if order == "call":
                function, *arguments = arguments
                self._connection.send(function(self._trainer, *arguments))
            elif order == "set":
                vars(self._reward).update(arguments[0])
            elif order == "stop":
                raise SystemExit
            else:
                self._begin(*arguments)
                return

    def _begin(self, steps: int) -> None:
        self._left = self._steps = steps
        self._reward.clear()
        self._optimizer = 0.0
        self._before = self._phases()
        self._cpu, self._began = time.process_time(), _now()

    def _sample(self) -> Sample:
        seconds, cpu = _now() - self._began, time.process_time() - self._cpu
        reward, group = self._reward, self._setting.group
        groups = [reward.verdicts[i : i + group] for i in range(0, len(reward.verdicts), group)]
        in_order = not getattr(self._trainer.args, "grading_workers", 0)
        after = self._phases()
        return Sample(
            seconds=seconds,
            cpu_seconds=cpu,
            steps=self._steps,
            completions=self._steps * self._setting.n_step,
            length=statistics.fmean(reward.lengths),
            solved=statistics.fmean(reward.verdicts),
            alive=statistics.fmean(map(any, groups)) if in_order else None,
            optimizer=self._optimizer,
            phases={name: after[name] - self._before.get(name, 0.0) for name in after},
        )

    def _phases(self) -> dict[str, float]:
        clock = getattr(self._trainer, "clock", None)
        return dict(clock.seconds) if clock else {}


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


class Loop:
    """A training loop in a process of its own; use as a context manager.

    Args:
        build: makes the trainer from `setting` and `reward`; both run in that process.
        reward: makes the reward.
    """

    def __init__(self, setting: Setting, build: Callable, reward: Callable[[], Counted]):
        context = multiprocessing.get_context("fork")
        self._connection, theirs = context.Pipe()
        gc.collect()
        gc.freeze()  # what is shared after the fork stays shared
        ours = self._connection
        self._process = context.Process(target=_live, args=(theirs, ours, setting, build, reward))
        self._process.start()
        theirs.close()
        self._answer(BUILD_SECONDS)

    def run(self, steps: int) -> Sample:
        """Take optimizer steps."""
        self._connection.send(("run", steps))
        return self._answer()

    def call(self, function: Callable, *arguments) -> Any:
        """The result of `function(trainer, *arguments)`, in the loop's process."""
        self._connection.send(("call", function, *arguments))
        return self._answer()

    def set(self, **attributes) -> None:
        """Set attributes of the reward."""
        self._connection.send(("set", attributes))

    def _answer(self, timeout: float | None = None):
        if not self._connection.poll(timeout):
            raise RuntimeError(f"a training loop was not ready after {timeout:.0f} s")
        try:
            answer = self._connection.recv()
        except EOFError:
            raise RuntimeError("a training loop ended without a word") from None
        if isinstance(answer, Failure):
            raise RuntimeError(f"a training loop failed:\n{answer.traceback}")
        return answer

    def __enter__(self) -> "Loop":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._connection.send(("stop",))
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


@dataclass(frozen=True)
class Failure:
    """What a loop's process says before it ends of an error."""

    traceback: str


def _live(connection, other_end, setting: Setting, build: Callable, reward: Callable) -> None:
    other_end.close()  # so that this process ends with the one that asks
    silence = os.open(os.devnull, os.O_WRONLY)  # what goes wrong is sent
    os.dup2(silence, 1), os.dup2(silence, 2)
    try:
        judge = reward()
        trainer = build(setting=setting, reward=judge)
        trainer.add_callback(Gate(connection, trainer, setting, judge))
        trainer.train()
    except SystemExit:
        pass
    except BaseException:
        connection.send(Failure(traceback.format_exc()))


@contextmanager
def loops(*makers: Callable[[], Loop]):
    """Several loops, all of which are ended, however it ends."""
    made: list[Loop] = []
    try:
        for maker in makers:
            made.append(maker())
        yield made
    finally:
        for loop in made:
            loop.__exit__()


def as_json(samples: list[Sample]) -> list[dict]:
    return [asdict(sample) for sample in samples]
