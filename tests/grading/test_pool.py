"""Graders side by side, of which none is shared or lost, and a memory of their verdicts."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from rapid.benchmarks.math.record import MathProblem
from rapid.grading import verdicts
from rapid.grading.grader import GraderDied
from rapid.grading.pool import SteadyGrader

FIRST, SECOND = (MathProblem(unique_id=name, problem="", answer="1") for name in "ab")


class Fake:
    """A grader that fails to start on demand, may wait for others, and notices being shared."""

    def __init__(self, log, starts=True, everyone=None):
        self.log, self.starts, self.everyone = log, starts, everyone
        self.busy = threading.Lock()

    def __enter__(self):
        if not self.starts:
            raise OSError("no sandbox")
        self.log.append("started")
        return self

    def __exit__(self, *_):
        self.log.append("ended")

    def walls(self):
        return "a wall"

    def prepare(self, problem):
        self.log.append(f"prepared {problem.id}")

    def rehearse(self, exercises):
        self.log.append(f"rehearsed {exercises}")

    def grade(self, problem, completion):
        assert self.busy.acquire(blocking=False), "two threads in one grader"
        try:
            if completion == "broken":
                raise ValueError("broken")
            if self.everyone:
                self.everyone.wait(5)
            return verdicts.verdict("passed")
        finally:
            self.busy.release()


def pool(size, **settings):
    log = []
    return SteadyGrader("math", lambda: Fake(log, **settings), size), log


def grade(graders, completion):
    return graders.grade(FIRST, str(completion)).reward


@pytest.mark.parametrize(("size", "askers"), [(3, 3), (2, 8)])
def test_as_many_grade_at_a_time_as_there_are_graders(size, askers):
    """More threads wait for one."""
    graders, _ = pool(size, everyone=threading.Barrier(size))
    with graders, ThreadPoolExecutor(askers) as executor:
        assert list(executor.map(partial(grade, graders), range(120))) == [1.0] * 120


def test_a_grader_that_raised_grades_again():
    graders, _ = pool(1)
    with graders:
        for _ in range(3):
            with pytest.raises(ValueError, match="broken"):
                grade(graders, "broken")
        assert grade(graders, "right") == 1


def test_those_that_started_are_ended_if_one_does_not_start():
    log = []
    made = iter([Fake(log), Fake(log), Fake(log, starts=False)])
    graders = SteadyGrader("math", lambda: next(made), 3)
    with pytest.raises(OSError, match="no sandbox"), graders:
        pass
    assert log == ["started", "started", "ended", "ended"]


def test_a_problem_is_prepared_by_one_that_is_free():
    graders, log = pool(2)
    with graders:
        graders.prepare(FIRST)
        assert log.count("prepared a") == 1
        assert [grade(graders, n) for n in range(3)] == [1.0] * 3  # and it is free again
    assert log.count("started") == log.count("ended") == 2


def test_every_one_rehearses():
    graders, log = pool(1)
    graders.rehearse([])
    assert (log, graders.walls()) == (["rehearsed []"], "a wall")
    graders, log = pool(2)
    graders.rehearse([])
    assert log == ["rehearsed []"] * 2


class CountingGrader:
    def __init__(self):
        self.calls = []

    def grade(self, problem, completion):
        self.calls.append((problem.id, completion))
        return verdicts.verdict(verdicts.PASSED if completion == "1" else verdicts.WRONG_ANSWER)


def test_a_repeated_completion_of_a_problem_is_graded_once():
    counting = CountingGrader()
    grader = SteadyGrader("math", iter([counting]).__next__)  # one, unless more are asked for
    assert [grade(grader, text) for text in ("1", "2", "1")] == [1.0, 0.0, 1.0]
    assert grader.hits == 1
    grader.grade(SECOND, "1")
    assert grader.grade(FIRST, "\ud800").reason == verdicts.UNPARSABLE  # half a character
    assert counting.calls == [("a", "1"), ("a", "2"), ("b", "1")]


class SlowGrader(CountingGrader):
    """Waits until it is let go, and dies over the first `deaths` completions."""

    def __init__(self, deaths=0):
        super().__init__()
        self.deaths = deaths
        self.may_go = threading.Event()

    def grade(self, problem, completion):
        assert self.may_go.wait(30)
        verdict = super().grade(problem, completion)
        if len(self.calls) <= self.deaths:
            raise GraderDied("killed")
        return verdict


@pytest.mark.parametrize("deaths", [0, 1, 2])
def test_a_completion_that_is_being_graded_is_waited_for(deaths):
    """A death is no verdict: who waited asks again."""
    slow = SlowGrader(deaths)
    grader = SteadyGrader("math", lambda: slow)
    with ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(grader.grade, FIRST, "1") for _ in range(4)]
        slow.may_go.set()
        reasons = sorted(one.result().reason for one in waiting)
    graded = [reason for reason in reasons if reason != verdicts.INFRASTRUCTURE]
    assert set(graded) == {verdicts.PASSED} and len(graded) >= 3
    assert len(slow.calls) == 1 + deaths
