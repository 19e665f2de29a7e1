"""Fixtures that the tests of several graders share."""

import pytest

from rapid.benchmarks.mbpp_plus.record import CodeProblem


@pytest.fixture
def double() -> CodeProblem:
    """A small problem: f(x) = 2 x."""
    return CodeProblem(
        task_id="double",
        prompt="Double a number.",
        entry_point="f",
        canonical_solution="def f(x):\n    return 2 * x\n",
        base_input=[[1], [2]],
        plus_input=[[-7], [10**30]],
    )
