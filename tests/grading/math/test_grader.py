"""Mathematical answers are graded by what they mean, and by the last box alone."""

import re
from pathlib import Path

import pytest

from rapid.benchmarks.math.record import MathProblem
from rapid.grading import verdicts
from rapid.grading.math.grader import last_boxed


def problem(answer: str) -> MathProblem:
    return MathProblem(unique_id=answer, problem="", answer=answer)


BOXES = [
    ("so \\boxed{5}.", "5"), ("\\boxed{1} or rather \\boxed{ 2 } as shown", "2"), ("\\boxed{\\frac{1}{2}} }", "\\frac{1}{2}"),
    ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"), ("\\boxed{a \\boxed{b}}", "b"), ("\\boxed {7}", "7"), ("\\boxed{}", ""),
    ("\\boxed{1} then \\boxed{2", None), ("\\boxed 2$", "2"), ("\\boxed\\pi", "\\pi"), ("\\boxed12", "1"),
    ("\\boxed{1}, which is \\boxed.", None), ("\\boxedtext{5}", None), ("\\fbox{$5$}", "$5$"),
    ("\\boxed{1} and \\fbox{2}", "1"), ("5", None), ("", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "content"), BOXES)
def test_the_last_box_is_found(text, content):
    assert last_boxed(text) == content


RULES = Path(__file__).with_name("rules.txt").read_text(encoding="utf-8")
LINE = re.compile(r"    (.+?)(?: ✓ (.+?))?(?: ✗ (.+?))?(?: \? (.+))?")


@pytest.mark.parametrize("line", [line for line in RULES.splitlines() if line[:1] == " "])
def test_an_answer_is_graded_by_what_it_means(grader, line):
    gold, right, wrong, question = LINE.fullmatch(line).groups(default="")
    assert right or wrong
    asked_problem = problem(gold).model_copy(update={"problem": question})
    for answers, reward in ((right, 1.0), (wrong, 0.0)):
        for answer in filter(None, answers.split(" | ")):
            assert grader.grade(asked_problem, f"\\boxed{{{answer}}}").reward == reward, answer


@pytest.mark.parametrize("completion", ["5", "\\boxed{ }", "\\boxed{5"])
def test_without_a_box_there_is_no_answer(grader, completion):
    assert grader.grade(problem("5"), completion).reason == verdicts.NO_ANSWER


def test_what_is_no_expression_is_unparsable(grader):
    assert grader.grade(problem("5"), "\\boxed{\\frac}").reason == verdicts.UNPARSABLE


@pytest.mark.parametrize("answer", ["\\boxed{}", "\\boxed{5}", "\\boxed{\\text{ }}"])
def test_a_problem_without_an_answer_is_passed_by_nothing(grader, answer):
    assert grader.grade(problem(""), answer).reward == 0.0
