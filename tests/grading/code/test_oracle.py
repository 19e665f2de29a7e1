"""EvalPlus's rules for comparing outputs, with the special rules of some problems of MBPP+."""

import numpy as np
import pytest

from rapid.grading.code.oracle import compute_tolerances, is_right, restore_inputs
from rapid.grading.code.runner.encoding import Opaque
from rapid.grading.grader import BadProblem


@pytest.mark.parametrize(
    ("entry_point", "inputs", "output", "expected", "result"),
    [
        ("f", [], [1, 2], [2, 1], False),
        ("similar_elements", [], [2, 1, 1], (1, 2), True),
        ("similar_elements", [], [2, 3], (1, 2), False),
        ("similar_elements", [], [[1]], (1, 2), False),
        ("check_str", [], "anything", Opaque(), True),  # any match counts
        ("check_str", [], Opaque(), Opaque(), True),
        ("check_str", [], None, Opaque(), False),
        ("check_str", [], False, Opaque(), False),
        ("check_str", [], None, None, True),
        ("check_str", [], True, None, False),
        ("are_equivalent", [23, 47], False, True, False),
        ("are_equivalent", [23, 47], "anything", True, False),
        # The sums of the reference solution include the numbers themselves: 24 and 48.
        ("are_equivalent", [23, 47], True, False, True),
        ("are_equivalent", [6, 25], True, False, True),
        ("sum_div", [8], 7, 7, True),
        ("sum_div", [8], 0, 7, False),
        ("sum_div", [8], 15, 7, False),  # the sum includes 8 itself, unlike in the task's example
        ("sum_div", [8], 7, 15, True),
        ("sum_div", [1], 0, 1, True),
        ("surface_Area", [3, 4], 35, 33, True),
        ("surface_Area", [3, 4], "35", 33, False),
        ("digit_distance_nums", [1, 20], 3, 5, True),
        ("digit_distance_nums", [1, 20], 4, 5, False),
        ("f", [], Opaque(), Opaque(), False),
    ],
)
def test_an_output_is_compared_by_the_rule_of_its_problem(
    entry_point, inputs, output, expected, result
):
    assert is_right(entry_point, inputs, output, expected, atol=0.0) is result


@pytest.mark.parametrize(
    ("output", "expected", "atol", "result"),
    [
        (1.0 + 1e-9, 1.0, 1e-6, True),
        (1.0 + 1e-4, 1.0, 1e-6, False),
        (1.0 + 1e-9, 1.0, 0.0, False),
        (1.0 + 1.05e-6, 1.0, 1e-6, True),  # the tolerance has a relative part of a ten-millionth
        (1.0 + 1.15e-6, 1.0, 1e-6, False),
        (0.0, 1e-6, 1e-6, True),
        (0.0, 1.2e-6, 1e-6, False),
        (float("inf"), float("inf"), 1e-6, True),
        (1e300, float("inf"), 1e-6, False),
        (1j + 1e-7, 1j, 1e-6, True),
        ([1.0, 2.0 + 1e-3], [1.0, 2.0], 1e-6, False),
        ([1.0], (1.0,), 1e-6, False),
        ("a", 1.0, 1e-6, False),
        ([1.0, 2.0], [1.0], 1e-6, False),
        (float("nan"), 1.0, 1e-6, False),
        ([10**400], [1.0], 1e-6, False),
        ([["a"]], [1.0], 1e-6, False),
        ([[1.0, 1.0]] * 2, [1.0, 1.0], 1e-6, False),  # shapes are not broadcast
    ],
)
def test_floats_are_compared_with_a_tolerance(output, expected, atol, result):
    assert is_right("f", [], output, expected, atol) is result


def test_floats_are_close_exactly_when_numpy_says_so():
    rng = np.random.default_rng(0)
    for expected in rng.normal(0, 10.0 ** rng.integers(-8, 9, 300)):
        output = expected + rng.normal(0, 1e-6 + 1e-7 * abs(expected))
        is_close = np.allclose(output, expected, rtol=1e-7, atol=1e-6)
        assert is_right("f", [], float(output), float(expected), 1e-6) == is_close


def test_the_tolerance_starts_with_the_first_float():
    assert compute_tolerances([1, 2.0, 3], atol=0.0) == [0.0, 1e-6, 1e-6]


@pytest.mark.parametrize(
    ("task", "stored", "restored"),
    [
        ("Mbpp/2", [[1], [2]], [(1,), (2,)]),
        ("Mbpp/252", ["1j"], [1j]),
        ("Mbpp/3", [[1]], [[1]]),
        ("ours/2", [[1], [2]], [[1], [2]]),
    ],
)
def test_inputs_are_restored(task, stored, restored):
    assert restore_inputs(task, [stored]) == [restored]


def test_stored_inputs_of_another_form_raise_bad_problem():
    with pytest.raises(BadProblem, match="Mbpp/2: its inputs are not those of MBPP"):
        restore_inputs("Mbpp/2", [[1, 2]])
