"""The benchmarks: their names, and graders of raw completions (test_minif2f.py has Lean's)."""

import pytest

from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.math.record import MathProblem
from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.benchmarks.minif2f.record import LeanProblem
from rapid.grading import verdicts

CODE = CodeProblem(
    task_id="Mbpp/0",
    prompt='"""\nWrite a function to double a number.\nassert double(2) == 4\n"""\n',
    entry_point="double",
    canonical_solution="def double(n):\n    return 2 * n\n",
    base_input=[[2]],
    plus_input=[[0], [-3]],
)
QUESTION = MathProblem(unique_id="q", problem="What is $1/2+1/4$?", answer=r"\frac{3}{4}")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_has_the_name_of_its_folder(name):
    assert BENCHMARKS[name].name == name == type(BENCHMARKS[name]).__module__.split(".")[2]


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
    with BENCHMARKS[name].grader(5) as grader:
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
    with BENCHMARKS[name].grader(5) as grader:
        assert grader.grade(problem, "\ud800").reason == verdicts.UNPARSABLE


def test_walls_are_said_where_completions_run():
    """Mathematics runs nothing."""
    with BENCHMARKS["mbpp_plus"].grader(5) as code, BENCHMARKS["math"].grader(5) as mathematics:
        assert "no file but Python's library" in code.walls()
        assert mathematics.walls() == ""
