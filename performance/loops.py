"""Training loops that are measured side by side.

Each loop lives in a process of its own, forked from one that has imported everything and pinned to
the same core. It takes as many optimizer steps as it is told to, sends what they took, and waits.
So two loops take turns (ABAB...), always warm, and neither's memory is the other's. A loop may have
several processes, each on a core of its own.

Sampling is seeded anew for every inference batch, so that both loops sample the same completions as
long as their policies are about the same.
"""

import gc
import multiprocessing
import os
import socket
import time
import traceback
from collections.abc import Callable
from statistics import fmean
from typing import Any, Self

import torch
from transformers import TrainerCallback

from performance.rewards import Counted
from performance.trainers import Setting
from rapid.resources.leases import bind
from rapid.training.clock import now

CORES: list[int] = []  # those of a loop's processes, if they are bound to any
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
        self._left = self._steps = self._tokens = 0
        self._optimizer = self._sampling = 0.0
        trainer.model.base_model.register_forward_pre_hook(self._count, with_kwargs=True)
        self._generate, trainer._generate = trainer._generate, self._timed

    def _count(self, model, args, inputs: dict) -> None:
        if torch.is_grad_enabled():
            self._tokens += inputs["input_ids"].numel()

    def _timed(self, prompts: list) -> Any:
        began = time.process_time()
        sampled = self._generate(prompts)
        self._sampling += time.process_time() - began
        return sampled

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
        self._optimizer = self._sampling = 0.0
        self._tokens = 0
        self._before = self._phases()
        self._cpu, self._began = time.process_time(), now()

    def _sample(self) -> dict:
        """Return what the steps took: times in seconds, by wall clock if not said otherwise.

        `cpu_seconds` are of this process: far below `seconds` where it waited or others used the
        core. `cpu_sampling` is the part of it in sampling. `tokens` are what forward and backward
        passes ran, padding included. `length` is the mean number of tokens per completion, `solved`
        the share of completions that were rewarded. `alive` is the share of groups with a reward
        that is not 0; None where verdicts come in no order. `optimizer` is the optimizer's own
        step, `phases` are by the clock of RapidTrainer.
        """
        seconds, cpu_seconds = now() - self._began, time.process_time() - self._cpu
        verdicts, group = self._reward.verdicts, self._setting.group
        groups = [verdicts[start : start + group] for start in range(0, len(verdicts), group)]
        in_order = not getattr(self._trainer.args, "grading_workers", 0)
        return {
            "seconds": seconds,
            "cpu_seconds": cpu_seconds,
            "cpu_sampling": self._sampling,
            "tokens": self._tokens,
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


class Loop:
    """A training loop in processes of its own; use as a context manager.

    Args:
        build: makes the trainer of a setting and a reward; runs in these processes.
        reward: makes the reward; runs there too.
    """

    def __init__(self, setting: Setting, build: Callable, reward: Callable[[], Counted]):
        context = multiprocessing.get_context("fork")
        self._connections, self._processes = [], []
        gc.collect()
        gc.freeze()  # what is shared after the fork stays shared
        for environment in environments(setting.processes):
            connection, theirs = context.Pipe()
            self._connections.append(connection)
            arguments = (theirs, [*self._connections], environment, setting, build, reward)
            self._processes.append(context.Process(target=_live, args=arguments, daemon=True))
            self._processes[-1].start()
            theirs.close()
        try:
            self._answer(BUILD_SECONDS)
        except RuntimeError:  # or it would go on beside what is measured next
            self.__exit__()
            raise

    def run(self, steps: int) -> dict:
        """Take optimizer steps, and return what they took."""
        return self.call(None, steps)

    def call(self, function: Callable | None, *arguments) -> Any:
        """Return the result of `function(trainer, *arguments)`, in the loop's first process."""
        for connection in self._connections:
            connection.send((function, *arguments))
        return self._answer()

    def _answer(self, timeout: float | None = None) -> Any:
        answers = []
        for connection in self._connections:
            if not connection.poll(timeout):
                raise RuntimeError(f"a training loop was not ready after {timeout:.0f} s")
            try:
                answers.append(connection.recv())
            except EOFError:
                raise RuntimeError("a training loop ended without a word") from None
            if isinstance(answers[-1], Failure):
                raise RuntimeError(f"a training loop failed:\n{answers[-1]}")
        return answers[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
            process.join()


def environments(processes: int) -> list[dict[str, str]]:
    """Return what accelerate reads in each process of a loop, if there are several."""
    if processes == 1:
        return [{}]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = map(str, range(processes))
    return [shared | {"RANK": rank, "LOCAL_RANK": rank} for rank in ranks]


class Failure(str):
    """The traceback of the error that ended a loop's process."""


def _live(connection, others, environment, setting: Setting, build, reward) -> None:
    for other_end in others:
        other_end.close()  # so that this process ends with the one that asks
    silence = os.open(os.devnull, os.O_WRONLY)  # errors are sent
    os.dup2(silence, 1), os.dup2(silence, 2)
    os.environ |= environment
    try:
        if CORES:
            bind([CORES[int(environment.get("RANK", 0))]], 1)
        trainer = build(setting=setting, reward=reward())
        trainer.add_callback(Gate(connection, trainer, setting))
        trainer.train()
    except Exception:
        connection.send(Failure(traceback.format_exc()))
