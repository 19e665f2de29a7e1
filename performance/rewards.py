"""Reward functions for measurements: `SolveRateReward` simulates a grader, `GraderReward` uses one.

They record the prompts, lengths and rewards of the completions. The simulated grader takes almost
no time.
"""

import threading
import zlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from rapid.grading.grader import Grader, Problem


class RecordingReward(ABC):
    """A reward function that records what it has graded since the last call of `clear`.

    Several threads can call it (`grading_workers`).
    """

    __name__ = "reward"  # appears in the names of TRL's metrics
    # Only `SolveRateReward` uses it. All classes have it, so that a loop may set it on any of them.
    solve_rate = 0.0

    def __init__(self):
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forget all recorded completions."""
        self.prompts: list[str] = []
        self.lengths: list[int] = []  # numbers of tokens
        self.rewards: list[float] = []

    def __call__(self, prompts, completions, completion_ids, **columns) -> list[float]:
        """Return the reward of each completion, and record them."""
        rewards = self.compute_rewards(prompts, completions, **columns)
        with self._lock:
            self.prompts += prompts
            self.lengths += [len(ids) for ids in completion_ids]
            self.rewards += rewards
        return rewards

    def compute_rewarded_group_share(self, size: int) -> float:
        """Return the share of groups of `size` completions in which one has a reward.

        The completions of a batch may be recorded in any order, but after those of earlier batches.
        So every `size` successive completions with the same prompt are a group.
        """
        rewards_by_prompt = defaultdict(list)
        for prompt, reward in zip(self.prompts, self.rewards, strict=True):
            rewards_by_prompt[prompt].append(reward)
        return fmean(
            any(rewards[start : start + size])
            for rewards in rewards_by_prompt.values()
            for start in range(0, len(rewards), size)
        )

    @abstractmethod
    def compute_rewards(self, prompts: list[str], completions: list[str], **columns) -> list[float]:
        """Return the reward of each completion."""


class SolveRateReward(RecordingReward):
    """Rewards a share of completions, which a hash of prompt and completion selects.

    So all trainers of a comparison get the same reward for the same completion.

    Args:
        solve_rate: share of distinct completions to reward; it can be changed during training.
    """

    def __init__(self, solve_rate: float = 0.0):
        super().__init__()
        self.solve_rate = solve_rate

    def compute_rewards(self, prompts, completions, **_):
        # The 0 is a seed: with another number, other completions would be rewarded.
        return [
            float(zlib.crc32(f"0|{prompt}|{completion}".encode()) < self.solve_rate * 2**32)
            for prompt, completion in zip(prompts, completions, strict=True)
        ]


class GraderReward(RecordingReward):
    """Rewards the completions that a benchmark's grader accepts.

    Args:
        grader: a grader whose context has been entered.
        problems: the problems to which the indices in the dataset's column `problem` refer.
    """

    def __init__(self, grader: Grader, problems: Sequence[Problem]):
        super().__init__()
        self._grader, self._problems = grader, problems

    def compute_rewards(self, prompts, completions, *, problem, **_):
        return [
            self._grader.grade(self._problems[index], completion).reward
            for index, completion in zip(problem, completions, strict=True)
        ]
