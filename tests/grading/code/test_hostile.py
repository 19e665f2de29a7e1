"""A batch of hostile completions, from outside: verdicts as they should be, and nothing left."""

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
from tests.grading.code.attacks import ATTACKS, LEFT, RIGHT
from tests.subprocesses import adopting, interruptible, wait_for

TIMEOUT, WORKERS = 2.0, 2
PLACES = [Path(place) for place in ("/tmp", "/dev/shm", "/var/tmp", Path.home(), Path.cwd())]


@pytest.fixture
def orphans():
    """Says which processes are left of those that this test started, however far they moved away.

    Whoever loses its parent becomes this process's child.
    """
    with adopting() as left_behind:
        yield left_behind
    for process in left_behind(seconds=0):
        with suppress(psutil.NoSuchProcess):
            process.kill()


@pytest.fixture
def start(tmp_path, double):
    """Starts `rapid grade` on programs, with folders of its own."""

    def start(programs: list[str], timeout: float) -> subprocess.Popen:
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
        return interruptible(command, cwd=tmp_path, env=environment, start_new_session=True)

    return start


def shared_memory() -> set[str]:
    """What System V shared memory there is of the users that completions run as."""
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {line for line in lines if int(line.split()[7]) >= 65534}


@pytest.mark.parametrize("count", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_hostile_batch_is_graded_and_leaves_nothing(start, orphans, tmp_path, count):
    """Each with a mark of its own, for a text that was graded is not graded again."""
    writable = [name for name, (program, _) in ATTACKS.items() if "\ud800" not in program]
    step = len(writable) // count + 1
    names = list(itertools.islice(itertools.cycle(writable[::step]), count))
    programs = [f"{ATTACKS[name][0]}\n# {n}" for n, name in enumerate(names)]
    good = [f"{RIGHT}\n# right {n}" for n in range(count)]
    mixed = list(itertools.chain.from_iterable(zip(programs, good, strict=True)))
    before = shared_memory()

    process = start(mixed, TIMEOUT)
    out, errors = process.communicate(timeout=1800.0)

    assert process.returncode == 0, errors
    assert orphans() == []
    assert list((tmp_path / "tmp").iterdir()) == []
    names_left = sorted(path.name for path in tmp_path.iterdir())
    assert names_left == ["completions", "home", "problems", "tmp"]
    assert [place for place in PLACES if (place / LEFT).exists()] == []
    assert shared_memory() == before
    reasons = [json.loads(line)["reason"] for line in out.splitlines()]
    assert set(reasons[1::2]) == {verdicts.PASSED}
    unexpected = Counter(
        (name, reason)
        for name, reason in zip(names, reasons[::2], strict=True)
        if reason not in ATTACKS[name][1] | {verdicts.TIMEOUT}  # other programs may have the cores
    )
    assert not unexpected


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_batch_leaves_no_process(start, orphans, number):
    """Stopped while completions run, and others wait. SIGINT lets those that run come to an end."""
    ends = "import time\nwhile time.process_time() < 2: sum(range(100_000))"
    code = ends if number == signal.SIGINT else "while True: pass"
    process = start([f"{code}\n# {n}" for n in range(100)], timeout=10.0)

    def is_busy(child: psutil.Process) -> bool:
        with suppress(psutil.NoSuchProcess):
            return child.cpu_times().user > 0.5
        return False

    def busy() -> int:
        return sum(map(is_busy, psutil.Process(process.pid).children(recursive=True)))

    wait_for(lambda: busy() >= WORKERS or process.poll() is not None, seconds=600, every=0.2)
    assert process.poll() is None
    process.send_signal(number)
    process.communicate(timeout=1800.0)
    assert orphans() == []
