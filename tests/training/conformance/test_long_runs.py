"""Memory grows neither with steps nor with the rows of a dataset."""

import json

import pytest

from tests.subprocesses import python

STEPS = 1000
KILOBYTES = 2  # a step: rows of 20 kB that are kept take 40, a log of every step would take 2


@pytest.mark.slow
def test_memory_does_not_grow_with_steps_or_rows(toy_model):
    done = python("-m", "tests.training.conformance.long_run", toy_model, STEPS)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"step"')]
    warm, *_, last = lines[2:]  # allocators fill their pools first
    assert last["step"] == STEPS
    assert last["kilobytes"] - warm["kilobytes"] < KILOBYTES * (last["step"] - warm["step"])
