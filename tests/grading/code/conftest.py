"""Sandboxes and graders, one for each layer of walls that this machine grants; one it has to grant."""

import functools
from typing import NamedTuple

import pytest

from rapid.grading.code.grader import CodeGrader
from rapid.grading.code.sandbox import LAYERS, UNSAFE_LAYER, Sandbox, SandboxError


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
    *(Walls(layer) for layer in LAYERS),
    *(Walls(layer, guarded=False) for layer in LAYERS),
    *(Walls(layer, filtered=False) for layer in LAYERS if layer != "filters"),
]


def walled(walls: Walls) -> Sandbox:
    return Sandbox(256, *walls, unsafe=walls.layer == UNSAFE_LAYER)


@functools.cache
def works(layer: str) -> bool:
    try:
        with walled(Walls(layer)):
            return True
    except SandboxError:
        return False


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once behind each layer that works, or with each of `SETTINGS` if it takes `walls`.

    What is asked of a whole grader is the same in all: behind the weaker ones it is slow.
    """
    names = metafunc.fixturenames
    if "walls" in names:
        first, *weaker = [walls for walls in SETTINGS if works(walls.layer)]
        weaker = [pytest.param(walls, marks=pytest.mark.slow) for walls in weaker]
        metafunc.parametrize("walls", [first, *weaker], scope="session", ids=str)
    elif "layer" in names:
        layers = LAYERS
        if "unfiltered" in names:  # the filters are all that one layer has; without, it is unsafe
            last = [] if "enclosed" in names else [UNSAFE_LAYER]
            layers = [*(layer for layer in LAYERS if layer != "filters"), *last]
        first, *weaker = filter(works, layers)
        marks = [pytest.mark.slow] if "grader" in names else []
        weaker = [pytest.param(layer, marks=marks) for layer in weaker]
        metafunc.parametrize("layer", [first, *weaker], scope="session")


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
