"""Grading from outside the pipeline: `rapid grade`.

All problems and completions are read and checked before the first completion is graded. Verdicts
are printed when all of them are there, so that partial output is never taken for all of it. A
problem at fault, such as a statement that Lean refuses, costs only the verdicts on its own
completions.
"""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Self

from pydantic import ConfigDict, InstanceOf

from rapid.artifacts.files import BadFile, Record, read_numbered_rows
from rapid.benchmarks.base import Benchmark, Problem
from rapid.grading.grader import BadProblem
from rapid.grading.policy import STRICT, Grading
from rapid.grading.verdicts import BAD_PROBLEM, Verdict, verdict


class Submission(Record):
    """A completion to grade, and the id of its problem."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    id: str
    completion: InstanceOf[str]  # half a surrogate pair included, which pydantic's str is not

    @classmethod
    def from_json(cls, line: bytes) -> Self:
        """Read a line; only the names and types of its fields are checked.

        Raises:
            ValidationError: it is not a submission.
        """
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return cls.model_validate_json(line)  # says what is wrong with it
        return cls.model_validate(row)


class Graded(NamedTuple):
    """Verdicts of completions, in order, and why problems among theirs cannot be graded, by id."""

    verdicts: list[Verdict]
    bad_problems: dict[str, str]


def read_submissions(path: Path, problems: dict[str, Problem]) -> list[Submission]:
    """Return completions to grade, in order.

    Raises:
        BadFile: a line is not one, or its problem is unknown.
    """
    submissions = []
    for number, submission in read_numbered_rows(path, Submission, Submission.from_json):
        if submission.id not in problems:
            raise BadFile(f"{path}:{number}: id: {submission.id!r} is not the id of a problem")
        submissions.append(submission)
    return submissions


def grade(
    task: Benchmark,
    problems: dict[str, Problem],
    submissions: list[Submission],
    *,
    workers: int,
    timeout: float,
    policy: Grading = STRICT,
    progress: Callable[[], None] = lambda: None,
) -> Graded:
    """Grade completions by `workers` graders side by side.

    Raises:
        GradingFailed: graders die too often.
        LeanUnavailable: Lean does not start.
    """
    bad_problems: dict[str, str] = {}
    with task.grader(timeout, workers, policy) as grader, ThreadPoolExecutor(workers) as pool:

        def grade_one(submission: Submission) -> Verdict:
            try:
                if submission.id in bad_problems:
                    return verdict(BAD_PROBLEM)
                return grader.grade(problems[submission.id], submission.completion)
            except BadProblem as error:
                bad_problems[submission.id] = str(error)
                return verdict(BAD_PROBLEM)
            finally:
                progress()

        # Problems are prepared first, and nothing waits for them: a slow reference solution then
        # runs beside the completions of other problems. Errors surface when a completion is graded.
        ids = dict.fromkeys(submission.id for submission in submissions)
        for id in ids:
            pool.submit(grader.prepare, problems[id])
        graded = list(pool.map(grade_one, submissions))
    return Graded(graded, {id: bad_problems[id] for id in ids if id in bad_problems})
