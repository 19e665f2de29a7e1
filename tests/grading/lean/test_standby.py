"""Pairs of Lean processes that are lent to one job after another."""

import os
import signal
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from rapid.grading import verdicts
from rapid.grading.lean import LeanChecker, standby
from rapid.grading.lean.install import Backend
from rapid.grading.lean.process import LeanProcess
from tests.grading.lean.stand_in import ENDLESS, STATEMENT
from tests.subprocesses import Borrower, assert_gone

Job = partial(Borrower, standby.lend)
TRUE_PROOF = ("p1", "theorem p1 : (1 : Nat) = 1 := by\n  ", "rfl")
FALSE_PROOF = ("p1", "theorem p1 : (1 : Nat) = 2 := by\n  ", "rfl")


def check_proofs(*proofs, timeout: float = 60, **options):
    """Return work for a job. It returns the pids of Lean, the number of answers, reasons, and cores."""

    def work():
        with LeanChecker(timeout, **options) as checker:
            checker.wait_ready()
            pids = [process.pid for process in checker._processes.values()]
            reasons = [checker.check(*proof).reason for proof in proofs]
            cores_by_process = [psutil.Process(pid).cpu_affinity() for pid in pids]
            return pids, checker.answered, reasons, cores_by_process

    return work


@pytest.fixture(autouse=True)
def idle_pairs():
    """The idle pairs: none at the beginning and at the end of a test."""
    assert standby.STANDBY._idle == []
    yield standby.STANDBY._idle
    for process in [worker for pair in standby.STANDBY._idle for worker in pair.values()]:
        process.end()
    standby.STANDBY._idle.clear()


def list_processes(idle_pairs) -> list[LeanProcess]:
    return [process for pair in idle_pairs for process in pair.values()]


@pytest.mark.slow
def test_a_pair_is_reused_by_jobs_and_ended_with_a_killed_job(idle_pairs):
    cores = [min(os.sched_getaffinity(0))]

    def check_on_one_core():
        os.sched_setaffinity(0, cores)
        return check_proofs(FALSE_PROOF, TRUE_PROOF)()

    first = eval(Job(check_proofs(TRUE_PROOF, FALSE_PROOF)).end())
    second = eval(Job(check_on_one_core).end())
    assert first[0] == second[0] == [process.pid for process in list_processes(idle_pairs)]
    assert first[1:3] == (0, [verdicts.PASSED, verdicts.WRONG_ANSWER])
    assert second[1] == 1 and second[2] == [verdicts.WRONG_ANSWER, verdicts.PASSED]
    assert second[3] == [cores, cores]

    # This job starts a pair of its own, and ends it.
    third = eval(Job(check_proofs(TRUE_PROOF, header="open Nat\n")).end())
    assert not set(third[0]) & set(second[0])
    assert [process.pid for process in list_processes(idle_pairs)] == second[0]

    lent_processes = list_processes(idle_pairs)
    author = psutil.Process(lent_processes[0].pid)
    cpu_seconds_before = sum(author.cpu_times()[:2])
    job = Job(check_proofs(("p1", STATEMENT, ENDLESS), timeout=600))
    while sum(author.cpu_times()[:2]) < cpu_seconds_before + 0.5:  # until it works on the proof
        assert os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        time.sleep(0.05)
    os.kill(job.pid, signal.SIGKILL)
    job.end()
    assert idle_pairs == [] and not any(
        psutil.pid_exists(process.pid) for process in lent_processes
    )


@pytest.mark.slow
def test_a_job_replaces_processes_that_die_or_time_out(idle_pairs):
    Job(lambda: "did not need it").end()
    unused_pids = [process.pid for process in list_processes(idle_pairs)]
    first = eval(Job(check_proofs()).end())
    assert first[0] == unused_pids
    slow = eval(Job(check_proofs(("p1", STATEMENT, ENDLESS, 2), TRUE_PROOF)).end())
    assert slow[0] == first[0] and slow[2] == [verdicts.TIMEOUT, verdicts.PASSED]
    assert [list(pair) for pair in idle_pairs] == [["judge"]]  # the author was ended
    for role in ("judge", "author"):
        (pair,) = idle_pairs
        killed_process = pair[role]
        os.kill(killed_process.pid, signal.SIGKILL)
        assert eval(Job(check_proofs(TRUE_PROOF)).end())[2] == [verdicts.PASSED]
        assert killed_process.connection.fileno() == -1


def test_idle_lean_processes_end_with_their_owner(idle_pairs):
    reading, writing = os.pipe()
    owner = os.fork()
    if not owner:
        standby.lend()
        os.write(writing, repr([worker.pid for worker in standby.STANDBY._lent.values()]).encode())
        signal.pause()
    pids = eval(os.read(reading, 4096))
    os.kill(owner, signal.SIGKILL)
    os.waitpid(owner, 0)
    os.close(reading)
    os.close(writing)
    assert_gone(*pids)


def test_a_pair_is_lent_to_the_next_job_only(idle_pairs):
    standby.STANDBY._lent["author"] = "a process"
    child = os.fork()
    if not child:
        os._exit(len(standby.STANDBY._lent))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert standby.STANDBY._lent == {}


WASM, NATIVE = Backend("wasm", "4.99.0", Path("/")), Backend("native", "4.99.0", Path("/"))


class FakeProcess:
    """Stands in for a process that is lent, and records the calls of its methods."""

    def __init__(self, backend, header, role, waits_for_renew=False):
        assert waits_for_renew and (backend, header) == (WASM, "")
        self.is_alive = self.is_borrowed = True
        self.pid, self.events = 0, []
        self.renew, self.end = (
            lambda event=event: self.events.append(event) for event in ("renew", "end")
        )

    def wait_ready(self):
        pass

    def serves(self, backend, header):
        return (backend, header) == (WASM, "")


@pytest.fixture
def started_processes(monkeypatch):
    """The fake processes that were started."""
    processes = []

    def start(*arguments, **options):
        processes.append(FakeProcess(*arguments, **options))
        return processes[-1]

    monkeypatch.setattr(standby, "LeanProcess", start)
    monkeypatch.setattr(standby, "_find_backend", lambda: WASM)
    yield processes
    standby.STANDBY._lent.clear()


def test_nothing_is_lent_if_a_pair_cannot_start(idle_pairs, started_processes, monkeypatch):
    start = standby.LeanProcess

    def fail(backend, header, role, **options):
        if role == "judge":
            raise OSError("no memory")
        return start(backend, header, role, **options)

    monkeypatch.setattr(standby, "LeanProcess", fail)
    assert standby.lend() is None
    assert [process.events for process in started_processes] == [["end"]]
    for backend in (None, NATIVE):
        monkeypatch.setattr(standby, "_find_backend", lambda backend=backend: backend)
        assert standby.lend() is None
    assert len(started_processes) == 1 and standby.STANDBY._lent == {} and idle_pairs == []


def test_a_job_borrows_a_process_once_and_leaves_it_alive(started_processes):
    standby.lend()
    author, judge = started_processes
    assert standby.borrow("author", WASM, "open Nat\n") is None
    assert standby.borrow("author", NATIVE, "") is None
    with LeanChecker(60, backend=WASM) as checker:
        assert list(checker._processes.values()) == [author, judge]
        author.seconds, judge.seconds, author.answered, judge.answered = 1.0, 2.0, 3, 4
        assert (checker.wait_ready(), checker.answered) == (2.0, 3)
        assert standby.borrow("judge", WASM, "") is None
    assert author.events == judge.events == ["renew"]
    standby.lend()
    started_processes[-1].is_borrowed = False  # it belongs to the process itself
    assert standby.borrow("judge", WASM, "") is None
