"""Training loops in child processes, which are measured in turns.

The parent tells a loop to take a number of optimizer steps; the loop takes them, sends the
measurements, and waits. So two loops can take turns (ABAB...) without restarting, with separate
memory. They run on the same cores. A child is forked after all imports. With vLLM it is spawned
instead, because the parent has imported TRL without vLLM.

Sampling is seeded every H optimizer steps, when an inference batch is sampled, so that loops sample
the same completions as long as their policies are about the same.
"""

import gc
import multiprocessing
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from statistics import fmean
from typing import Any, Self
from unittest.mock import patch

import torch
from transformers import TrainerCallback

from performance.parts import Setting
from performance.rewards import RecordingReward
from rapid import RapidTrainer
from rapid.resources.memory import measure_peak_memory_mb
from rapid.resources.wait_policy import WAIT_POLICY
from rapid.training.clock import read_synchronized_seconds
from rapid.training.trl.vllm import prepare_engine

SEED = 1000  # of the first inference batch; later seeds add the optimizer steps before the batch
BUILD_SECONDS = 300.0  # limit for building a trainer; a loop that takes longer has failed


class MeasuringCallback(TrainerCallback):
    """Pauses training until the parent asks for steps, then measures these steps.

    A request of the parent has the number of optimizer steps and a solve rate (the share of
    completions to reward). The answer has the measurements of `_measure_steps`.
    """

    def __init__(self, connection: Connection, trainer, setting: Setting):
        self._connection, self._trainer, self._setting = connection, trainer, setting
        self._reward: RecordingReward = trainer.reward_funcs[0]
        self._steps_left = self._steps = 0
        self._optimizer_seconds = self._log_mu_seconds = 0.0
        if isinstance(trainer, RapidTrainer):
            compute = trainer._compute_behavior_logp
            trainer._compute_behavior_logp = partial(self._time_log_mu, compute)

    def on_train_begin(self, args, state, control, **kwargs):
        self._connection.send("ready")
        self._wait_for_steps()

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step % self._setting.H == 0:
            torch.manual_seed(SEED + state.global_step)

    def _time_log_mu(self, compute: Callable, *arguments) -> Any:
        began = read_synchronized_seconds()
        log_mu = compute(*arguments)
        self._log_mu_seconds += read_synchronized_seconds() - began
        return log_mu

    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        self._optimizer_seconds -= time.perf_counter()

    def on_optimizer_step(self, args, state, control, **kwargs):
        self._optimizer_seconds += time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        self._steps_left -= 1
        if not self._steps_left:
            self._connection.send(self._measure_steps())
            self._wait_for_steps()

    def _wait_for_steps(self) -> None:
        """Wait until the parent asks for a number of steps.

        Raises:
            SystemExit: the parent has ended.
        """
        try:
            self._steps, self._reward.solve_rate = self._connection.recv()
        except EOFError:
            raise SystemExit from None
        self._steps_left = self._steps
        self._reward.clear()
        self._optimizer_seconds = self._log_mu_seconds = 0.0
        self._earlier_phases = self._read_phases()
        self._cpu_before, self._began = time.process_time(), read_synchronized_seconds()

    def _measure_steps(self) -> dict:
        """Return the measurements of the steps since the parent's request.

        Returns:
            `seconds`, and the times of parts of them: `optimizer` (the optimizer's steps), `log_mu`
            (RapidTrainer's computation of log mu, the behaviour policy's log-probs) and `phases`
            (RapidTrainer's clock). `cpu_seconds`, the CPU time of this process, which is far below
            `seconds` if the process waited or other processes used the core. `completions`,
            the number of completions. `length`, the mean number of tokens per completion.
            `rewarded_share`, the share of completions with a reward, and `rewarded_group_share`,
            the share of groups with at least one such completion. `memory`, the peak of this
            process in 1e6 bytes; on a CPU it includes memory that the process shares with its
            parent.
        """
        seconds = read_synchronized_seconds() - self._began
        cpu_seconds = time.process_time() - self._cpu_before
        reward = self._reward
        phases, earlier = self._read_phases(), self._earlier_phases
        return {
            "seconds": seconds,
            "cpu_seconds": cpu_seconds,
            "completions": self._steps * self._setting.n_step,
            "length": fmean(reward.lengths),
            "rewarded_share": fmean(reward.rewards),
            "rewarded_group_share": reward.compute_rewarded_group_share(self._setting.group),
            "optimizer": self._optimizer_seconds,
            "log_mu": self._log_mu_seconds,
            "phases": {name: total - earlier.get(name, 0.0) for name, total in phases.items()},
            "memory": measure_peak_memory_mb(),
        }

    def _read_phases(self) -> dict[str, float]:
        clock = getattr(self._trainer, "clock", None)
        return dict(clock.seconds) if clock else {}


@contextmanager
def _set_wait_policy(policy: str) -> Iterator[None]:
    """Set OMP_WAIT_POLICY for processes that are started in this context; "": remove it."""
    with patch.dict(os.environ):  # restored afterwards
        os.environ.pop(WAIT_POLICY, None)
        if policy:
            os.environ[WAIT_POLICY] = policy
        yield


@contextmanager
def run_busy_processes(count: int) -> Iterator[list[subprocess.Popen]]:
    """Run processes that compute without pause on this process's cores."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


class TrainingLoop:
    """A training loop in a child process; use as a context manager.

    Args:
        build_trainer: called in the child with `setting` and `reward`; returns the trainer.
        build_reward: called in the child; returns the reward function.
    """

    def __init__(
        self,
        setting: Setting,
        build_trainer: Callable,
        build_reward: Callable[[], RecordingReward],
    ):
        context: Any = multiprocessing.get_context("spawn" if setting.vllm else "fork")
        gc.collect()
        gc.freeze()  # the child's garbage collection then does not copy shared memory
        self._connection, child_end = context.Pipe()
        arguments = (child_end, self._connection, setting, build_trainer, build_reward)
        self._process = context.Process(target=_train_in_child, args=arguments, daemon=True)
        with _set_wait_policy(setting.wait_policy):
            self._process.start()
        child_end.close()
        try:
            self._receive(BUILD_SECONDS)
        except RuntimeError:  # end the child, which would disturb the next measurement
            self.__exit__()
            raise

    def run(self, steps: int, solve_rate: float | None = None) -> dict:
        """Take optimizer steps, and return their measurements (`MeasuringCallback._measure_steps`).

        Args:
            solve_rate: share of completions to reward, if the reward function can set it.
        """
        self._connection.send((steps, solve_rate or 0.0))
        return self._receive()

    def _receive(self, timeout: float | None = None) -> Any:
        """Return the child's next message.

        Raises:
            RuntimeError: the child failed, ended, or sent nothing for `timeout` seconds.
        """
        if not self._connection.poll(timeout):
            raise RuntimeError(f"a training loop was not ready after {timeout:.0f} s")
        try:
            message = self._connection.recv()
        except EOFError:
            raise RuntimeError("the process of a training loop ended unexpectedly") from None
        if isinstance(message, Failure):
            raise RuntimeError(f"a training loop failed:\n{message}")
        return message

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join()


class Failure(str):
    """A message of the child: the traceback of the error that ended it."""


def _train_in_child(connection, parent_end, setting: Setting, build_trainer, build_reward) -> None:
    """Train until the parent ends; if training fails, send it the traceback."""
    parent_end.close()  # else `recv` would not notice that the parent has ended
    if setting.vllm:  # on a CPU, GRPOTrainer's vLLM would else reserve a share of all memory
        prepare_engine()
    null = os.open(os.devnull, os.O_WRONLY)  # discard output; errors are sent to the parent
    os.dup2(null, 1), os.dup2(null, 2)
    try:
        trainer = build_trainer(setting=setting, reward=build_reward())
        trainer.add_callback(MeasuringCallback(connection, trainer, setting))
        trainer.train()
    except Exception:
        connection.send(Failure(traceback.format_exc()))
