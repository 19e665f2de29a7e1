"""Snakemake's locks: those of a dead workflow are removed, those of a living one are respected.

Snakemake locks the files of a workflow by files that name no owner, which stay where it is killed.
So every workflow also holds a lock of the system's in the same folder, which Linux takes back
however the workflow ends. Who can have it alone knows that nobody else lives, and removes what dead
workflows left.
"""

import contextlib
import fcntl
import os
import platform
import shutil
from pathlib import Path

HELD, LOCKS, SOCKETS = "rapid.lock", "locks", "rapid-warm"


def hold(folder: Path) -> None:
    """Hold this folder of Snakemake's until the process ends, beside other living workflows.

    A file system on which locks do not reach other machines may show a lock of theirs as free: what
    a workflow on another machine left there stays, as Snakemake advises.
    """
    with contextlib.suppress(OSError):  # no place to write, or no such locks: Snakemake says so
        folder.mkdir(exist_ok=True)
        held = os.open(folder / HELD, os.O_RDWR | os.O_CREAT, 0o666)  # to be closed by Linux
        with contextlib.suppress(OSError):  # another lives, or the disk is full
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            here = platform.node().encode()
            if os.pread(held, 256, 0) in (b"", here) or not (folder / LOCKS).exists():
                for left in (LOCKS, SOCKETS):
                    shutil.rmtree(folder / left, ignore_errors=True)
                os.truncate(held, 0)
                os.pwrite(held, here, 0)
        fcntl.flock(held, fcntl.LOCK_SH)
