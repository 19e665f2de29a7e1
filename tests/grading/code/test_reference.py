"""Reference solutions are run once, shared by graders, and set the limits of completions."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from rapid.grading import limits, verdicts
from rapid.grading.code import grader as code_grader
from rapid.grading.code.grader import CodeGrader
from rapid.grading.code.reference import SlowReference, run_reference
from rapid.grading.grader import BadProblem
from rapid.grading.pool import GraderPool
from rapid.grading.result_cache import ResultCache


@pytest.fixture
def reference_runs(monkeypatch):
    """The ids of the problems whose references were run, in order."""
    ids = []

    def run(problem, sandbox):
        ids.append(problem.id)
        return run_reference(problem, sandbox)

    monkeypatch.setattr(code_grader, "run_reference", run)
    return ids


def test_graders_of_a_pool_run_the_reference_of_a_problem_once(double, reference_runs):
    shared = ResultCache(2)
    with (
        GraderPool("mbpp_plus", lambda: CodeGrader(5.0, references=shared), 2) as pool,
        ThreadPoolExecutor(2) as threads,
    ):
        pool.prepare(double)
        assert reference_runs == ["double"]
        programs = [f"{double.canonical_solution}# {n}" for n in range(8)]
        verdicts_of_programs = list(threads.map(pool.grade, [double] * 8, programs))
    assert {verdict.reason for verdict in verdicts_of_programs} == {verdicts.PASSED}
    assert reference_runs == ["double"]


def test_the_references_that_were_used_last_are_kept(double, reference_runs, grader, monkeypatch):
    monkeypatch.setattr(limits, "MAX_REFERENCES", 2)
    problems = {name: double.model_copy(update={"task_id": name}) for name in "abc"}
    other_grader = CodeGrader(1.0, grader._sandbox)
    for name in "abacab":
        other_grader.get_reference(problems[name])
    assert reference_runs == [*"abc", "b"]


def test_references_of_different_problems_run_concurrently(double, monkeypatch):
    """Each run ends only when both have begun."""
    barrier = threading.Barrier(2, timeout=10.0)
    monkeypatch.setattr(code_grader, "run_reference", lambda *_: barrier.wait())
    second_problem = double.model_copy(update={"task_id": "other"})
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(CodeGrader(1.0).prepare, [double, second_problem]))


def test_stored_inputs_are_restored_to_the_types_of_the_task(grader, double):
    """The inputs of MBPP+ are stored as JSON, which has no tuples."""
    program = "def f(a, b): return type(a).__name__, type(b).__name__"
    stored = double.model_copy(
        update={
            "task_id": "Mbpp/2",
            "canonical_solution": program,
            "base_input": [[[1], [2]]],
            "plus_input": [[[3], [4]]],
        }
    )
    reference = grader.get_reference(stored)
    assert reference.inputs == [[(1,), (2,)], [(3,), (4,)]]
    assert reference.expected == [("tuple", "tuple")] * 2


def test_a_completion_cannot_change_the_inputs_of_another(grader, double):
    greedy = "def f(x):\n    x.append(0)\n    return len(x)"
    problem = double.model_copy(
        update={"canonical_solution": greedy, "base_input": [[[]]], "plus_input": [[[1]], [[1]]]}
    )
    assert grader.get_reference(problem).expected == [1, 2, 2]
    for _ in range(2):
        assert grader.grade(problem, greedy).reason == verdicts.PASSED
    assert grader.get_reference(problem).inputs == [[[]], [[1]], [[1]]]


def test_problems_with_the_same_id_and_other_content_have_their_own_references(grader, double):
    """They also have their own cached verdicts."""
    triple = double.model_copy(update={"canonical_solution": "def f(x): return 3 * x"})
    assert triple.id == double.id
    caching_grader = GraderPool("mbpp_plus", lambda: grader)
    for problem in (double, triple):
        assert caching_grader.grade(problem, problem.canonical_solution).reason == verdicts.PASSED
    assert caching_grader.grade(triple, double.canonical_solution).reason == verdicts.WRONG_ANSWER


def test_the_tolerance_of_a_problem_is_used(grader, double):
    halves = {"canonical_solution": "def f(x): return 0.5", "atol": 0.01}
    problem = double.model_copy(update=halves)
    assert grader.grade(problem, "def f(x): return 0.509").reason == verdicts.PASSED
    assert grader.grade(problem, "def f(x): return 0.511").reason == verdicts.WRONG_ANSWER


@pytest.mark.parametrize(
    ("reference_seconds", "timeout", "limit"),
    [(4.9, 20.0, 20.0), (6.0, 20.0, 24.0), (99, 20.0, 60), (99, 90, 90)],
)
def test_a_completion_gets_four_times_as_long_as_a_slow_reference(
    grader, double, reference_seconds, timeout, limit
):
    reference = grader.get_reference(double)
    assert replace(reference, seconds=reference_seconds).compute_time_limit(
        timeout
    ) == pytest.approx(limit)


def test_a_completion_as_slow_as_a_slow_reference_passes(grader, double):
    slow, start = "import time\ndef f(x):\n    time.sleep(0.3)\n    return 2 * x", time.monotonic()
    problem = double.model_copy(update={"canonical_solution": slow})
    assert grader.grade(problem, slow).reason == verdicts.PASSED  # 1.2 s, with a timeout of 1 s
    reference = grader.get_reference(problem)
    assert 1.2 <= reference.seconds <= time.monotonic() - start


@pytest.mark.parametrize(
    "solution",
    [
        "def f(x): raise ValueError",
        "def f(x): return 1 // (10**30 - x)",  # fails at its last input
        "def f(x",
        "import os\nos._exit(0)",
        "def f(x): return f(x)",
    ],
)
def test_a_failing_reference_is_an_error_every_time(grader, double, solution):
    bad = double.model_copy(update={"canonical_solution": solution})
    message = "double: the reference solution failed: (crashed|unparsable|the process ended)$"
    for _ in range(2):
        with pytest.raises(BadProblem, match=message):
            grader.grade(bad, "def f(x): return 1")
    assert grader.grade(double, double.canonical_solution).reason == verdicts.PASSED


def test_a_reference_that_does_not_end_is_run_once(grader, double, reference_runs, monkeypatch):
    monkeypatch.setattr(limits, "REFERENCE_SECONDS", 0.5)
    endless = double.model_copy(update={"canonical_solution": "def f(x):\n    while True: pass"})
    for _ in range(2):
        with pytest.raises(SlowReference, match="double: the reference solution failed: timed out"):
            grader.grade(endless, "def f(x): return 1")
    assert reference_runs == ["double"]


def test_an_output_may_be_as_long_as_the_longest_expected_one(grader, double):
    halves = "def f(n): return [i / 2 for i in range(n)]"
    changes = {"canonical_solution": halves, "base_input": [[0], [40_000]], "plus_input": []}
    assert grader.grade(double.model_copy(update=changes), halves).reason == verdicts.PASSED


def test_a_long_expected_output_is_compared_by_its_digest(grader, double):
    many = double.model_copy(
        update={"canonical_solution": "def f(x): return [(x, i) for i in range(60_000)]"}
    )
    right = "def f(x):\n    for i in range(1): return list(zip([x] * 60_000, range(60_000)))"
    assert grader.grade(many, right).reason == verdicts.PASSED
    wrong = "def f(x): return [(x, i) for i in range(59_999)] + [(x, 0)]"
    assert grader.grade(many, wrong).reason == verdicts.WRONG_ANSWER
