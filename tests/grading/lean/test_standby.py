"""Lean processes that are lent to one job after another."""

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
TRUE = ("p1", "theorem p1 : (1 : Nat) = 1 := by\n  ", "rfl")
FALSE = ("p1", "theorem p1 : (1 : Nat) = 2 := by\n  ", "rfl")


def judged(*proofs, timeout: float = 60, **options):
    """Return work for a job: the pids of its Lean, how many answers they gave, the reasons."""

    def work():
        with LeanChecker(timeout, **options) as checker:
            checker.wait_ready()
            pids = [process.pid for process in checker._processes.values()]
            reasons = [checker.check(*proof).reason for proof in proofs]
            cores = [psutil.Process(pid).cpu_affinity() for pid in pids]
            return pids, checker.answered, reasons, cores

    return work


@pytest.fixture(autouse=True)
def idle():
    """Begin and end with nothing kept."""
    assert standby.STANDBY._idle == []
    yield standby.STANDBY._idle
    for process in [worker for pair in standby.STANDBY._idle for worker in pair.values()]:
        process.end()
    standby.STANDBY._idle.clear()


def kept(idle) -> list[LeanProcess]:
    return [process for pair in idle for process in pair.values()]


@pytest.mark.slow
def test_a_pair_goes_from_job_to_job_and_a_killed_job_s_is_ended(idle):
    cores = [min(os.sched_getaffinity(0))]

    def bound():
        os.sched_setaffinity(0, cores)
        return judged(FALSE, TRUE)()

    first = eval(Job(judged(TRUE, FALSE)).end())
    second = eval(Job(bound).end())
    assert first[0] == second[0] == [process.pid for process in kept(idle)]
    assert first[1:3] == (0, [verdicts.PASSED, verdicts.WRONG_ANSWER])
    assert second[1] == 1 and second[2] == [verdicts.WRONG_ANSWER, verdicts.PASSED]
    assert second[3] == [cores, cores]

    third = eval(Job(judged(TRUE, header="open Nat\n")).end())  # starts its own, and ends them
    assert not set(third[0]) & set(second[0])
    assert [process.pid for process in kept(idle)] == second[0]

    lent = kept(idle)
    author = psutil.Process(lent[0].pid)
    before = sum(author.cpu_times()[:2])
    job = Job(judged(("p1", STATEMENT, ENDLESS), timeout=600))
    while sum(author.cpu_times()[:2]) < before + 0.5:  # it is at work
        assert os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        time.sleep(0.05)
    os.kill(job.pid, signal.SIGKILL)
    job.end()
    assert idle == [] and not any(psutil.pid_exists(process.pid) for process in lent)


@pytest.mark.slow
def test_a_job_replaces_what_dies_or_is_too_slow(idle):
    Job(lambda: "did not need it").end()
    unused = [process.pid for process in kept(idle)]
    first = eval(Job(judged()).end())
    assert first[0] == unused
    slow = eval(Job(judged(("p1", STATEMENT, ENDLESS, 2), TRUE)).end())
    assert slow[0] == first[0] and slow[2] == [verdicts.TIMEOUT, verdicts.PASSED]
    assert [list(pair) for pair in idle] == [["judge"]]  # the author was ended
    for role in ("judge", "author"):
        (pair,) = idle
        dead = pair[role]
        os.kill(dead.pid, signal.SIGKILL)
        assert eval(Job(judged(TRUE)).end())[2] == [verdicts.PASSED]
        assert dead.connection.fileno() == -1


def test_lean_ends_with_the_process_that_keeps_it(idle):
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


def test_no_two_jobs_get_one_pair(idle):
    """What is lent is lent to the next fork alone."""
    standby.STANDBY._lent["author"] = "a process"
    child = os.fork()
    if not child:
        os._exit(len(standby.STANDBY._lent))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert standby.STANDBY._lent == {}


WASM, NATIVE = Backend("wasm", "4.99.0", Path("/")), Backend("native", "4.99.0", Path("/"))


class Process:
    """Stands in for a process that is lent, and notes what is done with it."""

    def __init__(self, backend, header, role, waits=False):
        assert waits and (backend, header) == (WASM, "")
        self.lives = self.is_borrowed = True
        self.pid, self.events = 0, []
        self.renew, self.end = (
            lambda event=event: self.events.append(event) for event in ("renew", "end")
        )

    def wait_ready(self):
        pass

    def serves(self, backend, header):
        return (backend, header) == (WASM, "")


@pytest.fixture
def started(monkeypatch):
    """The stand-ins that were started."""
    processes = []

    def start(*arguments, **options):
        processes.append(Process(*arguments, **options))
        return processes[-1]

    monkeypatch.setattr(standby, "LeanProcess", start)
    monkeypatch.setattr(standby, "_backend", lambda: WASM)
    yield processes
    standby.STANDBY._lent.clear()


def test_where_no_pair_starts_none_is_lent(idle, started, monkeypatch):
    start = standby.LeanProcess

    def fail(backend, header, role, **options):
        if role == "judge":
            raise OSError("no memory")
        return start(backend, header, role, **options)

    monkeypatch.setattr(standby, "LeanProcess", fail)
    assert standby.lend() is None
    assert [process.events for process in started] == [["end"]]
    for backend in (None, NATIVE):
        monkeypatch.setattr(standby, "_backend", lambda backend=backend: backend)
        assert standby.lend() is None
    assert len(started) == 1 and standby.STANDBY._lent == {} and idle == []


def test_a_job_borrows_a_process_once_and_leaves_it_alive(started):
    standby.lend()
    author, judge = started
    assert standby.borrow("author", WASM, "open Nat\n") is None
    assert standby.borrow("author", NATIVE, "") is None
    with LeanChecker(60, backend=WASM) as checker:
        assert list(checker._processes.values()) == [author, judge]
        author.seconds, judge.seconds, author.answered, judge.answered = 1.0, 2.0, 3, 4
        assert (checker.wait_ready(), checker.answered) == (2.0, 3)
        assert standby.borrow("judge", WASM, "") is None
    assert author.events == judge.events == ["renew"]
    standby.lend()
    started[-1].is_borrowed = False  # by the process that owns it
    assert standby.borrow("judge", WASM, "") is None
