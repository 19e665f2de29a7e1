"""Sandboxes and graders, one for each layer of walls that this machine grants."""

import functools

import pytest

from rapid.grading.code import CodeGrader
from rapid.grading.sandbox import LAYERS, Sandbox, SandboxError
from rapid.records import CodeProblem


@functools.cache
def works(layer: str) -> bool:
    try:
        with Sandbox(layer=layer):
            return True
    except SandboxError:
        return False


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `layer`, `grader` or `sandbox` once behind each layer that works.

    What is asked of a whole grader is the same in all: behind the weaker ones it is slow.
    """
    if "layer" in metafunc.fixturenames:
        layers = LAYERS[:-1] if "enclosed" in metafunc.fixturenames else LAYERS
        first, *others = filter(works, layers)
        marks = [pytest.mark.slow] if "grader" in metafunc.fixturenames else []
        others = [pytest.param(layer, marks=marks) for layer in others]
        metafunc.parametrize("layer", [first, *others], scope="session")


@pytest.fixture
def enclosed():
    """For tests of walls that the last layer, resource limits alone, does not have.

    There a user without rights may also be unable to read Python's library.
    """


@pytest.fixture(scope="session")
def grader(layer):
    with CodeGrader(timeout=1.0, memory_mb=256, layer=layer) as grader:
        yield grader


@pytest.fixture(scope="session")
def sandbox(layer):
    """Without the guard in Python, which would stop most attacks before they reach a wall."""
    with Sandbox(memory_mb=256, layer=layer, guarded=False) as sandbox:
        yield sandbox


@pytest.fixture
def filtered(sandbox):
    """For tests of the kernel's filters."""
    if "Landlock on, seccomp on" not in sandbox.walls():
        pytest.skip("this kernel has no filters")


@pytest.fixture(scope="session")
def unfiltered(layer):
    """Without the kernel's filters too, to meet the walls behind them."""
    with Sandbox(memory_mb=256, layer=layer, guarded=False, filtered=False) as sandbox:
        yield sandbox


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
