"""What killed the sandbox's runner says nothing of the completion."""

import threading

import pytest

from rapid.grading.code import sandbox as sandbox_module
from rapid.grading.code.grader import CodeGrader
from rapid.grading.code.sandbox import STOPPED, Sandbox, encode_job
from rapid.grading.grader import GraderDied
from rapid.grading.pool import SteadyGrader


class TestSandbox:
    ENDLESS = encode_job("def f():\n    while True: pass", "f", "[[]]")

    def test_an_idle_runner_that_died_costs_nothing_and_no_wall(self, layer, double):
        with CodeGrader(5.0, layer=layer) as grader:
            grader.prepare(double)
            grader._sandbox._runner.kill()
            grader._sandbox._runner.wait()
            assert grader.grade(double, double.canonical_solution).reward == 1
            assert grader._sandbox.layer == layer

    def test_a_runner_that_dies_over_a_job_is_no_verdict(self, layer):
        with Sandbox(layer=layer) as fresh:
            threading.Timer(0.3, fresh._runner.kill).start()
            with pytest.raises(GraderDied):
                fresh.run(self.ENDLESS, 30.0, lambda line: True, 100)
            job = encode_job("def f(): return 1", "f", "[[]]")
            assert fresh.run(job, 30.0, lambda line: False, 100) == STOPPED

    def test_what_was_answered_before_the_runner_died_stands(self):
        with Sandbox() as fresh:

            def receive(line):
                fresh._runner.kill()
                return False

            job = encode_job("def f(): return 1", "f", "[[]]")
            assert fresh.run(job, 30.0, receive, 100) == STOPPED

    def test_a_runner_that_dies_over_a_reference_is_not_a_bad_problem(self, double):
        slow = "import time\ndef f(x):\n    time.sleep(0.3)\n    return 2 * x\n"
        problem = double.model_copy(update={"canonical_solution": slow})
        inner = CodeGrader(5.0)
        with SteadyGrader("mbpp_plus", lambda: inner) as grader:
            threading.Timer(0.3, inner._sandbox._runner.kill).start()
            assert grader.grade(problem, "def f(x): return 2 * x").reward == 1

    def test_a_runner_that_does_not_start_again_is_a_death(self, monkeypatch):
        with Sandbox() as fresh:
            fresh._stop()
            monkeypatch.setattr(sandbox_module, "_PYTHON", "/nowhere")
            with pytest.raises(GraderDied, match="nowhere"):
                fresh.run(self.ENDLESS, 30.0, lambda line: True, 100)
