"""Gives reward functions distinct names, and calls them while other completions are sampled."""

import functools
import inspect
import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from trl.trainer.utils import get_callable_name, is_async_callable

from rapid.training.refusals import describe_sample, note_on_error, read_rewards
from rapid.training.time_limit import RewardTimeout, TimeLimit

# Columns of the dataset that are not passed to reward functions. TRL passes `prompts`,
# `completions` and `completion_ids` of the batch instead.
NOT_ARGUMENTS = ("prompt", "completion", "completion_ids")

logger = logging.getLogger(__name__)


def make_names_distinct(names: Sequence[str]) -> list[str]:
    """Make names of reward functions distinct by their positions: f, g, f -> f-1, g, f-3.

    All lambdas have the same name, and so have partials and instances of a class. For functions of
    the same name, TRL would have one metric, and one column in the table of completions.
    """
    while len({*names}) < len(names):
        counts = Counter(names)  # counted again: a new name f-1 may be another function's name
        names = [f"{n}-{number}" if counts[n] > 1 else n for number, n in enumerate(names, 1)]
    return [*names]


def wrap_functions(trainer: Any, limit: TimeLimit | None) -> list[Any]:
    """Return a trainer's reward functions, each wrapped by `wrap_function`."""
    named = zip(trainer.reward_func_names, trainer.reward_funcs, strict=True)
    return [wrap_function(name, function, limit) for name, function in named]


def wrap_function(name: str, function: Any, limit: TimeLimit | None) -> Any:
    """Return a reward function with a time limit, and with a check of what it returns.

    It returns what `read_rewards` reads, and NaN for each completion if the call takes too long.
    Reward models are returned as they are.
    """
    if isinstance(function, torch.nn.Module):
        return function
    if is_async_callable(function):

        @functools.wraps(function)
        async def call_and_check_async(**columns: Any) -> list[float]:
            count = len(columns["completions"])
            try:
                call = limit.call_async(name, function, columns) if limit else function(**columns)
                return read_rewards(name, await call, count)
            except RewardTimeout:
                return [math.nan] * count

        return call_and_check_async

    @functools.wraps(function)
    def call_and_check(**columns: Any) -> list[float]:
        count = len(columns["completions"])
        try:
            returned = limit.call(name, function, columns) if limit else function(**columns)
            return read_rewards(name, returned, count)
        except RewardTimeout:
            return [math.nan] * count

    return call_and_check


def _refuse_columns(column: str, values: list) -> None:
    """Raise an error. This replaces TRL's `log_extra`, which logs a column of a whole batch."""
    raise ValueError(f"log_extra({column!r}) needs a whole batch: set grading_workers=0")


class StreamedRewards:
    """Grades completions in threads while others are sampled, and collects the rewards at the end.

    Reward functions get the same arguments as from TRL, but with one completion per call. This
    saves time with functions that wait for a sandbox or a server. A function that computes in
    Python would slow down sampling.

    Args:
        functions: reward functions as `GRPOTrainer` takes them.
        workers: number of threads, and so of completions that are graded at a time.
        get_arguments: returns further keyword arguments for each call.
        limit: the time limit of a call. A completion that one function does not grade in time is
            not graded by the others either.

    Raises:
        ValueError: a function is a model, is async, or logs columns of a batch.
    """

    def __init__(
        self,
        functions: list[Any],
        workers: int,
        get_arguments: Callable[[], dict],
        limit: TimeLimit | None = None,
    ):
        for function in functions:
            name = getattr(function, "__name__", type(function).__name__)
            if isinstance(function, torch.nn.Module):
                raise ValueError(
                    f"{name} is a reward model, which needs batches: set grading_workers=0"
                )
            if is_async_callable(function):
                raise ValueError(
                    f"{name} is async and already grades in parallel: set grading_workers=0"
                )
            if "log_extra" in inspect.signature(function).parameters:
                raise ValueError(f"{name} logs columns of a whole batch: set grading_workers=0")
        self._functions = functions
        self._names = make_names_distinct([get_callable_name(function) for function in functions])
        self._get_arguments, self._limit = get_arguments, limit
        self._has_warned = False  # see `_warn_if_equal`
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="grading")
        self._futures: dict[int, Future] = {}

    def submit(self, row: int, example: dict, completion, completion_ids: list[int]) -> None:
        """Start to grade row `row` of the batch if this has not been started yet.

        `example` is the row of the dataset with its prompt.
        """
        if row not in self._futures:
            self._futures[row] = self._pool.submit(self._grade, example, completion, completion_ids)

    def cancel(self) -> None:
        """Cancel the grading of a batch whose sampling was interrupted by an error."""
        futures, self._futures = self._futures, {}
        for future in futures.values():
            future.cancel()

    def collect(
        self, examples: list[dict], completions: list, ids: list[list[int]]
    ) -> torch.Tensor:
        """Grade what is left of a batch, and return the rewards of all, (N, functions).

        They are NaN where a function returned None.
        """
        for row, sample in enumerate(zip(examples, completions, ids, strict=True)):
            self.submit(row, *sample)
        futures, self._futures = self._futures, {}
        try:
            rewards = torch.tensor([futures[row].result() for row in range(len(examples))])
        finally:
            for future in futures.values():  # after an error, the other rewards are not needed
                future.cancel()
        self._warn_if_equal(rewards)
        return rewards

    def _warn_if_equal(self, rewards: torch.Tensor) -> None:
        """Warn once if a function gives all completions of a batch the same reward.

        Such a function may compare completions, but here each call has only one.
        """
        are_equal = ((rewards == rewards[:1]) | (rewards.isnan() & rewards[:1].isnan())).all(0)
        if self._has_warned or len(rewards) < 2 or not are_equal.any():
            return
        self._has_warned = True
        for name, is_constant in zip(self._names, are_equal.tolist(), strict=True):
            if is_constant:
                logger.warning(
                    "%s gave all %d completions of a batch the same reward. With "
                    "grading_workers it sees one completion at a time: if it compares "
                    "completions, set grading_workers=0.",
                    name,
                    len(rewards),
                )

    @classmethod
    def from_trainer(cls, trainer: Any, limit: TimeLimit | None) -> "StreamedRewards | None":
        """Return an instance for a trainer's reward functions; None if `grading_workers` is 0."""
        if not trainer.args.grading_workers:
            return None

        def get_arguments() -> dict[str, Any]:
            return {"trainer_state": trainer.state, "log_metric": trainer._log_metric}

        return cls(trainer.reward_funcs, trainer.args.grading_workers, get_arguments, limit)

    def _grade(self, example: dict, completion, completion_ids: list[int]) -> list[float]:
        """Return the reward of each function; NaN for None."""
        columns: dict[str, Any] = {
            name: [value] for name, value in example.items() if name not in NOT_ARGUMENTS
        }
        columns |= {
            "prompts": [example["prompt"]],
            "completions": [completion],
            "completion_ids": [completion_ids],
            "log_extra": _refuse_columns,
            **self._get_arguments(),
        }
        rewards: list[float] = []
        for name, function in zip(self._names, self._functions, strict=True):
            with note_on_error(f"{name} of {describe_sample(example['prompt'], completion)}"):
                try:
                    limit = self._limit
                    returned = limit.call(name, function, columns) if limit else function(**columns)
                except RewardTimeout:
                    return [math.nan] * len(self._functions)
                rewards += read_rewards(name, returned, 1)
        return rewards
