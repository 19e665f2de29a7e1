"""One grader for the tests that only ask it about answers."""

import pytest

from rapid.grading.math.grader import MathGrader


@pytest.fixture(scope="package")
def grader():
    with MathGrader(timeout=60.0) as grader:
        yield grader
