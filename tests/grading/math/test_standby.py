"""A worker that is lent to one job after another."""

import os
import signal
from functools import partial

import psutil
import pytest

from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.math.record import MathProblem
from rapid.grading import verdicts
from rapid.grading.math.grader import STANDBY, MathGrader
from tests.subprocesses import Borrower, assert_gone, wait_for

PROBLEM = MathProblem(unique_id="half", problem="", answer="\\frac{1}{2}")
RIGHT, WRONG = "\\boxed{\\frac{2}{4}}", "\\boxed{\\frac{2}{5}}"
Job = partial(Borrower, BENCHMARKS["math"].lend)


@pytest.fixture(autouse=True)
def idle():
    """Begin and end with nothing kept."""
    assert STANDBY._idle == []
    yield STANDBY._idle
    for workers in STANDBY._idle:
        workers["worker"].end()
    STANDBY._idle.clear()


def compared(*answers: str, cores: list[int] | None = None, ends_by: int = 0):
    """Return work for a job: its worker, the child that compares, that one's cores, and reasons."""

    def work():
        os.sched_setaffinity(0, cores or os.sched_getaffinity(0))
        with MathGrader(5.0) as grader:
            reasons = [grader.grade(PROBLEM, answer).reason for answer in answers]
            (child,) = psutil.Process(grader._worker.pid).children()
            if ends_by:
                os.kill(os.getpid(), ends_by)
            return grader._worker.pid, child.pid, child.cpu_affinity(), reasons

    return work


def test_a_worker_goes_from_job_to_job_and_forgets(idle):
    core = [min(os.sched_getaffinity(0))]
    first = eval(Job(compared(RIGHT, WRONG)).end())
    second = eval(Job(compared(WRONG, RIGHT, cores=core)).end())
    assert first[0] == second[0] == idle[0]["worker"].pid
    assert first[1] != second[1]  # another child compares
    assert second[2] == core
    assert first[3] == [verdicts.PASSED, verdicts.WRONG_ANSWER] == second[3][::-1]


def test_two_jobs_at_a_time_have_a_worker_each(idle):
    first, second = Job(compared(RIGHT)), Job(compared(RIGHT))
    assert eval(first.end())[0] != eval(second.end())[0]
    assert len(idle) == 2


def test_the_worker_of_a_killed_job_is_ended(idle):
    worker = eval(Job(compared(RIGHT)).end())[0]
    Job(compared(RIGHT, ends_by=signal.SIGKILL)).end()
    assert idle == []
    assert_gone(worker)


def test_a_worker_that_died_is_replaced_before_a_job_and_within(idle):
    dead = eval(Job(compared(RIGHT)).end())[0]
    os.kill(dead, signal.SIGKILL)
    alive, *_, reasons = eval(Job(compared(RIGHT)).end())
    assert alive != dead and reasons == [verdicts.PASSED]
    Job(lambda: "did not need it").end()

    def work():
        with MathGrader(5.0) as grader:
            os.kill(grader._worker.pid, signal.SIGKILL)
            wait_for(lambda: not grader._worker.lives)
            return grader.grade(PROBLEM, RIGHT).reason, grader._worker.is_borrowed

    assert eval(Job(work).end()) == (verdicts.PASSED, False)
    assert idle == []
