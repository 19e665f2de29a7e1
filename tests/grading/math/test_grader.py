"""Answers are graded by their mathematical meaning, and only the last box counts."""

import re
from pathlib import Path

import pytest

from rapid.grading import verdicts
from rapid.grading.math.grader import extract_last_boxed
from tests.grading.math.conftest import make_problem

BOXES = [
    ("so \\boxed{5}.", "5"), ("\\boxed{1} or rather \\boxed{ 2 } as shown", "2"), ("\\boxed{\\frac{1}{2}} }", "\\frac{1}{2}"),
    ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"), ("\\boxed{a \\boxed{b}}", "b"), ("\\boxed {7}", "7"), ("\\boxed{}", ""),
    ("\\boxed{1} then \\boxed{2", None), ("\\boxed 2$", "2"), ("\\boxed\\pi", "\\pi"), ("\\boxed12", "1"),
    ("\\boxed{1}, which is \\boxed.", None), ("\\boxedtext{5}", None), ("\\fbox{$5$}", "$5$"),
    ("\\boxed{1} and \\fbox{2}", "1"), ("5", None), ("", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "content"), BOXES)
def test_the_content_of_the_last_box_is_the_answer(text, content):
    assert extract_last_boxed(text) == content


RULES = Path(__file__).with_name("rules.txt").read_text(encoding="utf-8")
RULE = re.compile(r"    (.+?)(?: ✓ (.+?))?(?: ✗ (.+?))?(?: \? (.+))?")


@pytest.mark.parametrize("rule", [rule for rule in RULES.splitlines() if rule[:1] == " "])
def test_an_answer_is_graded_by_its_meaning(grader, rule):
    correct_answer, right_answers, wrong_answers, question = RULE.fullmatch(rule).groups(default="")
    assert right_answers or wrong_answers
    problem = make_problem(correct_answer).model_copy(update={"problem": question})
    for answers, reward in ((right_answers, 1.0), (wrong_answers, 0.0)):
        for answer in filter(None, answers.split(" | ")):
            verdict = grader.grade(problem, f"\\boxed{{{answer}}}")
            # A comparison that ends by its time limit or an error has reward 0 too.
            assert verdict.reason in (verdicts.PASSED, verdicts.WRONG_ANSWER, verdicts.UNPARSABLE)
            assert verdict.reward == reward, answer


@pytest.mark.parametrize("completion", ["5", "\\boxed{ }", "\\boxed{5"])
def test_a_completion_without_a_box_has_no_answer(grader, completion):
    assert grader.grade(make_problem("5"), completion).reason == verdicts.NO_ANSWER


def test_a_box_without_a_valid_expression_is_unparsable(grader):
    assert grader.grade(make_problem("5"), "\\boxed{\\frac}").reason == verdicts.UNPARSABLE


@pytest.mark.parametrize("answer", ["\\boxed{}", "\\boxed{5}", "\\boxed{\\text{ }}"])
def test_no_completion_passes_a_problem_without_an_answer(grader, answer):
    assert grader.grade(make_problem(""), answer).reward == 0.0
