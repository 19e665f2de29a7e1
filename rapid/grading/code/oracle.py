"""Decides whether an output is right, by EvalPlus's rules for MBPP+.

Outputs are plain data here; no code of a completion runs. The lists of special tasks and their
formulas are imported from EvalPlus. The rules and their order follow
`evalplus.eval.unsafe_execute` (0.3.1). That function cannot be used, because it compares in the
process that runs the completion.

Two rules are stricter than EvalPlus's: EvalPlus accepts every output of the task `are_equivalent`,
and the output 0 of the task `sum_div` for every number. Here an output of these tasks must be
right. Both tasks are only in release v0.1.0 of MBPP+.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

from evalplus.eval import _special_oracle as special
from evalplus.eval import is_floats

from rapid.grading.code.runner import encoding
from rapid.grading.grader import BadProblem

RELATIVE_TOLERANCE = 1e-07  # of floats, if an absolute tolerance is set too
FLOAT_TOLERANCE = 1e-6  # absolute, if the problem sets none and expects floats
_NUMBERS = int | float | complex


def restore_inputs(task_id: str, inputs: list[list[Any]]) -> list[list[Any]]:
    """Return the inputs with the types that the function takes.

    JSON has no tuples, sets or complex numbers; for each task of MBPP+, EvalPlus knows which lists
    to convert. The inputs of other problems (whose `task_id` is not "Mbpp/" and a number) are
    returned unchanged.

    Raises:
        BadProblem: the conversion of the MBPP+ task with this id does not fit these inputs.
    """
    if not re.fullmatch(r"Mbpp/\d+", task_id):
        return inputs
    from evalplus.data.mbpp import mbpp_deserialize_inputs  # imports datasets: one second

    try:
        return [list(arguments) for arguments in mbpp_deserialize_inputs(task_id, inputs)]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise BadProblem(f"{task_id}: its inputs are not those of MBPP+'s task: {error}") from None


def is_compared_as_set(entry_point: str) -> bool:
    """Return whether outputs of this function are converted to sets before they are compared."""
    return entry_point in special.MBPP_OUTPUT_SET_EQ_TASKS


def compute_tolerances(expected: Sequence[Any], atol: float) -> list[float]:
    """Return the absolute tolerance for each expected output.

    As in EvalPlus, if `atol` is 0, the tolerance is FLOAT_TOLERANCE for the first expected output
    that is a float, or a list or tuple of floats, and for all outputs after it.
    """
    tolerances = []
    for value in expected:
        if atol == 0 and is_floats(value):
            atol = FLOAT_TOLERANCE
        tolerances.append(atol)
    return tolerances


def is_right(entry_point: str, arguments: list, output: Any, expected: Any, atol: float) -> bool:
    """Return whether the output of a call is right, with the absolute tolerance `atol`."""
    try:
        if _is_equal_or_allowed(entry_point, arguments, output, expected, atol):
            return True
        if atol == 0 or type(output) is not type(expected):
            return False
        return _is_close(output, expected, atol)
    except (TypeError, ValueError, ArithmeticError, RecursionError):
        return False  # the outputs cannot be compared, so they are not equal


def _is_close(output: Any, expected: Any, atol: float) -> bool:
    """Return what numpy's `allclose` returns, but False if the shapes differ.

    numpy would broadcast the shapes, and could build an array of gigabytes from a few strings.
    """
    if isinstance(expected, list | tuple):
        return (
            isinstance(output, list | tuple)
            and len(output) == len(expected)
            and all(map(_is_close, output, expected, [atol] * len(expected)))
        )
    if not isinstance(output, _NUMBERS) or not isinstance(expected, _NUMBERS):
        return False
    # If `expected` is infinite, the bound is infinite too, and would accept every number.
    near = abs(output - expected) <= atol + RELATIVE_TOLERANCE * abs(expected) < math.inf
    return near or output == expected


def _is_equal_or_allowed(
    entry_point: str, arguments: list, output: Any, expected: Any, atol: float
) -> bool:
    """Return whether an output equals the expected one, or a rule for its task allows it."""
    if isinstance(expected, encoding.Digest):  # sent in place of a long list: see `encoding`
        return output == expected
    if is_compared_as_set(entry_point):
        return set(encoding.check_hashable(output)) == set(expected)
    if entry_point in special.MBPP_OUTPUT_NOT_NONE_TASKS:
        # Searches: only whether something was found is compared, and not what.
        has_found = output if isinstance(output, bool) else output is not None
        return has_found == (expected is not None)
    if output == expected:
        return True
    # In the examples of the next two tasks "all divisors" excludes the number itself, in their
    # reference solutions it includes the number. Both readings are right.
    if entry_point == "are_equivalent":  # Mbpp/164
        first, second = map(_proper_divisors_sum, arguments)
        return output == (first == second)
    if entry_point == "sum_div":  # Mbpp/295
        return output == _proper_divisors_sum(*arguments)
    if entry_point == "surface_Area":  # Mbpp/581: "height" can be read in two ways
        return abs(output - special._surface_Area(*arguments)) <= atol
    if entry_point == "digit_distance_nums":  # Mbpp/558: digits are aligned on the right or left
        return output == special._digit_distance_nums(*arguments)
    return False


def _proper_divisors_sum(number: int) -> int:
    """Return the sum of the divisors of `number` that are smaller than it."""
    pairs = ((n, number // n) for n in range(1, math.isqrt(number) + 1) if number % n == 0)
    return sum(divisor for pair in pairs for divisor in set(pair) if divisor < number)
