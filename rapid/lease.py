"""Cores to oneself: what makes runtimes of jobs that share a machine comparable.

Every job that computes leases the cores that its threads run on, before it imports anything heavy.
A lease is a lock on a file for each core, held until the process ends, however it ends. The process
and all that it starts (sampling, grading, Lean) are bound to those cores, so that two jobs never
share one. A job that finds no free core waits; it has not begun to measure anything.

The locks are the machine's, not the project's: two pipelines side by side respect each other. On a
system that cannot bind processes to cores (macOS) the lease still limits how many jobs run at once.
"""

import getpass
import os
import sys
import tempfile
import time
from pathlib import Path

from filelock import FileLock, Timeout

_held: list[FileLock] = []  # a FileLock that is garbage-collected lets go of its lock
POLL_SECONDS = 0.2


def usable_cores() -> list[int]:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def lease_cores(count: int, folder: Path | None = None) -> list[int]:
    """Wait for `count` free cores, hold them until the process ends, and bind the process to them.

    Also sets the number of torch's threads to `count`.

    Raises:
        ValueError: the machine has fewer than `count` cores.
    """
    cores = usable_cores()
    if count > len(cores):
        raise ValueError(
            f"threads: {count} is not allowed; allowed: at most {len(cores)}, this machine's cores"
        )
    folder = folder or Path(tempfile.gettempdir()) / f"rapid-cores-{getpass.getuser()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    leased: dict[int, FileLock] = {}
    waiting = False
    # One job at a time gathers cores: two that each hold one of two wanted would wait for ever.
    with FileLock(folder / "gather.lock"):
        while len(leased) < count:
            for core in cores:
                if len(leased) < count and core not in leased:
                    lock = FileLock(folder / f"core{core}.lock")
                    try:
                        lock.acquire(timeout=0)
                        leased[core] = lock
                    except Timeout:
                        continue
            if len(leased) < count:
                if not waiting:
                    print(f"waiting for {count} free core(s) of {len(cores)}", file=sys.stderr)
                    waiting = True
                time.sleep(POLL_SECONDS)
    _held.extend(leased.values())
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, leased)
    os.environ["OMP_NUM_THREADS"] = str(count)
    if torch := sys.modules.get("torch"):  # imported already: in a child of the warm process
        torch.set_num_threads(count)
    return sorted(leased)
