"""Workers of the mathematics grader that are lent to one job after another."""

import os
import signal
from functools import partial

import psutil
import pytest

from rapid.benchmarks import BENCHMARKS
from rapid.grading import verdicts
from rapid.grading.math.grader import STANDBY, MathGrader
from rapid.rewards import math_reward
from tests.grading.math.conftest import HALF
from tests.subprocesses import Borrower, assert_gone, wait_for

RIGHT, WRONG = "\\boxed{\\frac{2}{4}}", "\\boxed{\\frac{2}{5}}"
Job = partial(Borrower, BENCHMARKS["math"].lend)


@pytest.fixture(autouse=True)
def idle_workers():
    """The idle workers: none at the beginning and at the end of a test."""
    assert STANDBY._idle == []
    yield STANDBY._idle
    for workers in STANDBY._idle:
        workers["worker"].end()
    STANDBY._idle.clear()


def compare_answers(*answers: str, cores: list[int] | None = None, ending_signal: int = 0):
    """Return work for a job. It returns the pids of worker and child, the child's cores, and reasons."""

    def work():
        os.sched_setaffinity(0, cores or os.sched_getaffinity(0))
        with MathGrader(5.0) as grader:
            reasons = [grader.grade(HALF, answer).reason for answer in answers]
            (child,) = psutil.Process(grader._worker.pid).children()
            if ending_signal:
                os.kill(os.getpid(), ending_signal)
            return grader._worker.pid, child.pid, child.cpu_affinity(), reasons

    return work


def test_a_worker_is_reused_by_jobs_with_a_new_child(idle_workers):
    one_core = [min(os.sched_getaffinity(0))]
    first = eval(Job(compare_answers(RIGHT, WRONG)).end())
    second = eval(Job(compare_answers(WRONG, RIGHT, cores=one_core)).end())
    assert first[0] == second[0] == idle_workers[0]["worker"].pid
    assert first[1] != second[1]  # each job has a new child
    assert second[2] == one_core
    assert first[3] == [verdicts.PASSED, verdicts.WRONG_ANSWER] == second[3][::-1]


def test_a_job_has_its_worker_beside_the_shared_graders_of_rewards(idle_workers):
    """A fork forgets the workers of its parent's rewards, and no others."""
    assert math_reward([""], ["\\boxed{1}"], answer=["1"]) == [1.0]
    worker_pid, *_, reasons = eval(Job(compare_answers(RIGHT)).end())
    assert worker_pid == idle_workers[0]["worker"].pid
    assert reasons == [verdicts.PASSED]


def test_concurrent_jobs_have_a_worker_each(idle_workers):
    first, second = Job(compare_answers(RIGHT)), Job(compare_answers(RIGHT))
    assert eval(first.end())[0] != eval(second.end())[0]
    assert len(idle_workers) == 2


def test_the_worker_of_a_killed_job_is_ended(idle_workers):
    worker = eval(Job(compare_answers(RIGHT)).end())[0]
    Job(compare_answers(RIGHT, ending_signal=signal.SIGKILL)).end()
    assert idle_workers == []
    assert_gone(worker)


def test_a_worker_that_died_is_replaced_before_and_during_a_job(idle_workers):
    dead = eval(Job(compare_answers(RIGHT)).end())[0]
    os.kill(dead, signal.SIGKILL)
    alive, *_, reasons = eval(Job(compare_answers(RIGHT)).end())
    assert alive != dead and reasons == [verdicts.PASSED]
    Job(lambda: "did not need it").end()

    def work():
        with MathGrader(5.0) as grader:
            os.kill(grader._worker.pid, signal.SIGKILL)
            wait_for(lambda: not grader._worker.is_alive)
            return grader.grade(HALF, RIGHT).reason, grader._worker.is_borrowed

    assert eval(Job(work).end()) == (verdicts.PASSED, False)
    assert idle_workers == []
