"""Chooses how a job's threads wait for each other, by what else runs on the job's cores.

Torch splits each operation among its threads, which then wait for the slowest of them. By default
(GNU OpenMP) a thread first waits in a loop, which is the fastest way on free cores. If another
process uses the cores, the loop takes up the time that the slowest thread needs, and a step takes
several times as long as with threads that sleep while they wait. On free cores sleeping threads are
slower. Part (i) of `performance.bench` measures both.
"""

import os
import sys

import psutil

WAIT_POLICY = "OMP_WAIT_POLICY"  # how threads wait: "passive" threads sleep
SPIN_COUNT = "GOMP_SPINCOUNT"  # how long they wait in a loop before they sleep
# Cores are observed this many times, or until none is busy: other jobs that start at the same time
# use any core until they have leased theirs, which takes a second or two.
OBSERVATIONS = 20
OBSERVATION_SECONDS = 0.5
BUSY_SHARE = 0.5  # a core is busy if other processes use it for more than this share of the time


def choose_thread_wait_policy(cores: list[int], threads: int) -> None:
    """Set OMP_WAIT_POLICY to "passive" if other processes keep a core busy; print that to stderr.

    OpenMP reads the variable once, when torch is imported. So this function must be called
    before the import, and while the job has no other process on the cores. It does nothing if torch
    is imported already, if there is only one thread, or if the user has set how threads wait.

    Args:
        cores: the cores on which the job's threads will run.
        threads: number of torch's threads.
    """
    if threads == 1 or "torch" in sys.modules or {WAIT_POLICY, SPIN_COUNT} & os.environ.keys():
        return
    for _ in range(OBSERVATIONS):
        busy_cores = find_busy_cores(cores)
        if not busy_cores:
            return
    os.environ[WAIT_POLICY] = "passive"
    print(
        f"other processes use core(s) {', '.join(map(str, busy_cores))}: threads of this job "
        f"sleep while they wait for each other ({WAIT_POLICY}=passive)",
        file=sys.stderr,
    )


def find_busy_cores(cores: list[int]) -> list[int]:
    """Observe cores for OBSERVATION_SECONDS; return those that were used most of the time."""
    percentages = psutil.cpu_percent(OBSERVATION_SECONDS, percpu=True)
    return [
        core for core in cores if core < len(percentages) and percentages[core] > 100 * BUSY_SHARE
    ]
