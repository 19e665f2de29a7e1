"""`rapid grade`: grade completions that come from outside the pipeline.

All problems and completions are read and checked before the first completion is graded. Verdicts
are printed when all completions are graded, so that the output is never partial. If a problem is
faulty, for example a statement that Lean rejects or an empty answer, its completions get the
verdict `BAD_PROBLEM`. Completions of other problems are graded as usual.
"""

import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Self

from pydantic import ConfigDict, InstanceOf

from rapid.artifacts.files import BadFile, Record, read_numbered_rows
from rapid.benchmarks.base import Benchmark, Problem
from rapid.grading.grader import BadProblem
from rapid.grading.permissions import NO_PERMISSIONS, GradingPermissions
from rapid.grading.verdicts import BAD_PROBLEM, Verdict, build_verdict


class Submission(Record):
    """A completion to grade, and the id of its problem."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    id: str
    # InstanceOf, because pydantic's str rejects text with half a surrogate pair, which JSON allows.
    completion: InstanceOf[str]

    @classmethod
    def from_json(cls, line: bytes) -> Self:
        """Parse a line of JSON.

        Python's parser is used, because pydantic's rejects text with half a surrogate pair.

        Raises:
            ValidationError: the line is not JSON, or not a submission.
        """
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            return cls.model_validate_json(line)  # raises an error that says why
        return cls.model_validate(row)


class GradingResult(NamedTuple):
    """Result of `grade`."""

    verdicts: list[Verdict]  # in the order of the submissions
    bad_problems: dict[str, str]  # by problem id: why the problem cannot be graded


def read_submissions(path: Path, problems: dict[str, Problem]) -> list[Submission]:
    """Read the completions to grade, in order.

    Raises:
        BadFile: a line is not a submission, or its problem is unknown.
    """
    submissions = []
    for number, submission in read_numbered_rows(path, Submission, Submission.from_json):
        if submission.id not in problems:
            raise BadFile(f"{path}:{number}: id: {submission.id!r} is not the id of a problem")
        submissions.append(submission)
    return submissions


def grade(
    benchmark: Benchmark,
    problems: dict[str, Problem],
    submissions: list[Submission],
    *,
    workers: int,
    timeout: float,
    permissions: GradingPermissions = NO_PERMISSIONS,
    progress: Callable[[], None] = lambda: None,
) -> GradingResult:
    """Grade completions with `workers` graders in parallel.

    Args:
        problems: by id.
        timeout: seconds per completion.
        permissions: to grade on a machine that cannot isolate completions.
        progress: called after each completion.

    Raises:
        GradingFailed: graders die too often.
        LeanUnavailable: Lean does not start.
    """
    ids = dict.fromkeys(submission.id for submission in submissions)
    reasons = {id: problems[id].unusable_reason for id in ids}
    bad_problems = {id: f"{id}: {reason}" for id, reason in reasons.items() if reason}
    with (
        benchmark.build_grader(timeout, workers, permissions) as grader,
        ThreadPoolExecutor(workers) as pool,
    ):

        def grade_submission(submission: Submission) -> Verdict:
            try:
                if submission.id in bad_problems:
                    return build_verdict(BAD_PROBLEM)
                return grader.grade(problems[submission.id], submission.completion)
            except BadProblem as error:
                bad_problems[submission.id] = str(error)
                return build_verdict(BAD_PROBLEM)
            finally:
                progress()

        # Prepare each problem, for example by running its reference solution, in the threads that
        # grade. Preparations come first in the queue. While the last of them still run in some
        # threads, the others begin to grade. An error in preparing a problem is raised again when
        # its first completion is graded.
        for id in ids:
            if id not in bad_problems:
                pool.submit(grader.prepare, problems[id])
        verdicts = list(pool.map(grade_submission, submissions))
    return GradingResult(verdicts, {id: bad_problems[id] for id in ids if id in bad_problems})


def report_flaws(problems: dict[str, Problem], submissions: list[Submission]) -> None:
    """Print to stderr the known flaws in the statements of the submissions' problems."""
    for id in dict.fromkeys(submission.id for submission in submissions):
        if flaw := problems[id].flaw:
            print(f"rapid grade: the statement of {id} is flawed: {flaw}", file=sys.stderr)
