"""Fixtures that the tests of several graders share."""

import shutil
import signal

import pytest

from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.grading.code import sandbox
from rapid.grading.math import grader as math_grader
from rapid.grading.memory_cgroups import LimitedCommand, limit_memory


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


@pytest.fixture
def ignored_sigchld(monkeypatch):
    """This process ignores SIGCHLD, and the processes of graders inherit that.

    bash starts them in place of /bin/sh, because dash does not pass it on.
    """
    if (bash := shutil.which("bash")) is None:
        pytest.skip("bash is not installed")

    def limit(*arguments, **options):
        command = limit_memory(*arguments, **options)
        return LimitedCommand(bash if word == "/bin/sh" else word for word in command)

    for module in (sandbox, math_grader):
        monkeypatch.setattr(module, "limit_memory", limit)
    earlier_handler = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, earlier_handler)
