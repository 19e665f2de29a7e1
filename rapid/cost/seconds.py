"""The seconds of a job by phase, and what turns counted work into them."""

from dataclasses import dataclass, fields
from typing import Protocol

from rapid.cost.work import Work


@dataclass(frozen=True)
class Seconds:
    """Wall-clock seconds; `startup` comes before the phases that runtimes are made of."""

    sampling: float = 0.0
    grading: float = 0.0
    backpropagation: float = 0.0
    sync: float = 0.0
    other: float = 0.0
    startup: float = 0.0

    @property
    def runtime(self) -> float:
        """As in summary.json: without start-up."""
        return self.total - self.startup

    @property
    def total(self) -> float:
        return sum(getattr(self, one.name) for one in fields(self))


class Machine(Protocol):
    """What jobs run on: a GPU by its published rates, or a machine by what ran on it."""

    def seconds(self, work: Work) -> Seconds:
        """Of one job, in wall-clock time."""

    def notes(self) -> list[str]:
        """What a reader should know of these rates, a sentence each."""


def grading_seconds(work: Work, verdict: float, sampling: float) -> float:
    """What grading adds to sampling: a job with several cores grades while it samples.

    Args:
        verdict: seconds of one.
    """
    all_of_them = verdict * work.graded
    streamed = work.graders > 1 and work.sampler == "transformers"
    return max(0.0, all_of_them - sampling) if streamed else all_of_them
