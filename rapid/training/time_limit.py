"""A time limit for reward functions: `reward_timeout` of RapidConfig.

A thread cannot be killed. So a plain function is called in a daemon thread: when the time is up
nobody waits for it any more, but it keeps its memory and its share of a core until it returns or
the process ends. It has to let other threads run, which a regular expression that backtracks, for
example, does not. An async function is cancelled at its next `await`; one that never awaits blocks
all of them. A function that runs what it cannot trust needs a process that can be killed, as
`rapid.rewards` has. Reward models have no time limit.
"""

import asyncio
import functools
import logging
import math
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor
from trl.trainer.utils import is_async_callable

from rapid.training.refusals import describe_sample

MAX_IN_A_ROW = 3  # inference batches, or groups of completions that are graded one by one
SHOWN_LINES = 3  # of where a call hangs, at each end

logger = logging.getLogger(__name__)


class TimedOut(Exception):
    """A reward function did not return in time. It is not graded, and training goes on."""


class Helper:
    """A daemon thread that calls functions for the thread that made it.

    It has this thread's GPU, and is the same for several calls: some functions keep something for
    each thread.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future, Callable[[], Any]] | None] = SimpleQueue()
        device = torch.cuda.current_device() if torch.cuda.is_initialized() else None
        arguments = self._calls, device
        self._thread = threading.Thread(target=_make_calls, args=arguments, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], Any]) -> Future:
        future: Future = Future()
        self._calls.put((future, function))
        return future

    def describe_place(self) -> str:
        """Return the lines that the call is at, from the reward function's own inwards."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        stack = traceback.extract_stack(frame) if frame else []
        names = [line.name for line in stack]
        start = names.index(_make_calls.__name__) + 1 if _make_calls.__name__ in names else 0
        lines = [f"{line.filename}:{line.lineno} {line.name}" for line in stack[start:]]
        if len(lines) > 2 * SHOWN_LINES:
            lines[SHOWN_LINES:-SHOWN_LINES] = ["..."]
        return " > ".join(lines)

    def __del__(self) -> None:
        self._calls.put(None)  # the thread ends when it has returned from its call


def _make_calls(calls: SimpleQueue, device: int | None) -> None:
    if device is not None:
        torch.cuda.set_device(device)
    while call := calls.get():
        future, function = call
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)
        del call, future, function


class TimeLimit:
    """Calls reward functions, and stops waiting when the time is up.

    Args:
        seconds: for a call.
        max_in_a_row: calls of a function in a row that take longer, until TimeoutError is raised.
    """

    def __init__(self, seconds: float, max_in_a_row: int):
        self._seconds, self._max_in_a_row = seconds, max_in_a_row
        self._helpers = threading.local()
        self._lock = threading.Lock()
        self._in_a_row: Counter[str] = Counter()
        self._completions: Counter[str] = Counter()

    @classmethod
    def from_config(cls, config: Any) -> "TimeLimit | None":
        """Return the time limit that a RapidConfig sets, or None."""
        if config.reward_timeout is None:
            return None
        calls = config.num_generations if config.grading_workers else 1
        return cls(config.reward_timeout, MAX_IN_A_ROW * calls)

    def drop_late(self, trainer: Any, rewards: Tensor, count: int) -> Tensor:
        """Return rewards without those of completions that one function did not grade in time.

        Where completions are graded one by one, these have no rewards already. Logs the share of
        such completions for each function.

        Args:
            rewards: of the last batch, (N, functions), of all processes.
            count: of this process's completions.
        """
        with self._lock:
            late, self._completions = self._completions, Counter()
        names = trainer.reward_func_names
        local = torch.tensor([[late[name] / count for name in names]], device=rewards.device)
        shares = trainer.accelerator.gather(local)  # (processes, functions)
        means = zip(names, shares.mean(0).tolist(), strict=True)
        trainer.add_metrics({f"rewards/{name}/timed_out": share for name, share in means})
        is_late = (shares == 1).any(1).repeat_interleave(count)
        return rewards.masked_fill(is_late[:, None], math.nan)

    def call(self, name: str, function: Callable, columns: dict[str, Any]) -> Any:
        """Return what a function returns.

        Raises:
            TimedOut: it took too long.
            TimeoutError: it has done so too often.
        """
        helper = vars(self._helpers).pop("helper", None) or Helper()
        loggers = GuardedLoggers(columns)
        future = helper.call(functools.partial(function, **columns | loggers.guarded))
        if wait([future], self._seconds).done:
            self._helpers.helper = helper
            self._in_a_row[name] = 0
            return future.result()
        loggers.are_open = False
        raise self._count_late_call(name, columns, f"It goes on, at {helper.describe_place()}")

    async def call_async(self, name: str, function: Callable, columns: dict[str, Any]) -> Any:
        """Return what an async function returns, as `call` does."""
        loggers = GuardedLoggers(columns)
        task = asyncio.ensure_future(function(**columns | loggers.guarded))
        done, _ = await asyncio.wait([task], timeout=self._seconds)
        if done:
            self._in_a_row[name] = 0
            return task.result()
        loggers.are_open = False
        task.cancel()  # without waiting for it: it may refuse
        raise self._count_late_call(name, columns, "It is cancelled")

    def _count_late_call(self, name: str, columns: dict[str, Any], fate: str) -> TimedOut:
        """Count a call that took too long, and return the error to raise."""
        completions = columns["completions"]
        with self._lock:
            self._completions[name] += len(completions)
            self._in_a_row[name] += 1
            times = self._in_a_row[name]
        sample = describe_sample(columns["prompts"][0], completions[0])
        first = "" if len(completions) == 1 else f"{len(completions)} completions, the first is "
        problem = f"{name} did not return within reward_timeout={self._seconds:g} seconds"
        logger.warning("%s for %s%s: not graded. %s.", problem, first, sample, fate)
        if times >= self._max_in_a_row:
            raise TimeoutError(
                f"{problem} in {times} calls in a row, the last for {first}{sample}. {fate}. Find "
                "out what it waits for, or raise reward_timeout"
            )
        return TimedOut(problem)

    def wrap_all(self, functions: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """Return reward functions that return None for all completions of a call that hangs."""
        return [self._limit_function(*named) for named in zip(names, functions, strict=True)]

    def _limit_function(self, name: str, function: Any) -> Any:
        if isinstance(function, torch.nn.Module):
            return function
        if is_async_callable(function):

            @functools.wraps(function)
            async def call_limited_async(**columns: Any) -> Sequence[float | None]:
                try:
                    return await self.call_async(name, function, columns)
                except TimedOut:
                    return [None] * len(columns["completions"])

            return call_limited_async

        @functools.wraps(function)
        def call_limited(**columns: Any) -> Sequence[float | None]:
            try:
                return self.call(name, function, columns)
            except TimedOut:
                return [None] * len(columns["completions"])

        return call_limited


class GuardedLoggers:
    """TRL's `log_extra` and `log_metric` for one call, which do nothing once its time is up."""

    def __init__(self, columns: dict[str, Any]):
        self.are_open = True
        names = columns.keys() & {"log_extra", "log_metric"}
        self.guarded = {name: self._guard_log(columns[name]) for name in names}

    def _guard_log(self, log: Callable) -> Callable:
        return lambda *arguments, **named: log(*arguments, **named) if self.are_open else None
