"""The benchmarks: their names, and graders of raw completions (test_minif2f.py has Lean's)."""

import pytest

from rapid.grading import verdicts
from rapid.records import CodeProblem, LeanProblem, MathProblem
from rapid.tasks import TASKS, get_task

CODE = CodeProblem(
    task_id="Mbpp/0",
    prompt='"""\nWrite a function to double a number.\nassert double(2) == 4\n"""\n',
    entry_point="double",
    canonical_solution="def double(n):\n    return 2 * n\n",
    base_input=[[2]],
    plus_input=[[0], [-3]],
)
QUESTION = MathProblem(unique_id="q", problem="What is $1/2+1/4$?", answer=r"\frac{3}{4}")


def test_unknown_benchmark_names_the_known_ones():
    with pytest.raises(
        ValueError, match="no benchmark 'gsm8k'; there are mbpp_plus, math, minif2f"
    ):
        get_task("gsm8k")


@pytest.mark.parametrize("name", TASKS)
def test_a_task_knows_its_name(name):
    assert get_task(name).name == name


@pytest.mark.parametrize(
    "name, problem, right, wrong",
    [
        ("mbpp_plus", CODE, "def double(n):\n    return n + n\n", "def double(n):\n    return 4\n"),
        ("mbpp_plus", CODE, "So:\n```python\ndef double(n): return 2 * n\n```", "return 2 * n"),
        (
            "math",
            QUESTION,
            r"First \boxed{1}, no: \boxed{\frac{6}{8}}",
            r"\boxed{3/4} or \boxed{1}",
        ),
    ],
)
def test_raw_completions_are_graded(name, problem, right, wrong):
    with get_task(name).grader(5) as grader:
        assert grader.grade(problem, right).reward == 1
        assert grader.grade(problem, wrong).reward == 0


@pytest.mark.parametrize(
    "name, problem",
    [
        ("mbpp_plus", CODE),
        ("math", QUESTION),
        ("minif2f", LeanProblem(name="t", statement="theorem t : 1 = 1 := by")),
    ],
)
def test_half_a_character_is_no_text(name, problem):
    with get_task(name).grader(5) as grader:
        assert grader.grade(problem, "\ud800").reason == verdicts.UNPARSABLE


def test_walls_are_said_where_completions_run():
    """Mathematics runs nothing."""
    with get_task("mbpp_plus").grader(5) as code, get_task("math").grader(5) as mathematics:
        assert "no file but Python's library" in code.walls()
        assert mathematics.walls() == ""
