"""`rapid grade` on a batch of hostile completions: the expected verdicts, and nothing left behind."""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from rapid.grading import verdicts
from tests.grading.code.attacks import ATTACKS, FILE_LEFT_BEHIND, RIGHT
from tests.subprocesses import adopt_orphans, start_command, wait_for

TIMEOUT, WORKERS = 2.0, 2
WRITABLE_FOLDERS = [
    Path(folder) for folder in ("/tmp", "/dev/shm", "/var/tmp", Path.home(), Path.cwd())
]


@pytest.fixture
def list_orphans():
    """Return a function that lists the processes that a test started and that still run.

    A process that loses its parent becomes a child of this process, so all are listed.
    """
    with adopt_orphans() as left_behind:
        yield left_behind
    for process in left_behind(seconds=0):
        with suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.fixture
def start_grading(tmp_path, double):
    """Return a function that starts `rapid grade` on programs, with its own temporary and home folder."""

    def start_grading(programs: list[str], timeout: float) -> subprocess.Popen:
        rows = [{"id": double.id, "completion": program} for program in programs]
        (tmp_path / "completions").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / "problems").write_text(double.model_dump_json() + "\n")
        for folder in ("tmp", "home"):
            (tmp_path / folder).mkdir()
        places = {"TMPDIR": str(tmp_path / "tmp"), "HOME": str(tmp_path / "home")}
        command = [sys.executable, "-m", "rapid", "grade", "--benchmark", "mbpp_plus"]
        command += ["--problems", "problems", "--completions", "completions"]
        command += ["--workers", str(WORKERS), "--timeout", str(timeout)]
        environment = os.environ | places | {"PYTHONPATH": os.getcwd()}
        return start_command(command, cwd=tmp_path, env=environment, start_new_session=True)

    return start_grading


def list_shared_memory() -> set[str]:
    """Return the System V shared memory of the users that completions run as."""
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {line for line in lines if int(line.split()[7]) >= 65534}


@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_hostile_batch_is_graded_and_leaves_nothing_behind(
    start_grading, list_orphans, tmp_path, count
):
    """Each program has its own comment, because the verdict on a repeated text is cached."""
    writable = [name for name, (program, _) in ATTACKS.items() if "\ud800" not in program]
    step = len(writable) // count + 1
    names = list(itertools.islice(itertools.cycle(writable[::step]), count))
    hostile_programs = [f"{ATTACKS[name][0]}\n# {n}" for n, name in enumerate(names)]
    right_programs = [f"{RIGHT}\n# right {n}" for n in range(count)]
    alternating_programs = list(
        itertools.chain.from_iterable(zip(hostile_programs, right_programs, strict=True))
    )
    shared_memory_before = list_shared_memory()

    process = start_grading(alternating_programs, TIMEOUT)
    output, errors = process.communicate(timeout=1800.0)

    assert process.returncode == 0, errors
    assert list_orphans() == []
    assert list((tmp_path / "tmp").iterdir()) == []
    names_left = sorted(path.name for path in tmp_path.iterdir())
    assert names_left == ["completions", "home", "problems", "tmp"]
    assert [folder for folder in WRITABLE_FOLDERS if (folder / FILE_LEFT_BEHIND).exists()] == []
    assert list_shared_memory() == shared_memory_before
    reasons = [json.loads(line)["reason"] for line in output.splitlines()]
    assert set(reasons[1::2]) == {verdicts.PASSED}
    unexpected = Counter(
        (name, reason)
        for name, reason in zip(names, reasons[::2], strict=True)
        if reason not in ATTACKS[name][1] | {verdicts.TIMEOUT}  # if other programs hold the cores
    )
    assert not unexpected


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_batch_leaves_no_process_behind(start_grading, list_orphans, signal_number):
    """The batch is stopped while completions run and others wait. SIGINT lets the running ones end."""
    ending_code = "import time\nwhile time.process_time() < 2: sum(range(100_000))"
    code = ending_code if signal_number == signal.SIGINT else "while True: pass"
    process = start_grading([f"{code}\n# {n}" for n in range(100)], timeout=10.0)

    def is_busy(child: psutil.Process) -> bool:
        with suppress(psutil.NoSuchProcess):
            return child.cpu_times().user > 0.5
        return False

    def count_busy() -> int:
        return sum(map(is_busy, psutil.Process(process.pid).children(recursive=True)))

    wait_for(
        lambda: count_busy() >= WORKERS or process.poll() is not None, seconds=600, interval=0.2
    )
    assert process.poll() is None
    process.send_signal(signal_number)
    process.communicate(timeout=1800.0)
    assert list_orphans() == []
