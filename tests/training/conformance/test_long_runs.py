"""The memory of a long run grows neither with steps nor with the rows of a dataset."""

import json

import pytest

from tests.subprocesses import python

STEPS = 1000
KILOBYTES = 2  # per step; keeping rows of 20 kB would take 40, a log of every step 2


@pytest.mark.slow
def test_memory_does_not_grow_with_steps_or_rows(toy_model):
    process = python("-m", "tests.training.conformance.long_run", toy_model, STEPS)
    lines = [json.loads(line) for line in process.stdout.splitlines() if line.startswith('{"step"')]
    first, *_, last = lines[2:]  # the first lines are skipped: allocators still fill their pools
    assert last["step"] == STEPS
    assert last["kilobytes"] - first["kilobytes"] < KILOBYTES * (last["step"] - first["step"])
