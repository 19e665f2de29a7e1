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
from multiprocessing.connection import Connection
from statistics import fmean
from typing import Any, Self

import torch
from transformers import TrainerCallback

from performance.parts import Setting
from performance.rewards import Counted
from performance.utilization import count_operations, measure_peak_rate
from rapid.artifacts.manifests import peak_memory_mb
from rapid.training.clock import now

SEED = 1000
BUILD_SECONDS = 300.0  # a loop that is not ready by then never will be


class Gate(TrainerCallback):
    """Holds a training loop until it is told how many steps to take, and measures them.

    It receives a number of steps with a solve rate, and sends what the steps took.
    """

    def __init__(self, connection: Connection, trainer, setting: Setting):
        self._connection, self._trainer, self._setting = connection, trainer, setting
        self._reward: Counted = trainer.reward_funcs[0]
        self._steps_left = self._steps = 0
        self._optimizer = 0.0

    def on_train_begin(self, args, state, control, **kwargs):
        self._connection.send("ready")
        self._wait_for_steps()

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step % self._setting.H == 0:
            torch.manual_seed(SEED + state.global_step)

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        self._optimizer -= time.perf_counter()

    def on_optimizer_step(self, args, state, control, **kwargs):
        self._optimizer += time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        self._steps_left -= 1
        if not self._steps_left:
            self._connection.send(self._sample())
            self._wait_for_steps()

    def _wait_for_steps(self) -> None:
        """Wait for a number of steps.

        Raises:
            SystemExit: the process at the other end is gone.
        """
        try:
            self._steps, self._reward.rate = self._connection.recv()
        except EOFError:
            raise SystemExit from None
        self._steps_left = self._steps
        self._reward.clear()
        self._optimizer = 0.0
        self._phases_before = self._read_phases()
        self._cpu_before, self._began = time.process_time(), now()

    def _sample(self) -> dict:
        """Return what the steps took, in seconds of wall-clock time where nothing else is said.

        `cpu_seconds` are of this process: far below `seconds` where it waited or others used the
        core. `length` is the mean number of tokens per completion, `solved` the share of
        completions that were rewarded, `alive` the share of groups with a reward that is not 0.
        `optimizer` is the optimizer's own step, `phases` are by the clock of RapidTrainer. `memory`
        is the most that the process has held, 1e6 bytes; on a CPU with what it inherited.
        """
        seconds, cpu_seconds = now() - self._began, time.process_time() - self._cpu_before
        trainer, verdicts, group = self._trainer, self._reward.verdicts, self._setting.group
        groups = [verdicts[start : start + group] for start in range(0, len(verdicts), group)]
        phases, before = self._read_phases(), self._phases_before
        return {
            "seconds": seconds,
            "cpu_seconds": cpu_seconds,
            "completions": self._steps * self._setting.n_step,
            "length": fmean(self._reward.lengths),
            "solved": fmean(verdicts),
            "alive": fmean(map(any, groups)),
            "optimizer": self._optimizer,
            "phases": {name: after - before.get(name, 0.0) for name, after in phases.items()},
            "memory": peak_memory_mb(),  # before the matrices that are multiplied next
            "operations": count_operations(trainer),
            "peak_rate": measure_peak_rate(trainer.accelerator.device, trainer.args.bf16),
        }

    def _read_phases(self) -> dict[str, float]:
        clock = getattr(self._trainer, "clock", None)
        return dict(clock.seconds) if clock else {}


class Loop:
    """A training loop in a process of its own; use as a context manager.

    Args:
        build: makes the trainer of a setting and a reward; runs in that process.
        reward: makes the reward; runs there too.
    """

    def __init__(self, setting: Setting, build: Callable, reward: Callable[[], Counted]):
        context = multiprocessing.get_context("fork")
        gc.collect()
        gc.freeze()  # what is shared after the fork stays shared
        self._connection, far_end = context.Pipe()
        arguments = (far_end, self._connection, setting, build, reward)
        self._process = context.Process(target=_run_loop, args=arguments, daemon=True)
        self._process.start()
        far_end.close()
        try:
            self._receive(BUILD_SECONDS)
        except RuntimeError:  # or it would go on beside what is measured next
            self.__exit__()
            raise

    def run(self, steps: int, rate: float | None = None) -> dict:
        """Take optimizer steps, at a solve rate if the reward has one; return what they took."""
        self._connection.send((steps, rate or 0.0))
        return self._receive()

    def _receive(self, timeout: float | None = None) -> Any:
        if not self._connection.poll(timeout):
            raise RuntimeError(f"a training loop was not ready after {timeout:.0f} s")
        try:
            answer = self._connection.recv()
        except EOFError:
            raise RuntimeError("the process of a training loop ended without an answer") from None
        if isinstance(answer, Failure):
            raise RuntimeError(f"a training loop failed:\n{answer}")
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()


class Failure(str):
    """The traceback of the error that ended a loop's process."""


def _run_loop(connection, near_end, setting: Setting, build, reward) -> None:
    near_end.close()  # so that this process ends with the one that started it
    silence = os.open(os.devnull, os.O_WRONLY)  # errors are sent
    os.dup2(silence, 1), os.dup2(silence, 2)
    try:
        trainer = build(setting=setting, reward=reward())
        trainer.add_callback(Gate(connection, trainer, setting))
        trainer.train()
    except Exception:
        connection.send(Failure(traceback.format_exc()))
