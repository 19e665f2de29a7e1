"""Fixtures: a sandbox and a grader for each layer that works here. At least one has to work.

`rapid.grading.code.sandbox` describes the layers, the guard and the filters.
"""

import functools
from typing import NamedTuple

import pytest

from rapid.grading.code.grader import CodeGrader
from rapid.grading.code.sandbox import LAYERS, UNSAFE_LAYER, Sandbox, SandboxError


class Isolation(NamedTuple):
    """A layer of the sandbox, with or without the guard and the filters in front of it."""

    layer: str
    guarded: bool = True
    filtered: bool = True

    @property
    def is_complete(self) -> bool:
        return self.guarded and self.filtered

    def __str__(self) -> str:
        return self.layer + "-unguarded" * (not self.guarded) + "-unfiltered" * (not self.filtered)


SETTINGS = [
    *(Isolation(layer) for layer in LAYERS),
    *(Isolation(layer, guarded=False) for layer in LAYERS),
    *(Isolation(layer, filtered=False) for layer in LAYERS if layer != "filters"),
]


def open_sandbox(isolation: Isolation) -> Sandbox:
    return Sandbox(256, *isolation, unsafe=isolation.layer == UNSAFE_LAYER)


@functools.cache
def layer_works(layer: str) -> bool:
    try:
        with open_sandbox(Isolation(layer)):
            return True
    except SandboxError:
        return False


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each layer that works, or for each of `SETTINGS` if it takes `isolation`.

    Tests of a whole grader are alike in all layers, so they are slow tests in the weaker layers.
    """
    names = metafunc.fixturenames
    if "isolation" in names:
        first, *weaker = [isolation for isolation in SETTINGS if layer_works(isolation.layer)]
        weaker = [pytest.param(isolation, marks=pytest.mark.slow) for isolation in weaker]
        metafunc.parametrize("isolation", [first, *weaker], scope="session", ids=str)
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
    with CodeGrader(1.0, Sandbox(256, layer)) as grader:
        yield grader


@pytest.fixture(scope="session")
def attacked_grader(isolation):
    """A grader whose sandbox has all isolation, or lacks the guard or the filters."""
    with CodeGrader(1.0, Sandbox(256, *isolation)) as grader:
        yield grader


@pytest.fixture(scope="session")
def sandbox(layer):
    """A sandbox without the guard in Python, which would stop most attacks."""
    with open_sandbox(Isolation(layer, guarded=False)) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def unfiltered_sandbox(layer):
    """A sandbox without the guard and without the kernel's filters, to test the rest of the isolation."""
    with open_sandbox(Isolation(layer, guarded=False, filtered=False)) as sandbox:
        yield sandbox
