"""Reward functions: their names, and calls beside sampling, one completion at a time."""

import inspect
import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from trl.trainer.utils import get_callable_name, is_async_callable

from rapid.training.refusals import describe_sample, note_on_error
from rapid.training.time_limit import TimedOut, TimeLimit

NOT_ARGUMENTS = ("prompt", "completion", "completion_ids")  # columns that TRL passes by other names

logger = logging.getLogger(__name__)


def distinct_names(names: Sequence[str]) -> list[str]:
    """Return names of reward functions, with its place among them, from 1, where several have one.

    Lambdas, partials and instances of a class have one name, and TRL gives them one metric, the
    mean of all, and one column in the table of completions.
    """
    while len({*names}) < len(names):
        count = Counter(names)
        names = [f"{n}-{place}" if count[n] > 1 else n for place, n in enumerate(names, 1)]
    return [*names]


def _refuse_columns(column: str, values: list) -> None:
    raise ValueError(f"log_extra({column!r}) needs a whole batch: set grading_workers=0")


class StreamedRewards:
    """Grade completions as they come, in threads, and return the rewards when all are wanted.

    A reward function is called as TRL calls it, with lists of one. It waits for its answer in a
    thread: one that computes in Python only would slow sampling down.

    Args:
        functions: reward functions as `GRPOTrainer` takes them.
        workers: how many completions are graded at a time.
        extra: returns further keyword arguments of a call.
        limit: of the time of a call. A completion that one function does not grade in time is not
            graded at all.

    Raises:
        ValueError: a reward that cannot be had for one completion by a plain call.
    """

    def __init__(
        self,
        functions: list[Any],
        workers: int,
        extra: Callable[[], dict],
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
        self._names = distinct_names([get_callable_name(function) for function in functions])
        self._extra, self._limit = extra, limit
        self._suspected = False
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="grading")
        self._futures: dict[int, Future] = {}

    def submit(self, row: int, example: dict, completion, completion_ids: list[int]) -> None:
        """Start to grade a completion, unless that was done.

        Args:
            row: its place in the batch.
            example: the dataset's row it was sampled for.
        """
        if row not in self._futures:
            self._futures[row] = self._pool.submit(self._grade, example, completion, completion_ids)

    def forget(self) -> None:
        """Drop what a batch that was interrupted has left: the next one's rows are others."""
        futures, self._futures = self._futures, {}
        for future in futures.values():
            future.cancel()

    def collect(
        self, examples: list[dict], completions: list, ids: list[list[int]]
    ) -> torch.Tensor:
        """Return the rewards of a batch, (N, functions), NaN where a function returned None."""
        for row, sample in enumerate(zip(examples, completions, ids, strict=True)):
            self.submit(row, *sample)
        futures, self._futures = self._futures, {}
        try:
            rewards = torch.tensor([futures[row].result() for row in range(len(examples))])
        finally:
            for future in futures.values():  # where one raised: nobody waits for the others
                future.cancel()
        self._suspect_relative(rewards)
        return rewards

    def _suspect_relative(self, rewards: torch.Tensor) -> None:
        """Warn, once, of a function whose rewards of a whole batch are one and the same.

        It may compare the completions of a call, which are one here.
        """
        same = ((rewards == rewards[:1]) | (rewards.isnan() & rewards[:1].isnan())).all(0)
        if self._suspected or len(rewards) < 2 or not same.any():
            return
        self._suspected = True
        for name, constant in zip(self._names, same.tolist(), strict=True):
            if constant:
                logger.warning(
                    "%s gave all %d completions of a batch the same reward. With "
                    "grading_workers it sees one completion at a time: if it compares "
                    "completions, set grading_workers=0.",
                    name,
                    len(rewards),
                )

    def _grade(self, example: dict, completion, completion_ids: list[int]) -> list[float]:
        columns: dict[str, Any] = {
            name: [value] for name, value in example.items() if name not in NOT_ARGUMENTS
        }
        columns |= {
            "prompts": [example["prompt"]],
            "completions": [completion],
            "completion_ids": [completion_ids],
            "log_extra": _refuse_columns,
            **self._extra(),
        }
        rewards = []
        for name, function in zip(self._names, self._functions, strict=True):
            with note_on_error(f"{name} of {describe_sample(example['prompt'], completion)}"):
                try:
                    (reward,) = self._call(name, function, columns)
                except TimedOut:
                    return [math.nan] * len(self._functions)
                rewards.append(math.nan if reward is None else float(reward))
        return rewards

    def _call(self, name: str, function: Callable, columns: dict[str, Any]) -> Any:
        if self._limit is None:
            return function(**columns)
        return self._limit.call(name, function, columns)
