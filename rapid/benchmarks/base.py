"""Base class of the benchmarks. Each folder beside this file has a subclass."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from random import Random
from typing import ClassVar, NamedTuple

from pydantic import ConfigDict

from rapid.artifacts.files import Record
from rapid.grading.policy import STRICT, Grading
from rapid.grading.pool import SteadyGrader

PROMPT, LESSON = "prompt.txt.j2", "pretrain.txt.j2"


class Problem(Record, ABC):
    """A problem. Its fields are the published ones, so that made and real problems are alike."""

    model_config = ConfigDict(ser_json_inf_nan="constants")  # MBPP+ has an infinite input

    id_field: ClassVar[str]  # the field that tells problems apart

    @property
    def id(self) -> str:
        return getattr(self, self.id_field)

    @property
    @abstractmethod
    def content(self) -> str:
        """Return what makes two problems the same, whatever their ids."""

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the problem, its id included."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @property
    def normalized_content(self) -> str:
        """Return the content without spaces and letter case: equal for the same problem."""
        return "".join(self.content.split()).casefold()

    @property
    def unusable_reason(self) -> str:
        """Return why no completion of this problem could be graded; "" where it could."""
        return ""


class Exercise(NamedTuple):
    """A made problem, a completion that solves it, and completions with one mistake each."""

    problem: Problem
    correct: str
    mistakes: tuple[str, ...]


class Benchmark:
    """Base class of a benchmark. The registry has an instance of each subclass.

    Its prompt is `prompt.txt.j2` in the same folder. The template's variables are the fields of the
    record, and `chat`. `pretrain.txt.j2` beside it, if there is one, is the prompt that the made
    models are pre-trained on, so that `prompt.txt.j2` can be changed without training them again.
    """

    name: ClassVar[str]  # in params.yaml and in the folders of runs
    label: ClassVar[str]  # in reports
    record: ClassVar[type[Problem]]
    graded: ClassVar[str] = "answers"  # what is graded, in the plural
    usual_timeout: ClassVar[float]  # seconds a verdict may take, for real problems
    verdict_seconds: ClassVar[float]  # of a verdict on a real problem, where none was measured
    hub: ClassVar[tuple[str, str] | None] = None  # the dataset and its commit
    walls: ClassVar[frozenset[str]] = frozenset()  # that its grader has: keys of `Grading`
    # Problems whose tests accept a program that ignores its task, and what they accept.
    weak: ClassVar[dict[str, str]] = {}
    # Draws a problem with this id; None where the benchmark has no made problems.
    draw: ClassVar[Callable[[Random, str], Exercise] | None] = None

    @property
    def lesson_template(self) -> str:
        """Return the file name of the prompt that made models are trained with."""
        template = Path(__file__).parent / self.name / LESSON
        return LESSON if template.is_file() else PROMPT

    def from_hub(self, row: dict) -> dict:
        """Return the fields of the record, of a row of the hub's dataset.

        Raises:
            ValueError: the row has another form than expected; the message says what is missing.
        """
        return row

    def grader(self, timeout: float, workers: int = 1, policy: Grading = STRICT) -> SteadyGrader:
        """Return a grader of raw completions, to be used as a context manager.

        Args:
            timeout: seconds of wall-clock time that a verdict may take.
            workers: verdicts that can be made at a time, if as many threads ask for them.
            policy: which walls may be missing; by default none.
        """
        raise NotImplementedError

    def rehearse(self, grader: SteadyGrader, problems: list[Problem]) -> None:
        """Warm up a grader, so that its first verdicts in training do not wait for its start.

        Args:
            problems: those to be graded, at least one.
        """
        grader.grade(problems[0], "")
        grader.reasons.clear()

    def lend(self) -> Callable[[bool], None] | None:
        """Lend processes of graders to the job that the warm process forks next.

        Returns:
            A function to call when that job has ended, with whether it ended well. None where a
            grader starts quickly, and nothing is lent.
        """
        return None

    def unavailable(self) -> str | None:
        """Return why completions cannot be graded on this machine, or None where they can."""
        return None

    def known_bugs(self) -> str:
        """Return the known bugs of the grader on this machine; "" if there are none."""
        return ""

    def try_hub(self, policy: Grading) -> None:
        """Start the grader as the hub's problems need it, where made ones need less.

        Raises:
            LeanUnavailable: it does not start.
        """
