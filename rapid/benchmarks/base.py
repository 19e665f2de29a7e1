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
    """A problem. Made and published problems have the same fields, the published ones."""

    model_config = ConfigDict(ser_json_inf_nan="constants")  # MBPP+ has an infinite input

    id_field: ClassVar[str]  # the field with the id

    @property
    def id(self) -> str:
        return getattr(self, self.id_field)

    @property
    @abstractmethod
    def content(self) -> str:
        """Return the content that identifies a problem, without its id."""

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the problem, its id included."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @property
    def normalized_content(self) -> str:
        """Return the content without spaces and letter case, to find duplicates."""
        return "".join(self.content.split()).casefold()

    @property
    def unusable_reason(self) -> str:
        """Return why completions of this problem cannot be graded; "" if they can."""
        return ""


class Exercise(NamedTuple):
    """A made problem, a correct completion, and completions with one mistake each."""

    problem: Problem
    correct: str
    mistakes: tuple[str, ...]


class Benchmark:
    """Base class of a benchmark. The registry has an instance of each subclass.

    Its prompt is `prompt.txt.j2` in the same folder. The template's variables are the fields of the
    record, and `chat`. An optional `pretrain.txt.j2` is the prompt of pre-training; with it,
    `prompt.txt.j2` can be changed without training the made models again.
    """

    name: ClassVar[str]  # in params.yaml and in the folders of runs
    label: ClassVar[str]  # in reports
    record: ClassVar[type[Problem]]
    graded: ClassVar[str] = "answers"  # what is graded, in the plural
    usual_timeout: ClassVar[float]  # seconds per verdict, for published problems
    verdict_seconds: ClassVar[float]  # expected, for a published problem, if none was measured
    hub: ClassVar[tuple[str, str] | None] = None  # the dataset and its commit
    walls: ClassVar[frozenset[str]] = frozenset()  # the walls around its grader: keys of `Grading`
    # Ids of problems whose tests accept a program that ignores its task, and such programs.
    weak: ClassVar[dict[str, str]] = {}
    # Draws a problem with this id; None if the benchmark has no made problems.
    draw: ClassVar[Callable[[Random, str], Exercise] | None] = None

    @property
    def lesson_template(self) -> str:
        """Return the file name of the prompt for pre-training."""
        template = Path(__file__).parent / self.name / LESSON
        return LESSON if template.is_file() else PROMPT

    def from_hub(self, row: dict) -> dict:
        """Convert a row of the hub's dataset to fields of the record.

        Raises:
            ValueError: the row has an unexpected form; the message says what is missing.
        """
        return row

    def grader(self, timeout: float, workers: int = 1, policy: Grading = STRICT) -> SteadyGrader:
        """Build a grader of raw completions, which is used as a context manager.

        Args:
            timeout: seconds of wall-clock time for a verdict.
            workers: verdicts at a time, if as many threads ask for them.
            policy: the walls that may be missing; by default none.
        """
        raise NotImplementedError

    def rehearse(self, grader: SteadyGrader, problems: list[Problem]) -> None:
        """Warm up a grader, so that its first verdicts in training do not wait for its start.

        Args:
            problems: the problems to grade, at least one.
        """
        grader.grade(problems[0], "")
        grader.reasons.clear()

    def lend(self) -> Callable[[bool], None] | None:
        """Lend processes of graders to the job that the fork server forks next.

        Returns:
            A function to call when that job has ended, with whether it succeeded. None if a grader
            starts quickly, and nothing is lent.
        """
        return None

    def unavailable(self) -> str | None:
        """Return why completions cannot be graded on this machine; None if they can."""
        return None

    def known_bugs(self) -> str:
        """Return the known bugs of the grader on this machine; "" if there are none."""
        return ""

    def try_hub(self, policy: Grading) -> None:
        """Start the grader as the hub's problems need it, to check that it works.

        Raises:
            LeanUnavailable: it does not start.
        """
