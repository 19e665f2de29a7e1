"""Commands that tests run, what became of processes, and an end for those that go on."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.checkout import ROOT

# Programs of this environment are found, as where it is activated.
ACTIVATED = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def python(*arguments: object, folder: Path = ROOT, status: int | None = 0, **variables: str):
    """Run Python in a folder to its end, with further variables; where asked, with that status."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder, env=os.environ | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert status in (None, done.returncode), done.stdout[-4000:] + done.stderr[-8000:]
    return done


def living(*pids: int) -> list[int]:
    """Return those that run; one that has ended, and is not yet taken notice of, does not."""
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found


def naming(marker: object) -> dict[int, str]:
    """Return the processes with a text in their command lines, also those of other namespaces."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if str(marker) in (line := (process / "cmdline").read_text(errors="replace")):
                found[int(process.name)] = line
    return found


def wait_for(holds: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def assert_gone(*pids: int) -> None:
    """Wait until none of the processes runs."""
    wait_for(lambda: not living(*pids))


@contextmanager
def ending(*started: subprocess.Popen) -> Iterator[None]:
    """Kill processes at the end."""
    try:
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()
