"""Fixtures: a sandbox and a grader for each layer of walls that works here. One has to work."""

import functools
from typing import NamedTuple

import pytest

from rapid.grading.code.grader import CodeGrader
from rapid.grading.code.sandbox import LAYERS, UNSAFE_LAYER, Sandbox, SandboxError


class Walls(NamedTuple):
    """The walls around a completion: a layer, with the guard or the filters before it switched off."""

    layer: str
    guarded: bool = True
    filtered: bool = True

    @property
    def is_complete(self) -> bool:
        return self.guarded and self.filtered

    def __str__(self) -> str:
        return self.layer + "-unguarded" * (not self.guarded) + "-unfiltered" * (not self.filtered)


SETTINGS = [
    *(Walls(layer) for layer in LAYERS),
    *(Walls(layer, guarded=False) for layer in LAYERS),
    *(Walls(layer, filtered=False) for layer in LAYERS if layer != "filters"),
]


def open_sandbox(walls: Walls) -> Sandbox:
    return Sandbox(256, *walls, unsafe=walls.layer == UNSAFE_LAYER)


@functools.cache
def layer_works(layer: str) -> bool:
    try:
        with open_sandbox(Walls(layer)):
            return True
    except SandboxError:
        return False


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once behind each layer that works, or with each of `SETTINGS` if it takes `walls`.

    Tests of a whole grader are alike behind all layers, so they are slow tests behind the weaker ones.
    """
    names = metafunc.fixturenames
    if "walls" in names:
        first, *weaker = [walls for walls in SETTINGS if layer_works(walls.layer)]
        weaker = [pytest.param(walls, marks=pytest.mark.slow) for walls in weaker]
        metafunc.parametrize("walls", [first, *weaker], scope="session", ids=str)
    elif "layer" in names:
        layers = LAYERS
        if "unfiltered_sandbox" in names:  # without filters, the layer of filters is an unsafe one
            unsafe_layers = [] if "excludes_unsafe_layer" in names else [UNSAFE_LAYER]
            layers = [*(layer for layer in LAYERS if layer != "filters"), *unsafe_layers]
        first, *weaker = filter(layer_works, layers)
        marks = [pytest.mark.slow] if "grader" in names else []
        weaker = [pytest.param(layer, marks=marks) for layer in weaker]
        metafunc.parametrize("layer", [first, *weaker], scope="session")


@pytest.fixture
def excludes_unsafe_layer():
    """Leave the unsafe layer, which has resource limits alone, out of a test without filters."""


@pytest.fixture(scope="session")
def grader(layer):
    with CodeGrader(timeout=1.0, memory_mb=256, layer=layer) as grader:
        yield grader


@pytest.fixture(scope="session")
def attacked_grader(walls):
    """A grader with all walls around completions, or with one of them switched off."""
    grader = CodeGrader(timeout=1.0)
    grader._sandbox = Sandbox(256, *walls)
    with grader:
        yield grader


@pytest.fixture(scope="session")
def sandbox(layer):
    """A sandbox without the guard in Python, which would stop most attacks before they reach a wall."""
    with open_sandbox(Walls(layer, guarded=False)) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def unfiltered_sandbox(layer):
    """A sandbox without the guard and without the kernel's filters, to test the walls behind them."""
    with open_sandbox(Walls(layer, guarded=False, filtered=False)) as sandbox:
        yield sandbox
