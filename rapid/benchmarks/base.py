"""Base class of the benchmarks. Each folder next to this file has a subclass."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from random import Random
from typing import ClassVar, NamedTuple

from pydantic import ConfigDict, Field

from rapid.artifacts.files import Record
from rapid.grading.permissions import NO_PERMISSIONS, GradingPermissions
from rapid.grading.pool import GraderPool

# Templates in a benchmark's folder: the prompt, and optionally a different one for pre-training.
PROMPT, PRETRAIN_PROMPT = "prompt.txt.j2", "pretrain.txt.j2"


class Problem(Record, ABC):
    """A problem of a benchmark, with the fields of the published dataset.

    Problems that are generated from a seed have the same fields: see `rapid.benchmarks.made`.
    """

    # Some inputs of MBPP+ are infinite. By default pydantic would write them as null.
    model_config = ConfigDict(ser_json_inf_nan="constants")

    id_field: ClassVar[str]  # the field with the id

    # Whether the published text was rewritten when it was read. It is not written to files.
    is_rewritten: bool = Field(False, exclude=True)

    @property
    def id(self) -> str:
        return getattr(self, self.id_field)

    @property
    @abstractmethod
    def content(self) -> str:
        """Return the task's text without the id. Problems with the same content are duplicates."""

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of all fields, the id included."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()

    @property
    def normalized_content(self) -> str:
        """Return the content without spaces and in lower case, to find near duplicates."""
        return "".join(self.content.split()).casefold()

    @property
    def unusable_reason(self) -> str:
        """Return why completions of this problem cannot be graded; "" if they can."""
        return ""

    @property
    def flaw(self) -> str:
        """Return what is known to be wrong with the published problem; "" if nothing is."""
        return ""


class Exercise(NamedTuple):
    """A generated problem, a correct completion, and completions with one mistake each."""

    problem: Problem
    correct: str
    mistakes: tuple[str, ...]


class Benchmark:
    """Base class of the benchmarks. The registry has an instance of each subclass.

    A benchmark's prompt is the template `prompt.txt.j2` in its folder. The template's variables are
    the fields of the problem, and `chat` (whether the policy is a chat model).

    An optional `pretrain.txt.j2` is the prompt with which the pipeline pre-trains small models. If
    it exists, a change of `prompt.txt.j2` does not require pre-training those models again.
    """

    name: ClassVar[str]  # in params.yaml and in the folders of runs
    label: ClassVar[str]  # in reports
    record: ClassVar[type[Problem]]  # the class of the benchmark's problems
    completion_noun: ClassVar[str] = "answers"  # for messages, in the plural
    default_timeout: ClassVar[float]  # seconds for a verdict on a published problem
    # Seconds that a verdict on a published problem is expected to take, if none was measured.
    verdict_seconds: ClassVar[float]
    hub: ClassVar[tuple[str, str] | None] = None  # dataset on the Hugging Face hub, and its commit
    # The settings in `GradingPermissions` that allow this grader to run without a sandbox.
    unsafe_settings: ClassVar[frozenset[str]] = frozenset()
    # Problems whose tests accept a program that ignores the task. They are left out of training.
    # The values say what the accepted programs return, by the problem's id.
    weak_problems: ClassVar[dict[str, str]] = {}
    # A function that draws an exercise from a random generator; its problem has the given id. None
    # if the benchmark has published problems only.
    draw: ClassVar[Callable[[Random, str], Exercise] | None] = None

    @property
    def pretrain_template(self) -> str:
        """Return the file name of the prompt template for pre-training."""
        template = Path(__file__).parent / self.name / PRETRAIN_PROMPT
        return PRETRAIN_PROMPT if template.is_file() else PROMPT

    def from_hub(self, row: dict) -> dict:
        """Convert a row of the hub's dataset to the fields of a problem (of the class `record`).

        Raises:
            ValueError: the row has an unexpected form; the message says what is missing.
        """
        return row

    def build_grader(
        self, timeout: float, workers: int = 1, permissions: GradingPermissions = NO_PERMISSIONS
    ) -> GraderPool:
        """Build a pool of graders of completions, which is used as a context manager.

        Args:
            timeout: seconds of wall-clock time for a verdict.
            workers: number of graders. So many threads can get verdicts at the same time.
            permissions: which graders may run without a sandbox; by default none.
        """
        raise NotImplementedError

    def warm_up(self, grader: GraderPool, problems: list[Problem]) -> None:
        """Warm up graders, so that their first verdicts in training do not wait for their start.

        By default one grader grades an empty completion.

        Args:
            problems: problems of the training run, at least one.
        """
        grader.grade(problems[0], "")
        grader.reasons.clear()  # the counts of verdicts by reason must not include this one

    def lend(self) -> Callable[[bool], None] | None:
        """Lend grader processes to the job that the fork server forks next.

        See `rapid.grading.standby`.

        Returns:
            A function to call when that job has ended, with whether it succeeded. None if nothing
            is lent, because the grader starts quickly.
        """
        return None

    def explain_unavailable(self) -> str | None:
        """Return why completions cannot be graded on this machine; None if they can."""
        return None

    def describe_known_bugs(self) -> str:
        """Return the known bugs of the grader on this machine; "" if there are none."""
        return ""

    def check_published_grader(self, source: str, permissions: GradingPermissions) -> None:
        """Start the grader as the problems of a source need it, to check that it works.

        By default nothing is checked.

        Args:
            source: "hub", or the path of a file or folder. One that cannot be read is ignored.

        Raises:
            LeanUnavailable: the grader does not start.
        """
