"""Cores are leased to one process at a time."""

import subprocess
import sys
import time

import pytest

from rapid.lease import lease_cores, usable_cores

HOLD = """
import os, sys, time
from pathlib import Path
from rapid.lease import lease_cores
cores = lease_cores({count}, Path({folder!r}))
print(*cores, os.environ["OMP_NUM_THREADS"], *sorted(os.sched_getaffinity(0)), flush=True)
time.sleep({seconds})
"""


def start(folder, count=1, seconds=60.0):
    code = HOLD.format(count=count, folder=str(folder), seconds=seconds)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_a_job_is_bound_to_cores_that_no_other_job_has(tmp_path):
    jobs = [start(tmp_path) for _ in usable_cores()]
    try:
        lines = [job.stdout.readline().split() for job in jobs]
        assert sorted(int(line[0]) for line in lines) == usable_cores()
        for core, threads, *affinity in lines:
            assert threads == "1"
            assert affinity == [core]
    finally:
        for job in jobs:
            job.kill()
            job.wait()


def test_a_job_waits_until_a_core_is_free_and_a_killed_holder_frees_it(tmp_path):
    holders = [start(tmp_path) for _ in usable_cores()]
    taken = [holder.stdout.readline().split()[0] for holder in holders]
    late = start(tmp_path, seconds=0)
    try:
        time.sleep(1.0)
        assert late.poll() is None
        holders[0].kill()
        assert late.stdout.readline().split()[0] == taken[0]
    finally:
        for job in [*holders, late]:
            job.kill()
            job.wait()


def test_more_cores_than_the_machine_has_are_refused(tmp_path):
    with pytest.raises(ValueError, match="threads: 1000 is not allowed; allowed: at most"):
        lease_cores(1000, tmp_path)
