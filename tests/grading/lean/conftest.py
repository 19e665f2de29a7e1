"""One Lean for the tests that only ask it about proofs."""

import pytest

from rapid.grading.lean import LeanChecker


@pytest.fixture(scope="package")
def lean():
    with LeanChecker(timeout=60) as checker:
        checker.wait_ready()
        yield checker
