"""Sandboxes and graders, one for each layer of walls.

Bubblewrap may not be installed. The walls of the kernel have to stand: where one does not, each
test behind it ends with the SandboxError.
"""

import shutil
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from rapid.grading.code.grader import CodeGrader
from rapid.grading.code.sandbox import LAYERS, UNSAFE_LAYER, Sandbox

HERE = [layer for layer in LAYERS if layer != "bwrap" or shutil.which("bwrap")]


class Walls(NamedTuple):
    """What stands around a completion: a layer, with one of what stands before it switched off."""

    layer: str
    guarded: bool = True
    filtered: bool = True

    @property
    def whole(self) -> bool:
        return self.guarded and self.filtered

    def __str__(self) -> str:
        return self.layer + "-unguarded" * (not self.guarded) + "-unfiltered" * (not self.filtered)


SETTINGS = [
    *(Walls(layer) for layer in HERE),
    *(Walls(layer, guarded=False) for layer in HERE),
    *(Walls(layer, filtered=False) for layer in HERE if layer != "filters"),
]


@contextmanager
def walled(walls: Walls, memory_mb: int = 256):
    unsafe = walls.layer == UNSAFE_LAYER
    with Sandbox(memory_mb, *walls, unsafe=unsafe) as sandbox:
        yield sandbox


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once behind each layer, or with each of `SETTINGS` if it takes `walls`.

    What is asked of a whole grader is the same in all: behind the weaker ones it is slow.
    """
    names = metafunc.fixturenames
    if "walls" in names:
        first, *others = SETTINGS
        others = [pytest.param(walls, marks=pytest.mark.slow) for walls in others]
        metafunc.parametrize("walls", [first, *others], scope="session", ids=str)
    elif "layer" in names:
        first, *others = HERE
        if "unfiltered" in names:  # the filters are all that one layer has; without, it is unsafe
            others = [layer for layer in others if layer != "filters"]
            others += [] if "enclosed" in names else [UNSAFE_LAYER]
        marks = [pytest.mark.slow] if "grader" in names else []
        others = [pytest.param(layer, marks=marks) for layer in others]
        metafunc.parametrize("layer", [first, *others], scope="session")


@pytest.fixture
def enclosed():
    """For tests of walls that are there without the filters: not behind limits alone."""


@pytest.fixture(scope="session")
def grader(layer):
    with CodeGrader(timeout=1.0, memory_mb=256, layer=layer) as grader:
        yield grader


@pytest.fixture(scope="session")
def attacked(walls):
    """A grader with one of the walls around completions switched off, or none."""
    grader = CodeGrader(timeout=1.0)
    grader._sandbox = Sandbox(256, *walls)
    with grader:
        yield grader


@pytest.fixture(scope="session")
def sandbox(layer):
    """Without the guard in Python, which would stop most attacks before they reach a wall."""
    with walled(Walls(layer, guarded=False)) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def unfiltered(layer):
    """Without the kernel's filters too, to meet the walls behind them."""
    with walled(Walls(layer, guarded=False, filtered=False)) as sandbox:
        yield sandbox
