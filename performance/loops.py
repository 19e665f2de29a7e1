"""Training loops that are measured side by side.

Each loop lives in a process of its own, forked from one that has imported everything and pinned to
the same core. It takes as many optimizer steps as it is told to, sends what they took, and waits.
So two loops take turns (ABAB...), always warm, and neither's memory is the other's.

Sampling is seeded anew for every inference batch, so that both loops sample the same completions as
long as their policies are about the same.
"""

import gc
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from statistics import fmean
from typing import Any, NamedTuple, Self

import torch
from transformers import TrainerCallback

from performance.rewards import Counted
from performance.trainers import Setting

SEED = 1000
BUILD_SECONDS = 300.0  # a loop that is not ready by then never will be


class Gate(TrainerCallback):
    """Holds a training loop until it is told how many steps to take, and measures them.

    It receives functions with their arguments and sends what they return for the trainer. None in
    place of a function, with a number of steps, lets the loop go on.
    """

    def __init__(self, connection, trainer, setting: Setting):
        self._connection, self._trainer, self._setting = connection, trainer, setting
        self._reward: Counted = trainer.reward_funcs[0]
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
        """Call the functions that are asked for, until steps are.

        Raises:
            SystemExit: nobody is there to ask.
        """
        while True:
            try:
                function, *arguments = self._connection.recv()
            except EOFError:
                raise SystemExit from None
            if function is None:
                break
            self._connection.send(function(self._trainer, *arguments))
        self._left = self._steps = arguments[0]
        self._reward.clear()
        self._optimizer = 0.0
        self._before = self._phases()
        self._cpu, self._began = time.process_time(), _now()

    def _sample(self) -> dict:
        """Return what the steps took: times in seconds, by wall clock if not said otherwise.

        `cpu_seconds` are of this process: far below `seconds` where it waited or others used the
        core. `length` is the mean number of tokens per completion, `solved` the share of
        completions that were rewarded. `alive` is the share of groups with a reward that is not 0;
        None where verdicts come in no order. `optimizer` is the optimizer's own step, `phases` are
        by the clock of RapidTrainer.
        """
        seconds, cpu_seconds = _now() - self._began, time.process_time() - self._cpu
        verdicts, group = self._reward.verdicts, self._setting.group
        groups = [verdicts[start : start + group] for start in range(0, len(verdicts), group)]
        in_order = not getattr(self._trainer.args, "grading_workers", 0)
        return {
            "seconds": seconds,
            "cpu_seconds": cpu_seconds,
            "steps": self._steps,
            "completions": self._steps * self._setting.n_step,
            "length": fmean(self._reward.lengths),
            "solved": fmean(verdicts),
            "alive": fmean(map(any, groups)) if in_order else None,
            "optimizer": self._optimizer,
            "phases": {
                name: after - self._before.get(name, 0.0) for name, after in self._phases().items()
            },
        }

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
        build: makes the trainer of a setting and a reward; runs in that process.
        reward: makes the reward; runs in that process.
    """

    def __init__(self, setting: Setting, build: Callable, reward: Callable[[], Counted]):
        context = multiprocessing.get_context("fork")
        self._connection, theirs = context.Pipe()
        gc.collect()
        gc.freeze()  # what is shared after the fork stays shared
        arguments = (theirs, self._connection, setting, build, reward)
        self._process = context.Process(target=_live, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        self._answer(BUILD_SECONDS)

    def run(self, steps: int) -> dict:
        """Take optimizer steps, and return what they took."""
        return self.call(None, steps)

    def call(self, function: Callable | None, *arguments) -> Any:
        """Return the result of `function(trainer, *arguments)`, in the loop's process."""
        self._connection.send((function, *arguments))
        return self._answer()

    def _answer(self, timeout: float | None = None) -> Any:
        if not self._connection.poll(timeout):
            raise RuntimeError(f"a training loop was not ready after {timeout:.0f} s")
        try:
            answer = self._connection.recv()
        except EOFError:
            raise RuntimeError("a training loop ended without a word") from None
        if isinstance(answer, Failure):
            raise RuntimeError(f"a training loop failed:\n{answer.traceback}")
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()


class Failure(NamedTuple):
    """The error that ended a loop's process, as text."""

    traceback: str


def _live(connection, other_end, setting: Setting, build: Callable, reward: Callable) -> None:
    other_end.close()  # so that this process ends with the one that asks
    silence = os.open(os.devnull, os.O_WRONLY)  # errors are sent
    os.dup2(silence, 1), os.dup2(silence, 2)
    try:
        trainer = build(setting=setting, reward=reward())
        trainer.add_callback(Gate(connection, trainer, setting))
        trainer.train()
    except Exception:
        connection.send(Failure(traceback.format_exc()))
