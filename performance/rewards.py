"""Rewards for measurements: of a set solve rate at no cost, or real ones.

A reward also counts the completions that it judges: their prompts, tokens and verdicts.
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence

from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.grading.grader import Grader

TIMEOUT = 2.0  # seconds for a verdict, as params.yaml has it for MBPP+


class Counted(ABC):
    """A reward function that counts what it has judged since `clear`."""

    __name__ = "reward"  # TRL names metrics after it
    rate = 0.0  # the share of different completions that is rewarded, if that can be set

    def __init__(self):
        self.clear()

    def clear(self) -> None:
        """Forget what was judged."""
        self.prompts: list[str] = []
        self.lengths: list[int] = []
        self.verdicts: list[float] = []

    def __call__(self, prompts, completions, completion_ids, **columns) -> list[float]:
        """Return the rewards, and count."""
        rewards = self.judge(prompts, completions, **columns)
        self.prompts += prompts
        self.lengths += [len(ids) for ids in completion_ids]
        self.verdicts += rewards
        return rewards

    @abstractmethod
    def judge(self, prompts: list[str], completions: list[str], **columns) -> list[float]:
        """Return the rewards."""


class SolveRate(Counted):
    """Rewards with a set probability; prompt and completion decide, so both sides get the same.

    Args:
        rate: the share of different completions that is rewarded; can be changed while it runs.
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
    """The real verdicts of a benchmark's grader.

    Args:
        grader: entered already; its processes start with a first verdict, here and now.
    """

    def __init__(self, grader: Grader, problems: Sequence[CodeProblem]):
        super().__init__()
        self._grader, self._problems = grader, problems
        grader.grade(problems[0], "")

    def judge(self, prompts, completions, *, problem, **_):
        return [
            self._grader.grade(self._problems[number], completion).reward
            for number, completion in zip(problem, completions, strict=True)
        ]
