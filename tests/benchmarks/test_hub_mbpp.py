"""The hub's format of MBPP+: a test program, which is parsed and never run."""

import math

import pytest

from rapid.benchmarks.mbpp_plus.published import from_hub
from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.grading.code.oracle import restore_inputs

TEST_PROGRAM = """import numpy as np
from math import inf

def assertion(out, exp, atol):
    assert out == exp

{inputs}
results = [0]
for i, (inp, exp) in enumerate(zip(inputs, results)):
    {assertion}
"""


def make_row(inputs="inputs = [[1], [2]]", assertion="assertion(double(*inp), exp, 0)", **changes):
    return {
        "task_id": 9000,
        "code": "def double(n):\n    return 2 * n",
        "prompt": "Write a function to double a number.",
        "test_list": ["assert double(2) == 4", "assert double(3) == 6"],
        "test": TEST_PROGRAM.format(inputs=inputs, assertion=assertion),
        **changes,
    }


def parse_problem(**changes) -> CodeProblem:
    """Return a problem that was written and read again, as by two stages."""
    parsed = CodeProblem.model_validate(from_hub(make_row(**changes)))
    return CodeProblem.model_validate_json(parsed.model_dump_json())


def test_a_row_of_the_hub_has_the_fields_of_the_release():
    task = parse_problem()
    assert task.task_id == "Mbpp/9000"
    assert task.entry_point == "double"
    assert task.canonical_solution == "def double(n):\n    return 2 * n"
    assert task.base_input == [[1], [2]] and task.plus_input == []
    assert task.atol == 0
    assert task.prompt == '"""\nWrite a function to double a number.\nassert double(2) == 4\n"""\n'


def test_function_and_tolerance_are_read_from_the_assertion():
    task = parse_problem(assertion="assertion(double(*inp), ref_func(*inp), 1e-06)")
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
def test_inputs_are_restored_to_their_types(task_id, arguments):
    task = parse_problem(task_id=task_id, inputs=f"inputs = [{arguments!r}]")
    assert restore_inputs(task.task_id, task.base_input) == [arguments]


@pytest.mark.parametrize(
    "changes, message",
    [
        # Code other than literals is not run.
        ({"inputs": "inputs = __import__('os').listdir()"}, "9000: malformed"),
        ({"inputs": "inputs = [[open('x')]]"}, "9000: malformed"),
        ({"inputs": "inputs = [[x]]"}, "9000: malformed"),
        ({"inputs": ""}, "no inputs"),
        ({"assertion": "pass"}, "has no call"),
        ({"test": "def"}, "invalid syntax"),
    ],
)
def test_an_invalid_row_is_refused_with_the_reason(changes, message):
    with pytest.raises(ValueError, match=message):
        from_hub(make_row(**changes))


def test_a_row_that_lacks_a_field_is_refused_with_its_name():
    with pytest.raises(ValueError, match="test"):
        from_hub({"task_id": 1})
    row_without_prompt = {name: value for name, value in make_row().items() if name != "prompt"}
    with pytest.raises(ValueError, match="9000: 'prompt'"):
        from_hub(row_without_prompt)
