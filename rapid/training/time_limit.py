"""The time limit of reward functions: `reward_timeout` of RapidConfig.

A plain function is called in a daemon thread. After the time limit the trainer no longer waits for
it, but a thread cannot be killed: it keeps its memory and its share of a core until the function
returns or the process ends. The time of a function that does not release the GIL cannot be limited,
for example that of a regular expression that backtracks. An async function is cancelled at its next
`await`; until then the trainer waits. Code that is not trusted needs a process that can be killed,
as in `rapid.rewards`. Reward models have no time limit.
"""

import asyncio
import functools
import logging
import math
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any, NoReturn

import torch
from torch import Tensor

from rapid.training.refusals import describe_sample

# After this many consecutive timeouts of one reward function the run ends. If completions are
# graded one by one, the number is multiplied by the number of completions of a group.
MAX_CONSECUTIVE_TIMEOUTS = 3
MAX_LOCATION_LINES = 3  # stack frames that the warning about a call shows, at each end of the stack

logger = logging.getLogger(__name__)


class RewardTimeout(Exception):
    """A reward function did not return in time. Its completions are not graded."""


class CallThread:
    """A daemon thread that calls functions for the thread that made it.

    It uses the same GPU as that thread. It is used for several calls, one after the other, since
    some functions keep a state for each thread.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future, Callable[[], Any]] | None] = SimpleQueue()
        device = torch.cuda.current_device() if torch.cuda.is_initialized() else None
        self._thread = threading.Thread(target=_run_calls, args=(self._calls, device), daemon=True)
        self._thread.start()

    def submit(self, function: Callable[[], Any]) -> Future:
        future: Future = Future()
        self._calls.put((future, function))
        return future

    def describe_location(self) -> str:
        """Return the stack of the present call as text, from the reward function inwards."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        stack = traceback.extract_stack(frame) if frame else []
        names = [line.name for line in stack]
        start = names.index(_run_calls.__name__) + 1 if _run_calls.__name__ in names else 0
        lines = [f"{line.filename}:{line.lineno} {line.name}" for line in stack[start:]]
        if len(lines) > 2 * MAX_LOCATION_LINES:
            lines[MAX_LOCATION_LINES:-MAX_LOCATION_LINES] = ["..."]
        return " > ".join(lines)

    def __del__(self) -> None:
        self._calls.put(None)  # the thread ends when its call has returned


def _run_calls(calls: SimpleQueue, device: int | None) -> None:
    """Make the calls that are put into a queue, until None is put into it."""
    if device is not None:
        torch.cuda.set_device(device)
    while call := calls.get():
        future, function = call
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)
        del call, future, function  # do not keep the result alive until the next call


class TimeLimit:
    """Calls reward functions, and stops waiting for them after a time limit.

    Args:
        seconds: the limit of a call.
        max_consecutive: after this many consecutive timeouts of one function TimeoutError is
            raised.
    """

    def __init__(self, seconds: float, max_consecutive: int):
        self._seconds, self._max_consecutive = seconds, max_consecutive
        self._local = threading.local()  # `thread`: the CallThread of each calling thread
        self._lock = threading.Lock()
        self._consecutive_timeouts: Counter[str] = Counter()
        self._timed_out_completions: Counter[str] = Counter()  # of the current batch

    @classmethod
    def from_config(cls, config: Any) -> "TimeLimit | None":
        """Return the time limit that a RapidConfig sets, or None."""
        if config.reward_timeout is None:
            return None
        calls_per_group = config.num_generations if config.grading_workers else 1
        return cls(config.reward_timeout, MAX_CONSECUTIVE_TIMEOUTS * calls_per_group)

    def mask_timed_out(self, trainer: Any, rewards: Tensor, count: int) -> Tensor:
        """Log each function's share of timed-out completions, and return rewards with NaN for them.

        If one function timed out, the rewards of all functions are NaN. They are so already if
        completions are graded one by one.

        Args:
            rewards: of the last batch, (N, functions), of all processes.
            count: number of this process's completions.
        """
        with self._lock:
            counts, self._timed_out_completions = self._timed_out_completions, Counter()
        names = trainer.reward_func_names
        local = torch.tensor([[counts[name] / count for name in names]], device=rewards.device)
        shares = trainer.accelerator.gather(local)  # (processes, functions)
        means = zip(names, shares.mean(0).tolist(), strict=True)
        trainer.add_metrics({f"rewards/{name}/timed_out": share for name, share in means})
        # In a call for the whole batch of a process, all or none of its completions time out.
        is_ungraded = (shares == 1).any(1).repeat_interleave(count)
        return rewards.masked_fill(is_ungraded[:, None], math.nan)

    def call(self, name: str, function: Callable, columns: dict[str, Any]) -> Any:
        """Call a function and return its result.

        Raises:
            RewardTimeout: the call took too long.
            TimeoutError: too many consecutive calls took too long.
        """
        # Put back when its call has returned: a thread that is still running is not used again.
        thread = vars(self._local).pop("thread", None) or CallThread()
        loggers, has_timed_out = limit_loggers(columns)
        future = thread.submit(functools.partial(function, **columns | loggers))
        if wait([future], self._seconds).done:
            self._local.thread = thread
            self._consecutive_timeouts[name] = 0
            return future.result()
        has_timed_out.set()
        state = f"It is still running, at {thread.describe_location()}"
        self._raise_timeout(name, columns, state)

    async def call_async(self, name: str, function: Callable, columns: dict[str, Any]) -> Any:
        """Do what `call` does, for an async function."""
        loggers, has_timed_out = limit_loggers(columns)
        task = asyncio.ensure_future(function(**columns | loggers))
        done, _ = await asyncio.wait([task], timeout=self._seconds)
        if done:
            self._consecutive_timeouts[name] = 0
            return task.result()
        has_timed_out.set()
        task.cancel()  # do not wait for the task: it may ignore the request
        self._raise_timeout(name, columns, "Its cancellation was requested")

    def _raise_timeout(self, name: str, columns: dict[str, Any], state: str) -> NoReturn:
        """Count and log a call that took too long, and raise an error: see `call`."""
        completions = columns["completions"]
        with self._lock:
            self._timed_out_completions[name] += len(completions)
            self._consecutive_timeouts[name] += 1
            timeouts = self._consecutive_timeouts[name]
        sample = describe_sample(columns["prompts"][0], completions[0])
        if len(completions) > 1:
            sample = f"{len(completions)} completions, the first is {sample}"
        problem = f"{name} did not return within reward_timeout={self._seconds:g} seconds"
        logger.warning("%s for %s: not graded. %s.", problem, sample, state)
        if timeouts >= self._max_consecutive:
            raise TimeoutError(
                f"{problem} in {timeouts} consecutive calls, the last for {sample}. {state}. Find "
                "out what it waits for, or raise reward_timeout"
            )
        raise RewardTimeout(problem)


def limit_loggers(columns: dict[str, Any]) -> tuple[dict[str, Any], threading.Event]:
    """Return TRL's `log_extra` and `log_metric` for one call, and an event that disables them."""
    has_timed_out = threading.Event()

    def limit(log: Callable) -> Callable:
        return lambda *values, **named: None if has_timed_out.is_set() else log(*values, **named)

    names = columns.keys() & {"log_extra", "log_metric"}
    return {name: limit(columns[name]) for name in names}, has_timed_out
