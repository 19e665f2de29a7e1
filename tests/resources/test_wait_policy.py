"""Tests how a job's threads wait for each other."""

import os
import subprocess
import sys
import types

import pytest

from rapid.resources import wait_policy
from rapid.resources.leases import list_usable_cores
from tests.subprocesses import kill_at_end, python

BUSY_LOOP = """
import os, sys
os.sched_setaffinity(0, [int(sys.argv[1])])
print("started", flush=True)
while True: pass
"""


@pytest.fixture
def cores_in_use(monkeypatch):
    """Simulate the shares of time in which each of four cores is used, in percent."""
    shares = [0.0, 100.0, 40.0, 60.0]
    monkeypatch.setattr(wait_policy.psutil, "cpu_percent", lambda *_, **__: shares)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")  # so that it is restored after the test
        monkeypatch.delenv(name)


def test_a_core_that_another_process_uses_is_found():
    core = list_usable_cores()[0]
    busy_process = subprocess.Popen(
        [sys.executable, "-c", BUSY_LOOP, str(core)], stdout=subprocess.PIPE, text=True
    )
    with kill_at_end(busy_process):
        assert busy_process.stdout.readline() == "started\n"
        assert core in wait_policy.find_busy_cores([core, 10**6])


@pytest.mark.usefixtures("cores_in_use")
def test_threads_sleep_while_they_wait_if_another_process_uses_their_cores(capsys):
    wait_policy.choose_thread_wait_policy([1, 2, 3], threads=2)
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
    assert "other processes use core(s) 1, 3: threads of this job sleep" in capsys.readouterr().err


@pytest.mark.usefixtures("cores_in_use")
def test_a_core_that_is_busy_for_a_moment_counts_as_free(monkeypatch):
    """For example while another job starts, which has not leased its cores yet."""
    shares = iter([[100.0], [80.0], [0.0]])
    monkeypatch.setattr(wait_policy.psutil, "cpu_percent", lambda *_, **__: next(shares))
    wait_policy.choose_thread_wait_policy([0], threads=2)
    assert "OMP_WAIT_POLICY" not in os.environ
    assert next(shares, None) is None  # it was observed until it was free


@pytest.mark.usefixtures("cores_in_use")
@pytest.mark.parametrize(("cores", "threads"), [([0, 2], 2), ([1, 3], 1)])
def test_nothing_changes_on_free_cores_or_with_one_thread(capsys, cores, threads):
    wait_policy.choose_thread_wait_policy(cores, threads)
    assert "OMP_WAIT_POLICY" not in os.environ
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("cores_in_use")
@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_what_the_user_has_set_is_kept(monkeypatch, name):
    monkeypatch.setenv(name, "100")
    before = dict(os.environ)
    wait_policy.choose_thread_wait_policy([1], threads=2)
    assert dict(os.environ) == before


@pytest.mark.usefixtures("cores_in_use")
def test_nothing_is_set_after_torch_has_read_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    wait_policy.choose_thread_wait_policy([1], threads=2)
    assert "OMP_WAIT_POLICY" not in os.environ


def test_a_lease_sets_the_policy_before_torch_is_imported(tmp_path):
    code = """
import os
import psutil
from rapid.resources.leases import lease_cores
psutil.cpu_percent = lambda *_, **__: [100.0] * 4096
lease_cores(1, threads=2)
print(os.environ["OMP_WAIT_POLICY"])
"""
    assert python("-c", code, TMPDIR=str(tmp_path)).stdout == "passive\n"
