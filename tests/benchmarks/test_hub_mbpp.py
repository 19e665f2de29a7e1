"""The hub's form of MBPP+: a test program, read and never run."""

import math

import pytest

from rapid.benchmarks.mbpp_plus.published import from_hub
from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.grading.code.oracle import restore_inputs

TEST = """import numpy as np
from math import inf

def assertion(out, exp, atol):
    assert out == exp

{inputs}
results = [0]
for i, (inp, exp) in enumerate(zip(inputs, results)):
    {assertion}
"""


def row(inputs="inputs = [[1], [2]]", assertion="assertion(double(*inp), exp, 0)", **changes):
    return {
        "task_id": 9000,
        "code": "def double(n):\n    return 2 * n",
        "prompt": "Write a function to double a number.",
        "test_list": ["assert double(2) == 4", "assert double(3) == 6"],
        "test": TEST.format(inputs=inputs, assertion=assertion),
        **changes,
    }


def problem(**changes) -> CodeProblem:
    """As the preparation stage writes it and later stages read it."""
    parsed = CodeProblem.model_validate(from_hub(row(**changes)))
    return CodeProblem.model_validate_json(parsed.model_dump_json())


def test_fields_are_those_of_the_release():
    task = problem()
    assert task.task_id == "Mbpp/9000"
    assert task.entry_point == "double"
    assert task.canonical_solution == "def double(n):\n    return 2 * n"
    assert task.base_input == [[1], [2]] and task.plus_input == []
    assert task.atol == 0
    assert task.prompt == '"""\nWrite a function to double a number.\nassert double(2) == 4\n"""\n'


def test_function_and_tolerance_are_those_of_the_assertion():
    task = problem(assertion="assertion(double(*inp), ref_func(*inp), 1e-06)")
    assert (task.entry_point, task.atol) == ("double", 1e-6)


@pytest.mark.parametrize(
    "task_id, arguments",
    [
        (2, [(3, 4, 5, 6), (5, 7, 4, 10)]),  # tuples
        (63, [[(3, 5), (7, 8)]]),  # a list of tuples
        (115, [[{1, 2}, {3}]]),  # sets
        (252, [3 + 4j]),
        (9000, [[1.5, -2, None, True, "a'b\"\n"]]),
        (9000, [{"a": [1, 2]}]),
        (9000, [10**40]),
        (9000, [-math.inf, math.inf]),
    ],
)
def test_inputs_come_back_as_the_function_takes_them(task_id, arguments):
    task = problem(task_id=task_id, inputs=f"inputs = [{arguments!r}]")
    assert restore_inputs(task.task_id, task.base_input) == [arguments]


@pytest.mark.parametrize(
    "changes, why",
    [
        # What is no literal is not run.
        ({"inputs": "inputs = __import__('os').listdir()"}, "9000: malformed"),
        ({"inputs": "inputs = [[open('x')]]"}, "9000: malformed"),
        ({"inputs": "inputs = [[x]]"}, "9000: malformed"),
        ({"inputs": ""}, "no inputs"),
        ({"assertion": "pass"}, "asserts no call"),
        ({"test": "def"}, "invalid syntax"),
    ],
)
def test_a_row_of_another_form_says_what_is_wrong(changes, why):
    with pytest.raises(ValueError, match=why):
        from_hub(row(**changes))


def test_a_row_without_a_test_says_so():
    with pytest.raises(ValueError, match="test"):
        from_hub({"task_id": 1})
    without = {name: value for name, value in row().items() if name != "prompt"}
    with pytest.raises(ValueError, match="9000: 'prompt'"):
        from_hub(without)
