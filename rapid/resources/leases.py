"""Cores and GPUs to oneself: what makes runtimes of jobs that share a machine comparable.

Every job that computes leases the cores that its threads run on, and the GPUs that it asks for,
before it imports anything heavy. A lease is a lock on a file for each of them, held until the
process ends, however it ends. The process and all that it starts (sampling, grading, Lean) are
bound to its cores and see no GPUs but its own, so that two jobs never share one. A job that finds
none free waits; it has not begun to measure anything.

The locks are a user's on a machine, not the project's: two of his pipelines side by side respect
each other. They lie in the temporary folder, so those with one of their own, in containers or jobs
of SLURM, do not. A job leases among what it was given: the cores that it may run on and the GPUs in
CUDA_VISIBLE_DEVICES, both of which SLURM sets. On a system that cannot bind processes to cores
(macOS) the lease still limits how many jobs run at once.
"""

import contextlib
import ctypes
import os
import platform
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from rapid.artifacts.files import BadInput
from rapid.resources.gpus import VISIBLE, visible_gpus

_held: list[FileLock] = []  # a FileLock that is garbage-collected lets go of its lock
POLL_SECONDS = 0.2
REFUSED_AFTER = 2.0  # seconds: processes of one that was killed take a moment to end
WAITING = "waiting for "  # how a log says so
GATHERING_SECONDS = 1.0  # that another job may take which finds its locks free
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # parameters of glibc's mallopt


def usable_cores() -> list[int]:
    """Return the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def lease_cores(count: int, folder: Path | None = None, threads: int | None = None) -> list[int]:
    """Wait for `count` free cores, hold them until the process ends, and bind the process to them.

    Also sets the number of torch's threads to `threads`, by default `count`.

    Raises:
        BadInput: the machine has fewer than `count` cores.
    """
    cores = usable_cores()
    if count > len(cores):
        raise BadInput(
            f"compute.threads x compute.processes: {count} is not allowed; allowed: at most "
            f"{len(cores)}, the cores of this machine (or of this SLURM job)"
        )
    leased = _lease("core", [f"core{core}" for core in cores], count, folder)
    return bind([cores[place] for place in leased], threads or count)


def bind(cores: list[int], threads: int) -> list[int]:
    """Bind this process, and what it starts, to these cores; torch gets so many threads."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    _keep_memory()
    if torch := sys.modules.get("torch"):  # imported already: in a child of the warm process
        torch.set_num_threads(threads)
    return cores


def _keep_memory() -> None:
    """Let this process keep the memory that it frees, where its C library is glibc.

    By itself malloc gives tensors back to Linux, which then clears new pages for the next ones: a
    tenth of the time of a training step.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version"):
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def lease_gpus(count: int, folder: Path | None = None) -> list[str]:
    """Wait for `count` free GPUs, hold them until the process ends, and show it no others.

    CUDA_VISIBLE_DEVICES says which: this comes before CUDA is initialised. With 0 the process sees
    none.

    Returns:
        Their names, as in CUDA_VISIBLE_DEVICES.

    Raises:
        BadInput: the process may use fewer than `count` GPUs.
    """
    gpus = visible_gpus() if count else []
    if count > len(gpus):
        raise BadInput(
            f"compute.device: gpu: this job needs {count} GPU(s) and may use {len(gpus)}. Lower "
            f"compute.processes, set {VISIBLE} to GPUs that are there, or set compute.device: cpu; "
            "nvidia-smi lists this machine's GPUs"
        )
    leased = _lease("GPU", [gpu.identity for gpu in gpus], count, folder)
    names = [gpus[place].name for place in leased]
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # numbers as nvidia-smi and SLURM have them
    os.environ[VISIBLE] = ",".join(names)
    return names


@contextlib.contextmanager
def lease_folder(folder: Path) -> Iterator[None]:
    """Have a folder to oneself, at most until the process ends; make it if need be.

    Raises:
        BadInput: another process has it.
    """
    owner = folder / "lock"
    until = time.monotonic() + REFUSED_AFTER
    lock = None
    while lock is None:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(owner).acquire(timeout=max(0.0, until - time.monotonic()))
        except FileNotFoundError:  # a run that has ended takes the folder with it
            if time.monotonic() > until:
                raise
        except Timeout:
            raise BadInput(
                f"{folder.parent}: process {owner.read_text() or 'of another user'} works on it. "
                "Wait until it ends, or end it"
            ) from None
    with lock:
        owner.write_text(f"{os.getpid()} of {platform.node()}")
        yield


def _own(folder: Path) -> None:
    """Make a folder of this user's alone, or see that it is one.

    In a temporary directory anybody could have made it: who may write there could point the locks
    at other files, or hold them for ever.

    Raises:
        BadInput: it is a link, another user's, or others may write to it.
    """
    with contextlib.suppress(FileExistsError):  # what there is, is looked at next
        folder.mkdir(mode=0o700, parents=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        why = "it is not a folder"
    elif found.st_uid != os.geteuid():
        why = f"it belongs to user {found.st_uid}, not to user {os.geteuid()}"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = "other users may write to it"
    else:
        return
    raise BadInput(
        f"the folder of leases, {folder}, cannot be trusted: {why}. Remove it, or set TMPDIR to "
        "a folder of your own"
    )


def _lease(kind: str, names: list[str], count: int, folder: Path | None) -> list[int]:
    """Wait for `count` of these locks and hold them until the end; return their places."""
    if not count:
        return []
    folder = folder or Path(tempfile.gettempdir()) / f"rapid-cores-{os.geteuid()}"
    _own(folder)
    leased: dict[int, FileLock] = {}
    message = f"{WAITING}{count} free {kind}(s) of {len(names)}: other jobs hold them"
    gathering, waiting = FileLock(folder / f"gather-{kind}.lock"), False
    try:
        gathering.acquire(timeout=GATHERING_SECONDS)
    except Timeout:
        print(message, file=sys.stderr)
        waiting = True
        gathering.acquire()
    # One job at a time gathers: two that each hold one of two wanted would wait for ever. Cores are
    # gathered before GPUs, so that no holder of GPUs waits.
    try:
        while len(leased) < count:
            for place, name in enumerate(names):
                if len(leased) < count and place not in leased:
                    lock = FileLock(folder / f"{name}.lock")
                    with contextlib.suppress(Timeout):
                        lock.acquire(timeout=0)
                        leased[place] = lock
            if len(leased) < count:
                if not waiting:
                    print(message, file=sys.stderr)
                    waiting = True
                time.sleep(POLL_SECONDS)
    finally:
        gathering.release()
    _held.extend(leased.values())
    return sorted(leased)
