"""Helpers of tests to start processes, wait for them, find them and end them."""

import ctypes
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import psutil

from tests.checkout import ROOT

# The variable PATH as it is after this environment was activated.
ACTIVATED = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
SUBREAPER = 36  # option of prctl: an orphan among the descendants becomes this process's child


def python(*arguments: object, folder: Path = ROOT, status: int | None = 0, **variables: str):
    """Run Python in a folder to its end, and check its status unless that is None."""
    ended = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder, env=os.environ | variables, capture_output=True, text=True, check=False,
        timeout=3600,
    )  # fmt: skip
    assert status in (None, ended.returncode), ended.stdout[-4000:] + ended.stderr[-8000:]
    return ended


def environments(processes: int) -> list[dict[str, str]]:
    """Return the environment variables that accelerate reads in each process of a job."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    shared = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = map(str, range(processes))
    return [shared | {"RANK": rank, "LOCAL_RANK": rank} for rank in ranks]


def filter_living(*pids: int) -> list[int]:
    """Return the PIDs of processes that still run. Zombies do not count."""
    running = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                running.append(pid)
    return running


def find_processes_naming(marker: object) -> dict[int, str]:
    """Return the command lines that contain a text, by process number, in all namespaces."""
    command_lines = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(marker) in (line := (process / "cmdline").read_text(errors="replace")):
                command_lines[int(process.name)] = line
    return command_lines


def wait_for(holds: Callable[[], object], seconds: float = 60, interval: float = 0.02) -> None:
    """Wait until `holds()` is true. Fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(interval)


def assert_gone(*pids: int) -> None:
    """Wait until none of the processes runs."""
    wait_for(lambda: not filter_living(*pids))


def left_behind(*earlier_pids: int, seconds: float = 300) -> list[psutil.Process]:
    """Wait until descendants of this process have ended; return those left after `seconds`."""
    until = time.monotonic() + seconds
    while True:
        descendants = psutil.Process().children(recursive=True)
        processes = [process for process in descendants if process.pid not in earlier_pids]
        for process in processes:
            with suppress(psutil.NoSuchProcess, ChildProcessError):
                if process.status() == psutil.STATUS_ZOMBIE:
                    os.waitpid(process.pid, os.WNOHANG)
        if not processes or time.monotonic() > until:
            return processes
        time.sleep(0.02)


@contextmanager
def adopt_orphans() -> Iterator[Callable]:
    """Make this process the parent of orphans among its descendants.

    Yields `left_behind`, without the children that exist already.
    """
    earlier_pids = [process.pid for process in psutil.Process().children(recursive=True)]
    ctypes.CDLL(None).prctl(SUBREAPER, 1)
    try:
        yield partial(left_behind, *earlier_pids)
    finally:
        ctypes.CDLL(None).prctl(SUBREAPER, 0)


def start_command(command: list[str], **settings) -> subprocess.Popen:
    """Start a command whose output is read as text."""
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | settings
    return subprocess.Popen(command, **settings)


@contextmanager
def kill_at_end(*started: subprocess.Popen) -> Iterator[None]:
    """Kill the processes at the end of the block."""
    try:
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


class Borrower:
    """A forked child that runs the function `work` with the processes that `lend` lends to it."""

    def __init__(self, lend: Callable, work: Callable):
        self._take_back = lend()
        reading, writing = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            status = 1
            try:
                os.write(writing, repr(work()).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(writing)
        self._reading = reading

    def end(self) -> str:
        """Wait for the child's end, take back the lent processes, and return its result."""
        result = os.read(self._reading, 4096).decode()
        os.close(self._reading)
        _, status = os.waitpid(self.pid, 0)
        self._take_back(status == 0)
        return result
