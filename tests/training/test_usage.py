"""CPU time of a run, and the time it lost to other processes and virtual machines."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest

from rapid.training.usage import MAX_LOST_SHARE, Usage

SPIN = "import time\nwhile time.process_time() < {seconds}: pass\n"


def test_waited_and_stolen_time_are_read_separately(tmp_path):
    """From the second number of schedstat, in nanoseconds, and the eighth of stat, in ticks."""
    process_cores = os.sched_getaffinity(0)
    rows = [
        f"cpu{core} 1 2 3 4 5 6 7 {50 if core in process_cores else 9000} 0 0"
        for core in range(4096)
    ]
    (tmp_path / "stat").write_text("\n".join(["cpu 9 9 9 9 9 9 9 9 9 9", *rows, "ctxt 1", ""]))
    (tmp_path / "self").mkdir()
    (tmp_path / "self/schedstat").write_text("7000000000 2500000000 12\n")
    usage = Usage.now(tmp_path)
    assert usage.waited == 2.5
    assert usage.stolen == pytest.approx(50 / os.sysconf("SC_CLK_TCK"))


def test_lost_time_is_zero_without_counters(tmp_path):
    assert Usage.now(tmp_path)[1:] == (0, 0)


@pytest.mark.parametrize("name", ["waited", "stolen"])
def test_run_is_disturbed_above_threshold_of_lost_time(name):
    lost = Usage(0, 0, 0)._replace(**{name: 1.0})
    assert lost.is_disturbed(0.9 / MAX_LOST_SHARE) and not lost.is_disturbed(1.1 / MAX_LOST_SHARE)
    waited_and_stolen = Usage(0, 0.6, 0.6)
    assert waited_and_stolen.is_disturbed(
        1.1 / MAX_LOST_SHARE
    ) and not waited_and_stolen.is_disturbed(1.3 / MAX_LOST_SHARE)


def test_waiting_is_compared_with_time_without_grading():
    assert Usage(0, 1.0, 0).is_disturbed(2 / MAX_LOST_SHARE, grading=1.1 / MAX_LOST_SHARE)
    assert not Usage(0, 0, 1.0).is_disturbed(1.1 / MAX_LOST_SHARE, grading=1 / MAX_LOST_SHARE)
    assert Usage(0, 0.4, 0).is_disturbed(0.5)
    assert not Usage(0, 1.0, 0).is_disturbed(2.0, grading=2.0)


def test_cpu_time_includes_all_descendants_without_disk_waits(monkeypatch):
    """User and system time, also of ended children, but not Linux's fifth value, disk waits."""

    def make_process(times, *descendants):
        def children(recursive):
            return descendants if recursive else descendants[:1]

        return SimpleNamespace(cpu_times=lambda: times, children=children)

    descendants_of_this = make_process((16, 32, 64, 128, 999)), make_process((256, 0, 0, 0, 999))
    monkeypatch.setattr(
        psutil, "Process", lambda: make_process((1, 2, 4, 8, 999), *descendants_of_this)
    )
    assert Usage.now().cpu == 511


def test_cpu_time_of_children_counts_during_and_after_their_life():
    start = Usage.now()
    command = [sys.executable, "-c", SPIN.format(seconds=0.3) + "input()"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE)
    while (usage_while_alive := Usage.now().since(start)).cpu < 0.3:
        assert child.poll() is None
        time.sleep(0.02)
    child.communicate(b"\n")
    assert Usage.now().since(start).cpu >= usage_while_alive.cpu


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="Linux counts it")
def test_busy_process_on_same_core_disturbs_run():
    """Two processes that compute on one core wait for each other, whatever else runs there."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [min(allowed)])
    busy_process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        start, start_time = Usage.now(), time.perf_counter()
        while time.perf_counter() - start_time < 1.0:
            pass
        used, seconds = Usage.now().since(start), time.perf_counter() - start_time
    finally:
        busy_process.kill()
        busy_process.wait()
        os.sched_setaffinity(0, allowed)
    assert used.is_disturbed(seconds)
