"""Removes the locks of killed workflows, but not those of running workflows.

Snakemake protects the files of a workflow by lock files in .snakemake/. These files do not say
which process owns them, and remain if Snakemake is killed; the next workflow then refuses to start.
So every workflow also holds a `flock` on a file in that folder, which Linux releases when the
workflow ends or is killed. A workflow that gets this lock exclusively is the only one running, so
it can remove the lock files and the sockets of fork servers that killed workflows left.
"""

import contextlib
import fcntl
import os
import platform
import shutil
from pathlib import Path

# In .snakemake/: the file of this module's lock, the folder of Snakemake's lock files, and that of
# the sockets of fork servers (`rapid.processes.fork_server`).
WORKFLOW_LOCK = "rapid.lock"
SNAKEMAKE_LOCKS, FORK_SERVER_SOCKETS = "locks", "rapid-fork-server"


def hold_workflow_lock(folder: Path) -> None:
    """Hold a shared lock on .snakemake/ until this process ends; remove files of killed workflows.

    The files are removed only if no other workflow holds the lock. They are kept if the last
    workflow ran on another machine, where it may still run: some file systems do not share locks
    between machines. Snakemake then prints how to unlock the folder.

    Args:
        folder: .snakemake/ in the working folder; it is created if needed.
    """
    # Errors are ignored: Snakemake itself reports a folder that it cannot write to or lock.
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True)
        lock = os.open(folder / WORKFLOW_LOCK, os.O_RDWR | os.O_CREAT, 0o666)  # open until exit
        with contextlib.suppress(OSError):  # another workflow runs, or the disk is full
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            host = platform.node().encode()
            # The file contains the name of the machine on which the last workflow ran.
            is_same_host = os.pread(lock, 256, 0) in (b"", host)
            # `snakemake --unlock` deletes the folder of lock files.
            if is_same_host or not (folder / SNAKEMAKE_LOCKS).exists():
                for name in (SNAKEMAKE_LOCKS, FORK_SERVER_SOCKETS):
                    shutil.rmtree(folder / name, ignore_errors=True)
                os.truncate(lock, 0)
                os.pwrite(lock, host, 0)
        fcntl.flock(lock, fcntl.LOCK_SH)
