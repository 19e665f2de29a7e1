"""A grader that is shared by the tests which only grade answers with it, and problems to grade."""

import pytest

from rapid.benchmarks.math.record import MathProblem
from rapid.grading.math.grader import MathGrader

HALF = MathProblem(unique_id="half", problem="", answer="\\frac{1}{2}")


def make_problem(answer: str) -> MathProblem:
    return MathProblem(unique_id=answer, problem="", answer=answer)


@pytest.fixture(scope="package")
def grader():
    with MathGrader(timeout=60.0) as grader:
        yield grader
