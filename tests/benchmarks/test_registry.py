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


THEOREM = LeanProblem(name="t", statement="theorem t : 1 = 1 := by")
# Benchmark, problem, completions that solve it and that do not, and what stands around them.
GRADED = [
    (
        "mbpp_plus",
        CODE,
        ["def double(n):\n    return n + n\n", "So:\n```python\ndef double(n): return 2 * n\n```"],
        ["def double(n):\n    return 4\n", "return 2 * n"],
        "no file but Python's library",
    ),
    (
        "math",
        QUESTION,
        [r"First \boxed{1}, no: \boxed{\frac{6}{8}}"],
        [r"\boxed{3/4} or \boxed{1}"],
        "",
    ),
    ("minif2f", THEOREM, [], [], ""),  # test_minif2f.py has completions
]


@pytest.mark.parametrize("name, problem, right, wrong, walls", GRADED)
def test_raw_completions_are_graded(name, problem, right, wrong, walls):
    """Half a character is no text, whatever it is about. Mathematics runs nothing."""
    with BENCHMARKS[name].grader(5) as grader:
        assert [grader.grade(problem, text).reward for text in right] == [1] * len(right)
        assert [grader.grade(problem, text).reward for text in wrong] == [0] * len(wrong)
        assert grader.grade(problem, "\ud800").reason == verdicts.UNPARSABLE
        if right:
            assert walls in grader.walls() and bool(walls) == bool(grader.walls())
