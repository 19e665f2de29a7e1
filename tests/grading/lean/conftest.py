"""A Lean checker that is shared by the tests which only check proofs with it."""

import pytest

from rapid.grading.lean import LeanChecker


@pytest.fixture(scope="package")
def lean():
    with LeanChecker(timeout=60) as checker:
        checker.wait_ready()
        yield checker
