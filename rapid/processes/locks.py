"""Remove Snakemake's locks of a dead workflow, and respect those of a living one.

Snakemake locks the files of a workflow by lock files that name no owner and remain if it is killed.
So every workflow also holds a lock of the operating system in the same folder, which Linux releases
when the workflow ends or is killed. A workflow that gets this lock exclusively is the only one
alive, and removes what dead ones have left.
"""

import contextlib
import fcntl
import os
import platform
import shutil
from pathlib import Path

WORKFLOW_LOCK = "rapid.lock"
SNAKEMAKE_LOCKS, FORK_SERVER_SOCKETS = "locks", "rapid-warm"  # folders


def hold_workflow_lock(folder: Path) -> None:
    """Hold a shared lock on Snakemake's folder until the process ends; clear it if no other does.

    On some file systems locks do not reach other machines, and a lock held on another one looks
    free. So what a workflow on another machine has left is not removed, as Snakemake advises.
    """
    with contextlib.suppress(OSError):  # no place to write, or no such locks: Snakemake says so
        folder.mkdir(exist_ok=True)
        lock = os.open(folder / WORKFLOW_LOCK, os.O_RDWR | os.O_CREAT, 0o666)  # Linux closes it
        with contextlib.suppress(OSError):  # another workflow lives, or the disk is full
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            host = platform.node().encode()
            is_own_host = os.pread(lock, 256, 0) in (b"", host)
            if is_own_host or not (folder / SNAKEMAKE_LOCKS).exists():
                for name in (SNAKEMAKE_LOCKS, FORK_SERVER_SOCKETS):
                    shutil.rmtree(folder / name, ignore_errors=True)
                os.truncate(lock, 0)
                os.pwrite(lock, host, 0)
        fcntl.flock(lock, fcntl.LOCK_SH)
