"""Reads problems of code from the columns of a dataset: tests, or rows of MBPP+.

Nothing of a row is run here. In tests such as `assert double(2) == 4` arguments and outputs are
literals, and as with MBPP+ the expected outputs stay outside the sandbox of a completion.
"""

import ast
import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.grading.grader import BadProblem

PARSED = 1024  # problems that are kept: the completions of a group have the same one


@dataclass(frozen=True)
class AssertedFunction:
    """A function to write, by its tests. The grader of MBPP+ reads these fields."""

    id: str
    digest: str
    entry_point: str
    canonical_solution: str
    base_input: list[list[Any]]
    plus_input: tuple = ()
    atol: float = 0.0

    @property
    def task_id(self) -> str:
        return self.id


def read_asserts(tests: str | Sequence[str]) -> AssertedFunction:
    """Return the function that tests ask for.

    A test is `assert f(1, "a") == [2]`, with literals only. `assert f(1)` expects True, `assert not
    f(1)` False.

    Raises:
        BadProblem: a test has another form, there is none, or they call different functions.
    """
    return _read_asserts(tests if isinstance(tests, str) else "\n".join(tests))


@lru_cache(PARSED)
def _read_asserts(source: str) -> AssertedFunction:
    digest = hashlib.sha256(source.encode(errors="replace")).hexdigest()
    name = f"tests-{digest[:12]}"
    try:
        tests = [_read_assert(statement) for statement in ast.parse(source.strip()).body]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadProblem(f"{name}: {error}") from None
    functions = {function for function, *_ in tests}
    if len(functions) != 1:
        called = ", ".join(sorted(functions)) or "no function"
        raise BadProblem(f"{name}: its tests have to call one function, and call {called}")
    (function,) = functions
    # A reference solution that returns the expected outputs one after the other.
    outputs = ", ".join(output for *_, output in tests)
    solution = f"_outputs = iter([{outputs}])\ndef {function}(*_):\n    return next(_outputs)\n"
    inputs = [arguments for _, arguments, _ in tests]
    return AssertedFunction(name, digest, function, solution, inputs)


def _read_assert(statement: ast.stmt) -> tuple[str, list[Any], str]:
    """Return the function that an assert calls, its arguments, and the source of its output."""
    match statement:
        case ast.Assert(
            test=ast.Compare(left=call, ops=[ast.Eq() | ast.Is()], comparators=[expected])
        ):
            pass
        case ast.Assert(test=ast.UnaryOp(op=ast.Not(), operand=call)):
            expected = ast.Constant(False)
        case ast.Assert(test=call):
            expected = ast.Constant(True)
        case _:
            call = expected = None
    match call:
        case ast.Call(func=ast.Name(function), args=arguments, keywords=[]):
            with suppress(ValueError, TypeError):  # no literals
                ast.literal_eval(expected)
                return function, [*map(ast.literal_eval, arguments)], ast.unparse(expected)
    raise ValueError(f"`{ast.unparse(statement)}` is not like `assert f(1) == 2`, with literals")


@lru_cache(PARSED)
def read_hub_row(task_id: int | str, code: str, test: str) -> CodeProblem:
    """Return the problem of a row of MBPP+ on the hub.

    Raises:
        BadProblem: its test program has an unexpected form.
    """
    from rapid.benchmarks.mbpp_plus.published import from_hub  # imports EvalPlus: a second

    row = {"task_id": task_id, "code": code, "test": test, "prompt": "", "test_list": []}
    try:
        return CodeProblem.model_validate(from_hub(row))
    except ValueError as error:
        raise BadProblem(str(error)) from None


def read_release_row(base_input: Any, plus_input: Any, **fields: Any) -> CodeProblem:
    """Return the problem of a row of EvalPlus's release; its inputs may be JSON.

    Raises:
        BadProblem: a field has another type.
    """
    inputs = [
        value if isinstance(value, str) else json.dumps(value) for value in (base_input, plus_input)
    ]
    return _read_release_row(*inputs, **fields)


@lru_cache(PARSED)
def _read_release_row(base_input: str, plus_input: str, **fields: Any) -> CodeProblem:
    try:
        inputs = {"base_input": json.loads(base_input), "plus_input": json.loads(plus_input)}
        return CodeProblem.model_validate({"prompt": "", **fields, **inputs})
    except ValueError as error:
        raise BadProblem(f"{fields['task_id']}: {error}") from None
