"""Training loops in processes of their own that are measured in turns.

Each loop runs in a child process, forked after all imports and bound to the same cores. A loop with
vLLM is started anew, because the parent imports TRL without vLLM. The parent tells a loop to take a
number of optimizer steps; the loop takes them, sends the measurements, and waits. So two loops can
take turns (ABAB...) without starting again, and have separate memory.

Sampling is seeded anew for every inference batch (the completions of H optimizer steps), so that
both loops sample the same completions as long as their policies are about the same.
"""

import gc
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from functools import partial
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
from rapid.training.trl.vllm import prepare_engine

SEED = 1000  # plus the number of the optimizer step, for each inference batch
BUILD_SECONDS = 300.0  # limit for building a trainer; a loop that takes longer has failed


class Gate(TrainerCallback):
    """A callback that stops a training loop until the parent asks for steps, and measures these.

    It receives the number of optimizer steps and a solve rate (the share of completions to reward),
    and sends the measurements of `_sample`.
    """

    def __init__(self, connection: Connection, trainer, setting: Setting):
        self._connection, self._trainer, self._setting = connection, trainer, setting
        self._reward: Counted = trainer.reward_funcs[0]
        self._steps_left = self._steps = 0
        self._optimizer = self._log_mu = 0.0
        if compute := getattr(trainer, "_compute_log_mu", None):
            trainer._compute_log_mu = partial(self._time_log_mu, compute)

    def on_train_begin(self, args, state, control, **kwargs):
        self._connection.send("ready")
        self._wait_for_steps()

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step % self._setting.H == 0:
            torch.manual_seed(SEED + state.global_step)

    def _time_log_mu(self, compute: Callable[[], None]) -> None:
        began = now()
        compute()
        self._log_mu += now() - began

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
        """Wait until the parent asks for a number of steps.

        Raises:
            SystemExit: the parent has ended.
        """
        try:
            self._steps, self._reward.rate = self._connection.recv()
        except EOFError:
            raise SystemExit from None
        self._steps_left = self._steps
        self._reward.clear()
        self._optimizer = self._log_mu = 0.0
        self._phases_before = self._read_phases()
        self._cpu_before, self._began = time.process_time(), now()

    def _sample(self) -> dict:
        """Return the measurements of the steps. Times are in wall-clock seconds.

        `cpu_seconds` is CPU time of this process, far below `seconds` if the process waited or
        other processes used the core. `length` is the mean number of tokens per completion,
        `solved` the share of rewarded completions, `alive` the share of groups with a reward that
        is not 0. `optimizer` is the time of the optimizer's steps, and `log_mu` that of
        RapidTrainer's computation of log mu; `phases` are the times of its clock. `memory` is the
        peak of the process in 1e6 bytes, on a CPU including memory that it shares with its parent.
        `operations` are counted (`count_operations`), and `peak_rate` is the most operations per
        second that the processor reaches.
        """
        seconds, cpu_seconds = now() - self._began, time.process_time() - self._cpu_before
        trainer = self._trainer
        phases, before = self._read_phases(), self._phases_before
        return {
            "seconds": seconds,
            "cpu_seconds": cpu_seconds,
            "completions": self._steps * self._setting.n_step,
            "length": fmean(self._reward.lengths),
            "solved": fmean(self._reward.verdicts),
            "alive": self._reward.share_of_rewarded_groups(self._setting.group),
            "optimizer": self._optimizer,
            "log_mu": self._log_mu,
            "phases": {name: after - before.get(name, 0.0) for name, after in phases.items()},
            "memory": peak_memory_mb(),  # before `measure_peak_rate`, which needs memory too
            "operations": count_operations(trainer),
            "peak_rate": measure_peak_rate(trainer.accelerator.device, trainer.args.bf16),
        }

    def _read_phases(self) -> dict[str, float]:
        clock = getattr(self._trainer, "clock", None)
        return dict(clock.seconds) if clock else {}


class Loop:
    """A training loop in a child process; use as a context manager.

    Args:
        build: called in the child with `setting` and `reward`; returns the trainer.
        reward: called in the child; returns the reward function.
    """

    def __init__(self, setting: Setting, build: Callable, reward: Callable[[], Counted]):
        context: Any = multiprocessing.get_context("spawn" if setting.vllm else "fork")
        gc.collect()
        gc.freeze()  # the child's garbage collection then does not copy shared memory
        self._connection, far_end = context.Pipe()
        arguments = (far_end, self._connection, setting, build, reward)
        self._process = context.Process(target=_run_loop, args=arguments, daemon=True)
        self._process.start()
        far_end.close()
        try:
            self._receive(BUILD_SECONDS)
        except RuntimeError:  # end the child, which would disturb the next measurement
            self.__exit__()
            raise

    def run(self, steps: int, rate: float | None = None) -> dict:
        """Take optimizer steps, and return their measurements (`Gate._sample`).

        Args:
            rate: solve rate, if the reward function has one.
        """
        self._connection.send((steps, rate or 0.0))
        return self._receive()

    def _receive(self, timeout: float | None = None) -> Any:
        """Return the child's next message.

        Raises:
            RuntimeError: the child failed, ended, or sent nothing for `timeout` seconds.
        """
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
    """Train in the child process; send the traceback if that fails."""
    near_end.close()  # else `recv` would not notice that the parent has ended
    if setting.vllm:  # also for GRPOTrainer, which would take a share of the machine's memory
        prepare_engine()
    silence = os.open(os.devnull, os.O_WRONLY)  # discard output; errors are sent to the parent
    os.dup2(silence, 1), os.dup2(silence, 2)
    try:
        trainer = build(setting=setting, reward=reward())
        trainer.add_callback(Gate(connection, trainer, setting))
        trainer.train()
    except Exception:
        connection.send(Failure(traceback.format_exc()))
