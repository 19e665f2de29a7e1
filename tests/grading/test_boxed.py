"""Mathematical answers are graded by what they mean, and by the last box alone."""

import time

import pytest

from rapid.grading import reasons
from rapid.grading.boxed import MathGrader, last_boxed
from rapid.records import MathProblem


@pytest.fixture(scope="module")
def grader():
    with MathGrader(timeout=10.0) as grader:
        yield grader


def problem(answer: str) -> MathProblem:
    return MathProblem(unique_id=answer, problem="", answer=answer)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("so \\boxed{5}.", "5"),
        ("\\boxed{1} or rather \\boxed{ 2 }", "2"),
        ("\\boxed{\\frac{1}{2}} }", "\\frac{1}{2}"),
        ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"),
        ("\\boxed{a \\boxed{b}}", "b"),
        ("\\boxed {7}", "7"),
        ("\\boxed{}", ""),
        ("\\boxed{1} then \\boxed{2", None),
        ("5", None),
        ("", None),
    ],
)
def test_the_last_box_is_found(text, content):
    assert last_boxed(text) == content


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("5", "5"),
        ("5", "x = 5"),
        ("5", "5.0"),
        ("5", "\\$5"),
        ("5", "5 \\text{ cm}"),
        ("\\frac{1}{2}", "\\dfrac12"),
        ("\\frac{1}{2}", "0.5"),
        ("\\frac{1}{2}", "1/2"),
        ("1000", "1,000"),
        ("30\\%", "30"),
        ("30\\%", "0.3"),
        ("1,2", "2, 1"),
        ("x^2+2x+1", "(x+1)^2"),
        ("2\\sqrt{2}", "\\sqrt{8}"),
        ("\\text{(E)},", "\\text{(E)},"),
        ("(1, 2]", "(1,2]"),
    ],
)
def test_the_same_answer_passes(grader, gold, answer):
    verdict = grader.grade(problem(gold), f"Hence $\\boxed{{{answer}}}$.")
    assert (verdict.reward, verdict.reason) == (1.0, reasons.PASSED)


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("5", "6"),
        ("5", "5 or 6"),
        ("5", "\\{5, 6\\}"),
        ("(1,2)", "(2,1)"),
        ("(1,2)", "[1,2]"),
        ("\\frac{1}{2}", "anything \\frac{1}{2} anything"),
        ("\\text{red}", "\\text{blue}"),
    ],
)
def test_another_answer_fails(grader, gold, answer):
    verdict = grader.grade(problem(gold), f"\\boxed{{{answer}}}")
    assert (verdict.reward, verdict.reason) == (0.0, reasons.WRONG_ANSWER)


@pytest.mark.parametrize("completion", ["5", "", "\\boxed{}", "\\boxed{ }", "\\boxed{5"])
def test_without_a_box_there_is_no_answer(grader, completion):
    assert grader.grade(problem("5"), completion).reason == reasons.NO_ANSWER


def test_what_is_no_expression_is_unparsable(grader):
    assert grader.grade(problem("5"), "\\boxed{\\frac}").reason == reasons.UNPARSABLE


@pytest.mark.parametrize("answer", ["\\boxed{}", "\\boxed{5}", "\\boxed{\\text{ }}"])
def test_a_problem_without_an_answer_is_passed_by_nothing(grader, answer):
    assert grader.grade(problem(""), answer).reward == 0.0


def test_the_order_of_box_and_text_is_free(grader):
    assert grader.grade(problem("5"), "\\boxed{5}" + " as shown." * 1000).reward == 1.0


def test_an_answer_without_end_costs_its_timeout():
    with MathGrader(timeout=0.5) as grader:
        start = time.monotonic()
        verdict = grader.grade(problem("1"), "\\boxed{9^{9^{9^9}}}")
        assert verdict.reason == reasons.TIMEOUT
        assert 0.5 <= time.monotonic() - start < 2.0


def test_the_next_answer_after_a_timeout_is_graded():
    with MathGrader(timeout=1.0) as grader:
        grader.grade(problem("1"), "\\boxed{9999999999!}")
        assert grader.grade(problem("2"), "\\boxed{1 + 1}").reason == reasons.PASSED


def test_the_death_of_the_worker_is_survived(grader):
    grader._worker.kill()
    grader._worker.wait()
    assert grader.grade(problem("2"), "\\boxed{1 + 1}").reason == reasons.PASSED


def test_nothing_runs_on_after_the_grader():
    with MathGrader(timeout=1.0) as grader:
        worker = grader._worker
    assert worker.poll() is not None
