"""When an output counts as right: EvalPlus's rules for MBPP+, on plain data.

The lists of special problems and their formulas are EvalPlus's own. The order of the rules follows
`evalplus.eval.unsafe_execute` (0.3.1), which cannot be called itself, because it compares in the
process that runs the completion. Two rules differ, for tasks that were in release v0.1.0 only:
EvalPlus accepts any output of `are_equivalent`, and 0 from `sum_div` for every number.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

from evalplus.eval import _special_oracle as special
from evalplus.eval import is_floats

from rapid.grading.code.runner import encoding
from rapid.grading.grader import BadProblem

RELATIVE_TOLERANCE = 1e-07
FLOAT_TOLERANCE = 1e-6  # where the problem sets none and expects floats
_NUMBERS = int | float | complex


def restore_inputs(task_id: str, inputs: list[list[Any]]) -> list[list[Any]]:
    """Return the inputs as the function takes them.

    MBPP+ stores tuples, sets and complex numbers as JSON. Problems of other origin (a `task_id`
    that is not "Mbpp/" and a number) are left as they are.

    Raises:
        BadProblem: the task of MBPP+ with this name has other inputs.
    """
    if not re.fullmatch(r"Mbpp/\d+", task_id):
        return inputs
    from evalplus.data.mbpp import mbpp_deserialize_inputs  # imports datasets: one second

    try:
        return [list(arguments) for arguments in mbpp_deserialize_inputs(task_id, inputs)]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise BadProblem(f"{task_id}: its inputs are not those of MBPP+'s task: {error}") from None


def is_set(entry_point: str) -> bool:
    """Return whether outputs are compared as sets, whatever iterable holds their items."""
    return entry_point in special.MBPP_OUTPUT_SET_EQ_TASKS


def tolerances(expected: Sequence[Any], atol: float) -> list[float]:
    """Return the absolute tolerance of each comparison.

    As in EvalPlus, the first expected float turns the tolerance on for all inputs after it too.
    """
    all_tolerances = []
    for value in expected:
        if atol == 0 and is_floats(value):
            atol = FLOAT_TOLERANCE
        all_tolerances.append(atol)
    return all_tolerances


def agrees(entry_point: str, inputs: list, output: Any, expected: Any, atol: float) -> bool:
    """Return whether `output` is right for this call; both sides are plain data."""
    try:
        if _is_exact(entry_point, inputs, output, expected, atol):
            return True
        if atol == 0 or type(output) is not type(expected):
            return False
        return _is_close(output, expected, atol)
    except (TypeError, ValueError, ArithmeticError, RecursionError):
        return False  # of a kind that cannot be compared, so not equal


def _is_close(output: Any, expected: Any, atol: float) -> bool:
    """Return what numpy's `allclose` returns, for equal shapes alone.

    numpy would stretch one shape to the other, and build an array of gigabytes from a few strings.
    """
    if isinstance(expected, list | tuple):
        return (
            isinstance(output, list | tuple)
            and len(output) == len(expected)
            and all(map(_is_close, output, expected, [atol] * len(expected)))
        )
    if not isinstance(output, _NUMBERS) or not isinstance(expected, _NUMBERS):
        return False
    near = abs(output - expected) <= atol + RELATIVE_TOLERANCE * abs(expected) < math.inf
    return near or output == expected


def _is_exact(entry_point: str, inputs: list, output: Any, expected: Any, atol: float) -> bool:
    """Return whether an output is the expected one, or right by the rule of its problem."""
    if isinstance(expected, encoding.Digest):
        return output == expected
    if is_set(entry_point):
        return set(encoding.check_hashable(output)) == set(expected)
    if entry_point in special.MBPP_OUTPUT_NOT_NONE_TASKS:
        finds = output if isinstance(output, bool) else output is not None
        return finds == (expected is not None)
    if output == expected:
        return True
    # "All divisors" are the smaller ones in these tasks' own examples, and not in the references.
    if entry_point == "are_equivalent":  # Mbpp/164
        first, second = map(_proper_divisors_sum, inputs)
        return output == (first == second)
    if entry_point == "sum_div":  # Mbpp/295
        return output == _proper_divisors_sum(*inputs)
    if entry_point == "surface_Area":  # Mbpp/581: two readings of "height"
        return abs(output - special._surface_Area(*inputs)) <= atol
    if entry_point == "digit_distance_nums":  # Mbpp/558: digits aligned right or left
        return output == special._digit_distance_nums(*inputs)
    return False


def _proper_divisors_sum(number: int) -> int:
    """Return the sum of the divisors of `number` that are smaller than it."""
    pairs = ((n, number // n) for n in range(1, math.isqrt(number) + 1) if number % n == 0)
    return sum(divisor for pair in pairs for divisor in set(pair) if divisor < number)
