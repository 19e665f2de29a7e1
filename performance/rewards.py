"""Reward functions for measurements: drawn from a hash at a given solve rate, or real verdicts.

The first kind takes no time. A reward function also records the prompts, the numbers of tokens and
the verdicts of the completions that it judges.
"""

import threading
import zlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from rapid.grading.grader import Grader, Problem


class Counted(ABC):
    """A reward function that records the completions that it has judged since `clear`.

    Several threads can call it (`grading_workers`).
    """

    __name__ = "reward"  # TRL uses it in names of metrics
    rate = 0.0  # share of distinct completions that are rewarded, if the class can set it

    def __init__(self):
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget all recorded completions."""
        self.prompts: list[str] = []
        self.lengths: list[int] = []
        self.verdicts: list[float] = []

    def __call__(self, prompts, completions, completion_ids, **columns) -> list[float]:
        """Judge completions, record them, and return their rewards."""
        rewards = self.judge(prompts, completions, **columns)
        with self._lock:
            self.prompts += prompts
            self.lengths += [len(ids) for ids in completion_ids]
            self.verdicts += rewards
        return rewards

    def share_of_rewarded_groups(self, size: int) -> float:
        """Return the share of groups of `size` completions in which one has a reward.

        The completions of a batch may be recorded in any order, but after those of earlier batches.
        So each `size` completions with the same prompt are a group.
        """
        verdicts_by_prompt = defaultdict(list)
        for prompt, verdict in zip(self.prompts, self.verdicts, strict=True):
            verdicts_by_prompt[prompt].append(verdict)
        return fmean(
            any(verdicts[start : start + size])
            for verdicts in verdicts_by_prompt.values()
            for start in range(0, len(verdicts), size)
        )

    @abstractmethod
    def judge(self, prompts: list[str], completions: list[str], **columns) -> list[float]:
        """Return the reward of each completion."""


class SolveRate(Counted):
    """Rewards a given share of completions, by a hash of prompt and completion.

    So both trainers of a comparison get the same reward for the same completion.

    Args:
        rate: share of distinct completions that are rewarded; it can be changed during training.
    """

    def __init__(self, rate: float = 0.0):
        super().__init__()
        self.rate = rate

    def judge(self, prompts, completions, **_):
        return [
            float(zlib.crc32(f"0|{prompt}|{completion}".encode()) < self.rate * 2**32)
            for prompt, completion in zip(prompts, completions, strict=True)
        ]


class Graded(Counted):
    """Rewards by the verdicts of a benchmark's grader.

    Args:
        grader: a grader whose context has been entered.
        problems: in the order of the prompts; the dataset's column `problem` has indices.
    """

    def __init__(self, grader: Grader, problems: Sequence[Problem]):
        super().__init__()
        self._grader, self._problems = grader, problems

    def judge(self, prompts, completions, *, problem, **_):
        return [
            self._grader.grade(self._problems[number], completion).reward
            for number, completion in zip(problem, completions, strict=True)
        ]
