"""The death of the worker that compares, or of its child, is no verdict on the completion."""

import json
import sys
import textwrap
import threading

import psutil
import pytest

from rapid.grading import limits
from rapid.grading.grader import GraderDied
from rapid.grading.math import grader as grader_module
from rapid.grading.math.grader import MathGrader
from rapid.grading.memory_cgroups import limit_memory
from rapid.grading.worker import Worker
from tests.grading.math.conftest import HALF
from tests.subprocesses import assert_gone, wait_for

# Bytes that answers need. Of 600 MB, two or three fit into the child's 2 GB.
SIZES = [*["600_000_000"] * 6, "3_000_000_000", "600_000_000"]


def get_comparing_child(grader: MathGrader) -> psutil.Process:
    (child,) = psutil.Process(grader._worker.pid).children()
    return child


def test_a_child_whose_memory_earlier_answers_have_filled_gives_no_verdict():
    """In place of the comparison is a function that keeps as many bytes as the answer says."""
    script = """
        import sys
        sys.path.insert(0, sys.argv[2])
        from importlib.util import module_from_spec, spec_from_file_location
        spec = spec_from_file_location("worker", sys.argv[2] + "/__main__.py")
        worker = module_from_spec(spec)
        spec.loader.exec_module(worker)
        kept = []
        def compare(gold, answer, question):
            try:
                kept.append(bytearray(int(answer)))
            except MemoryError:
                return "memory"
            return "passed"
        worker.compare, worker.WARM_UP_PAIRS = compare, []
        worker.main()
    """
    command = [sys.executable, "-c", textwrap.dedent(script), "2000000000"]
    with Worker(limit_memory([*command, str(grader_module._WORKER)])) as worker:
        requests = [{"gold": "", "answer": size, "question": "", "timeout": 60.0} for size in SIZES]
        replies = [worker.ask(json.dumps(request).encode() + b"\n", 120.0) for request in requests]
        worker.end()
    assert replies == [b"passed"] * 6 + [b"memory", b"passed"]


class TestMath:
    """The worker has a child that compares answers: here always 1/2 and 2/4."""

    ANSWER = "\\boxed{\\frac{2}{4}}"

    @pytest.fixture(scope="class")
    def started_grader(self):
        with MathGrader(5.0) as grader:
            yield grader

    @pytest.fixture
    def grader(self, started_grader):
        """A grader whose worker and child have compared an answer."""
        assert started_grader.grade(HALF, self.ANSWER).reward == 1
        return started_grader

    def test_an_idle_worker_that_died_is_replaced(self, grader):
        grader._worker.kill()
        grader._worker.wait()
        assert grader.grade(HALF, self.ANSWER).reward == 1

    def test_an_idle_child_that_died_is_replaced(self, grader):
        child = get_comparing_child(grader)
        child.kill()
        wait_for(lambda: child.status() == psutil.STATUS_ZOMBIE)
        assert grader.grade(HALF, self.ANSWER).reward == 1

    @pytest.mark.parametrize("victim_name", ["worker", "child"])
    def test_a_death_during_a_comparison_is_no_verdict(self, grader, victim_name):
        """The victim is stopped first, so that the question is sure to have arrived."""
        child = get_comparing_child(grader)
        victim = child if victim_name == "child" else psutil.Process(grader._worker.pid)
        victim.suspend()
        threading.Timer(0.3, victim.kill).start()
        with pytest.raises(GraderDied):
            grader.grade(HALF, self.ANSWER)
        assert_gone(child.pid)
        assert grader.grade(HALF, self.ANSWER).reward == 1

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
            grader.grade(HALF, self.ANSWER)
        monkeypatch.undo()
        grader.timeout = 5.0
        assert grader.grade(HALF, self.ANSWER).reward == 1
