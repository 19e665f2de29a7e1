"""The death of the sandbox's runner is no verdict on the completion."""

import threading

import pytest

from rapid.grading.code import sandbox as sandbox_module
from rapid.grading.code.grader import CodeGrader
from rapid.grading.code.sandbox import STOPPED, Sandbox, encode_job
from rapid.grading.grader import GraderDied
from rapid.grading.pool import GraderPool


class TestSandbox:
    ENDLESS = encode_job("def f():\n    while True: pass", "f", "[[]]")

    def test_an_idle_runner_that_died_is_replaced_behind_the_same_layer(self, layer, double):
        with CodeGrader(5.0, Sandbox(layer=layer)) as grader:
            grader.prepare(double)
            grader._sandbox._runner.kill()
            grader._sandbox._runner.wait()
            assert grader.grade(double, double.canonical_solution).reward == 1
            assert grader._sandbox.layer == layer

    def test_a_runner_that_dies_during_a_job_raises_grader_died(self, layer):
        with Sandbox(layer=layer) as sandbox:
            threading.Timer(0.3, sandbox._runner.kill).start()
            with pytest.raises(GraderDied):
                sandbox.run(self.ENDLESS, 30.0, lambda line: True, 100)
            job = encode_job("def f(): return 1", "f", "[[]]")
            assert sandbox.run(job, 30.0, lambda line: False, 100) == STOPPED

    def test_an_answer_received_before_the_runner_died_is_kept(self):
        with Sandbox() as sandbox:

            def receive(line):
                sandbox._runner.kill()
                return False

            job = encode_job("def f(): return 1", "f", "[[]]")
            assert sandbox.run(job, 30.0, receive, 100) == STOPPED

    def test_a_runner_that_dies_during_a_reference_does_not_make_the_problem_bad(self, double):
        slow = "import time\ndef f(x):\n    time.sleep(0.3)\n    return 2 * x\n"
        problem = double.model_copy(update={"canonical_solution": slow})
        code_grader = CodeGrader(5.0)
        with GraderPool("mbpp_plus", lambda: code_grader) as grader:
            threading.Timer(0.3, code_grader._sandbox._runner.kill).start()
            assert grader.grade(problem, "def f(x): return 2 * x").reward == 1

    def test_a_runner_that_cannot_be_restarted_raises_grader_died(self, monkeypatch):
        with Sandbox() as sandbox:
            sandbox._stop()
            monkeypatch.setattr(sandbox_module, "_PYTHON", "/nowhere")
            with pytest.raises(GraderDied, match="nowhere"):
                sandbox.run(self.ENDLESS, 30.0, lambda line: True, 100)
