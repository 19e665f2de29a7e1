"""The benchmark's training loops: processes beside them, and how their threads wait."""

import os

import psutil

from performance import loops
from rapid.resources.leases import list_usable_cores
from rapid.resources.wait_policy import WAIT_POLICY


def test_busy_processes_use_the_same_cores_and_end_with_the_measurement():
    cores = set(list_usable_cores())
    with loops.run_busy_processes(2) as processes:
        busy_processes = [psutil.Process(process.pid) for process in processes]
        assert [set(process.cpu_affinity()) for process in busy_processes] == [cores] * 2
    assert not any(process.is_running() for process in busy_processes)


def test_wait_policy_is_set_only_while_a_loop_is_started(monkeypatch):
    monkeypatch.setenv(WAIT_POLICY, "active")
    with loops._set_wait_policy(""):
        assert WAIT_POLICY not in os.environ
    with loops._set_wait_policy("passive"):
        assert os.environ[WAIT_POLICY] == "passive"
    assert os.environ[WAIT_POLICY] == "active"
