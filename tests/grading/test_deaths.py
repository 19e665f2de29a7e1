"""The death of a grader says nothing of the completion: asked again, then a verdict without reward."""

import json
import sys
import threading
import time
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from rapid.cli import run
from rapid.grading import boxed, reasons
from rapid.grading import sandbox as sandbox_module
from rapid.grading.base import GraderDied, GradingFailed, SteadyGrader, steady
from rapid.grading.boxed import MathGrader
from rapid.grading.code import CodeGrader
from rapid.grading.sandbox import ENDED, STOPPED, Sandbox, encode_job
from rapid.records import MathProblem
from rapid.tasks import TASKS, get_task
from rapid.tasks.minif2f import LeanGrader

PROBLEM = MathProblem(unique_id="half", problem="", answer="\\frac{1}{2}")


class Mortal:
    """A grader that dies over a completion as often as it is told to, and else passes it."""

    def __init__(self, deaths: dict[str, int] | None = None):
        self.deaths = deaths or {}
        self.graded: list[str] = []
        self.prepared = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def prepare(self, problem):
        self.prepared += 1
        if self.prepared == 1:
            raise GraderDied("while it prepared")

    def grade(self, problem, completion):
        self.graded.append(completion)
        if self.deaths.get(completion, 0) >= self.graded.count(completion):
            raise GraderDied(f"over {completion}")
        return reasons.verdict(reasons.PASSED)


def grade(grader: SteadyGrader, *completions: str) -> list[str]:
    return [grader.grade(PROBLEM, completion).reason for completion in completions]


class TestSteadyGrader:
    def test_one_death_costs_nothing(self):
        grader = SteadyGrader("math", Mortal({"a": 1}))
        assert grade(grader, "a", "b") == ["passed", "passed"]
        assert grader.grader.graded == ["a", "a", "b"]

    def test_a_second_death_is_a_verdict_without_reward(self):
        grader = SteadyGrader("math", Mortal({"a": 2}))
        verdict = grader.grade(PROBLEM, "a")
        assert (verdict.reward, verdict.reason) == (None, "infrastructure")
        assert len(grader.grader.graded) == 2

    def test_verdicts_are_counted_by_reason(self):
        grader = steady("math", lambda: Mortal({"a": 2, "b": 1}), 1)
        with grader:
            grade(grader, "a", "b", "c", "c")
        assert grader.reasons == {"infrastructure": 1, "passed": 3}

    def test_a_death_is_not_remembered(self):
        with steady("math", lambda: Mortal({"a": 2}), 1) as grader:
            assert grade(grader, "a", "a") == ["infrastructure", "passed"]

    def test_a_death_while_a_problem_is_prepared_costs_nothing(self):
        grader = SteadyGrader("math", Mortal())
        grader.prepare(PROBLEM)
        assert grader.grader.prepared == 2

    @pytest.mark.parametrize(
        ("graded", "most"), [(0, 1), (99, 1), (198, 2), (296, 2), (297, 3)], ids=lambda n: str(n)
    )
    def test_more_than_one_and_one_percent_end_the_job(self, graded, most):
        doomed = {f"dead {i}": 2 for i in range(most + 1)}
        grader = SteadyGrader("math", Mortal(doomed))
        grade(grader, *["fine"] * graded)
        assert grade(grader, *list(doomed)[:-1]) == ["infrastructure"] * most
        with pytest.raises(GradingFailed) as raised:
            grade(grader, list(doomed)[-1])
        total = graded + most + 1
        assert f"grader of math died twice over each of {most + 1} of {total} " in str(raised.value)
        assert f"over dead {most}" in str(raised.value)

    def test_a_job_that_has_failed_fails_in_every_thread(self):
        grader = SteadyGrader("math", Mortal({"a": 9, "b": 9}))
        with suppress(GradingFailed):
            grade(grader, "a", "b")
        with pytest.raises(GradingFailed, match="over b"):
            grade(grader, "fine")

    @pytest.mark.parametrize("name", TASKS)
    def test_every_benchmark_has_one(self, name):
        assert isinstance(get_task(name).grader(1.0), SteadyGrader)


@pytest.fixture
def doomed(tmp_path, monkeypatch):
    """The command that grades so many completions over which the mathematics grader dies."""

    def die(*_):
        raise GraderDied("killed in a test")

    def command(count: int) -> list[str]:
        rows = [{"id": "1", "completion": f"\\boxed{{{n + 2}}}"} for n in range(count)]
        (tmp_path / "c").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / "p").write_text('{"problem": "?", "answer": "1", "unique_id": "1"}\n')
        files = ["--problems", str(tmp_path / "p"), "--completions", str(tmp_path / "c")]
        return ["grade", "--benchmark", "math", "--workers", "1", *files]

    monkeypatch.setattr(MathGrader, "_compare", die)
    return command


def test_rapid_grade_ends_with_the_message(doomed, capsys):
    assert run(doomed(2)) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "died twice over each of 2 of 2 completions" in printed.err
    assert "killed in a test" in printed.err


def test_rapid_grade_says_what_was_not_graded(doomed, capsys):
    assert run(doomed(1)) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"id": "1", "reward": None, "reason": "infrastructure"}
    assert "1 of 1 not graded" in printed.err


def test_lean_that_died_is_asked_again(monkeypatch):
    died = []

    class Checker:
        def wait_ready(self):
            pass

        def check(self, *_):
            if not died:
                died.append(True)
                raise GraderDied("Lean ended")
            return reasons.verdict(reasons.PASSED)

    monkeypatch.setattr(LeanGrader, "_checker", lambda self, header: Checker())
    theorem = SimpleNamespace(header="", formal_statement="theorem p : True := by", name="p")
    assert SteadyGrader("minif2f", LeanGrader(5.0)).grade(theorem, "trivial").reward == 1


class TestSandbox:
    ENDLESS = encode_job("def f():\n    while True: pass", "f", "[[]]")

    def test_an_idle_runner_that_died_costs_nothing(self, layer, double):
        with CodeGrader(5.0, layer=layer) as grader:
            grader.prepare(double)
            grader._sandbox._runner.kill()
            grader._sandbox._runner.wait()
            assert grader.grade(double, double.canonical_solution).reward == 1

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

    def test_a_child_that_ends_itself_is_the_completions_failure(self, sandbox):
        job = encode_job("import os\ndef f(): os.kill(os.getpid(), 9)", "f", "[[]]")
        assert sandbox.run(job, 30.0, lambda line: True, 100) == ENDED

    def test_no_completion_says_that_it_was_not_graded(self, double):
        """It speaks the runner's language, and claims the runner's excuse."""
        claim = json.dumps({"reason": "infrastructure"}) + "\n"
        program = (
            "import gc, os, socket\n"
            "def f(x):\n"
            "    for one in gc.get_objects():\n"
            "        if isinstance(one, socket.socket) and one.fileno() >= 0:\n"
            f"            os.write(one.fileno(), {claim.encode()!r})\n"
            "    os._exit(0)\n"
        )
        with CodeGrader(5.0) as grader:
            assert grader.grade(double, program).reason == reasons.CRASHED

    def test_a_runner_that_dies_over_a_reference_is_not_a_bad_problem(self, double):
        slow = "import time\ndef f(x):\n    time.sleep(0.3)\n    return 2 * x\n"
        problem = double.model_copy(update={"canonical_solution": slow})
        inner = CodeGrader(5.0)
        with SteadyGrader("mbpp_plus", inner) as grader:
            threading.Timer(0.3, inner._sandbox._runner.kill).start()
            assert grader.grade(problem, "def f(x): return 2 * x").reward == 1

    def test_a_runner_that_does_not_start_again_is_a_death(self, monkeypatch):
        with Sandbox() as fresh:
            fresh._stop()
            monkeypatch.setattr(sandbox_module, "_PYTHON", "/nowhere")
            with pytest.raises(GraderDied, match="nowhere"):
                fresh.run(self.ENDLESS, 30.0, lambda line: True, 100)


def comparing_child(grader: MathGrader) -> psutil.Process:
    (child,) = psutil.Process(grader._worker.pid).children()
    return child


class TestMath:
    """The worker, and the child of it that compares, here always 1/2 and 2/4."""

    ANSWER = "\\boxed{\\frac{2}{4}}"

    @pytest.fixture
    def grader(self):
        with MathGrader(5.0) as grader:
            grader.grade(PROBLEM, self.ANSWER)
            yield grader

    def test_an_idle_worker_that_died_costs_nothing(self, grader):
        grader._worker.kill()
        grader._worker.wait()
        assert grader.grade(PROBLEM, self.ANSWER).reward == 1

    def test_an_idle_child_that_died_costs_nothing(self, grader):
        child = comparing_child(grader)
        child.kill()
        while child.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
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
        assert_gone(child)
        assert grader.grade(PROBLEM, self.ANSWER).reward == 1

    def test_the_alarm_is_the_answers_failure(self):
        with MathGrader(0.001) as grader:
            assert grader.grade(PROBLEM, self.ANSWER).reason == reasons.TIMEOUT

    def test_a_worker_that_does_not_respond_is_replaced(self, grader, monkeypatch):
        monkeypatch.setattr(boxed, "REPLY_SECONDS", 0.1)
        grader.timeout = 0.1
        psutil.Process(grader._worker.pid).suspend()
        with pytest.raises(GraderDied, match="does not respond"):
            grader.grade(PROBLEM, self.ANSWER)
        monkeypatch.undo()
        grader.timeout = 5.0
        assert grader.grade(PROBLEM, self.ANSWER).reward == 1


def assert_gone(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        deadline = time.monotonic() + 30
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def kill_one(victims: list[psutil.Process], dice: np.random.Generator) -> None:
    with suppress(psutil.NoSuchProcess):
        victims[dice.integers(len(victims))].kill()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds processes as Linux does")
@pytest.mark.parametrize("kind", ["code", "math"])
def test_kills_at_random_moments_change_no_verdict(kind, double):
    """Fifty kills of any process of the graders; two over one completion would be one too many."""
    if kind == "code":
        problem, make, longest = double, lambda: CodeGrader(20.0), 0.02
        right, wrong = double.canonical_solution, "def f(x): return x"
        texts = [f"{text}\n# {n}" for n in range(150) for text in (right, wrong)]
    else:
        problem, make, longest = PROBLEM, lambda: MathGrader(20.0), 0.005
        texts = [f"\\boxed{{\\frac{{{n}}}{{{2 * n + k}}}}}" for n in range(2, 152) for k in (0, 1)]
    before = set(descendants())
    dice = np.random.default_rng(0)
    with steady(kind, make, 1) as grader:
        grader.prepare(problem)
        found = []
        for number, text in enumerate(texts):
            if number % 6:
                found.append(grader.grade(problem, text).reason)
                continue
            victims = [process for process in descendants() if process not in before]
            kill = threading.Timer(dice.uniform(0, longest), kill_one, (victims, dice))
            kill.start()
            found.append(grader.grade(problem, text).reason)
            kill.join()
    assert found == [reasons.PASSED, reasons.WRONG_ANSWER] * (len(texts) // 2)
    deadline = time.monotonic() + 10
    while (left := set(descendants()) - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
