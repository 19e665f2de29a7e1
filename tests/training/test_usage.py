"""What a run had of its cores is told from what others took."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest

from rapid.training.usage import MAX_LOST_SHARE, Usage

SPIN = "import time\nwhile time.process_time() < {seconds}: pass\n"


def test_what_others_took_is_told_from_waiting(tmp_path):
    """Schedstat's second figure, in nanoseconds; the mean of our cores' eighth, in ticks."""
    ours = os.sched_getaffinity(0)
    rows = [f"cpu{core} 1 2 3 4 5 6 7 {50 if core in ours else 9000} 0 0" for core in range(4096)]
    (tmp_path / "stat").write_text("\n".join(["cpu 9 9 9 9 9 9 9 9 9 9", *rows, "ctxt 1", ""]))
    (tmp_path / "self").mkdir()
    (tmp_path / "self/schedstat").write_text("7000000000 2500000000 12\n")
    found = Usage.now(tmp_path)
    assert found.waited == 2.5
    assert found.stolen == pytest.approx(50 / os.sysconf("SC_CLK_TCK"))


def test_where_nobody_counts_nothing_was_taken(tmp_path):
    assert Usage.now(tmp_path)[1:] == (0, 0)


@pytest.mark.parametrize("name", ["waited", "stolen"])
def test_a_run_may_lose_a_little_time_either_way(name):
    lost = Usage(0, 0, 0)._replace(**{name: 1.0})
    assert lost.disturbed(0.9 / MAX_LOST_SHARE) and not lost.disturbed(1.1 / MAX_LOST_SHARE)
    both = Usage(0, 0.6, 0.6)
    assert both.disturbed(1.1 / MAX_LOST_SHARE) and not both.disturbed(1.3 / MAX_LOST_SHARE)


def test_what_waited_is_held_against_the_time_without_grading():
    assert Usage(0, 1.0, 0).disturbed(2 / MAX_LOST_SHARE, grading=1.1 / MAX_LOST_SHARE)
    assert not Usage(0, 0, 1.0).disturbed(1.1 / MAX_LOST_SHARE, grading=1 / MAX_LOST_SHARE)
    assert Usage(0, 0.4, 0).disturbed(0.5)
    assert not Usage(0, 1.0, 0).disturbed(2.0, grading=2.0)


def test_cpu_time_is_of_all_descendants_without_waiting_for_disks(monkeypatch):
    """User, system, those of children that ended; and, of Linux, waiting."""

    def process(times, *descendants):
        def children(recursive):
            return descendants if recursive else descendants[:1]

        return SimpleNamespace(cpu_times=lambda: times, children=children)

    others = process((16, 32, 64, 128, 999)), process((256, 0, 0, 0, 999))
    monkeypatch.setattr(psutil, "Process", lambda: process((1, 2, 4, 8, 999), *others))
    assert Usage.now().cpu == 511


def test_children_s_cpu_time_counts_while_they_run_and_afterwards():
    begin = Usage.now()
    command = [sys.executable, "-c", SPIN.format(seconds=0.3) + "input()"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE)
    while (alive := Usage.now().since(begin)).cpu < 0.3:
        assert child.poll() is None
        time.sleep(0.02)
    child.communicate(b"\n")
    assert Usage.now().since(begin).cpu >= alive.cpu


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="Linux counts it")
def test_a_loop_on_the_same_core_disturbs():
    """Each of two that compute on one core waits for the other, whatever else runs there."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [min(allowed)])
    loop = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        begin, since = Usage.now(), time.perf_counter()
        while time.perf_counter() - since < 1.0:
            pass
        used, seconds = Usage.now().since(begin), time.perf_counter() - since
    finally:
        loop.kill()
        loop.wait()
        os.sched_setaffinity(0, allowed)
    assert used.disturbed(seconds)
