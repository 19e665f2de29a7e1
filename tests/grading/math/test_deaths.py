"""What killed the worker that compares, or its child, says nothing of the completion."""

import threading

import psutil
import pytest

from rapid.benchmarks.math.record import MathProblem
from rapid.grading import limits
from rapid.grading.grader import GraderDied
from rapid.grading.math.grader import MathGrader
from tests.subprocesses import assert_gone, wait_for

PROBLEM = MathProblem(unique_id="half", problem="", answer="\\frac{1}{2}")


def comparing_child(grader: MathGrader) -> psutil.Process:
    (child,) = psutil.Process(grader._worker.pid).children()
    return child


class TestMath:
    """The worker, and the child of it that compares, here always 1/2 and 2/4."""

    ANSWER = "\\boxed{\\frac{2}{4}}"

    @pytest.fixture(scope="class")
    def started(self):
        with MathGrader(5.0) as grader:
            yield grader

    @pytest.fixture
    def grader(self, started):
        """With a worker and a child that have compared, whatever became of those before."""
        assert started.grade(PROBLEM, self.ANSWER).reward == 1
        return started

    def test_an_idle_worker_that_died_costs_nothing(self, grader):
        grader._worker.kill()
        grader._worker.wait()
        assert grader.grade(PROBLEM, self.ANSWER).reward == 1

    def test_an_idle_child_that_died_costs_nothing(self, grader):
        child = comparing_child(grader)
        child.kill()
        wait_for(lambda: child.status() == psutil.STATUS_ZOMBIE)
        assert grader.grade(PROBLEM, self.ANSWER).reward == 1

    @pytest.mark.parametrize("who", ["worker", "child"])
    def test_a_death_over_an_answer_is_no_verdict(self, grader, who):
        """Whoever is to die is stopped first, so that the question is sure to be there."""
        child = comparing_child(grader)
        victim = child if who == "child" else psutil.Process(grader._worker.pid)
        victim.suspend()
        threading.Timer(0.3, victim.kill).start()
        with pytest.raises(GraderDied):
            grader.grade(PROBLEM, self.ANSWER)
        assert_gone(child.pid)
        assert grader.grade(PROBLEM, self.ANSWER).reward == 1

    def test_a_worker_that_does_not_start_is_ended(self, monkeypatch):
        monkeypatch.setattr(limits, "MATH_START_SECONDS", 0.0)
        grader = MathGrader(5.0)
        with pytest.raises(GraderDied, match="did not start"):
            grader.__enter__()
        assert grader._worker is None

    def test_a_worker_that_does_not_respond_is_replaced(self, grader, monkeypatch):
        monkeypatch.setattr(limits, "MATH_REPLY_SECONDS", 0.1)
        grader.timeout = 0.1
        psutil.Process(grader._worker.pid).suspend()
        with pytest.raises(GraderDied, match="does not respond"):
            grader.grade(PROBLEM, self.ANSWER)
        monkeypatch.undo()
        grader.timeout = 5.0
        assert grader.grade(PROBLEM, self.ANSWER).reward == 1
