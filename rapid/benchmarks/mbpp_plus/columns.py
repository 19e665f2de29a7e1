"""Parses programming problems from the columns of a dataset: tests, or rows of MBPP+.

No code of a row is run here, because the arguments and outputs in tests such as
`assert double(2) == 4` are literals. As with MBPP+, the expected outputs do not enter the sandbox
of a completion.
"""

import ast
import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from rapid.artifacts.files import describe_first_error
from rapid.benchmarks.mbpp_plus.record import CodeProblem
from rapid.grading.grader import BadProblem

MAX_PARSED = 1024  # parsed problems in a cache; the completions of a group have the same problem


@dataclass(frozen=True)
class AssertedFunction:
    """A function to write, defined by its tests. The grader of MBPP+ reads these fields."""

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


@lru_cache(MAX_PARSED)
def parse_asserts(source: str) -> AssertedFunction:
    """Return the function that a program of tests calls.

    A test is `assert f(1, "a") == [2]`, with literals only. `assert f(1)` stands for
    `assert f(1) == True`, and `assert not f(1)` for `assert f(1) == False`.

    Raises:
        BadProblem: there are no tests, one has another form, or they call different functions.
    """
    digest = hashlib.sha256(source.encode(errors="replace")).hexdigest()
    name = f"tests-{digest[:12]}"
    try:
        tests = [_parse_assert(statement) for statement in ast.parse(source.strip()).body]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise BadProblem(f"the tests {source[:100]!r}: {error}") from None
    functions = {function for function, *_ in tests}
    if len(functions) != 1:
        called = ", ".join(sorted(functions)) or "no function"
        raise BadProblem(
            f"the tests {source[:100]!r} must all call the same function, but call {called}"
        )
    (function,) = functions
    # The reference solution returns the expected outputs, one per call.
    outputs = ", ".join(output for *_, output in reversed(tests))
    solution = f"def {function}(*_, outputs=[{outputs}]):\n    return outputs.pop()\n"
    inputs = [arguments for _, arguments, _ in tests]
    return AssertedFunction(name, digest, function, solution, inputs)


def _parse_assert(statement: ast.stmt) -> tuple[str, list[Any], str]:
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
            with suppress(ValueError, TypeError):  # something is not a literal
                ast.literal_eval(expected)
                return function, [*map(ast.literal_eval, arguments)], ast.unparse(expected)
    raise ValueError(f"`{ast.unparse(statement)}` is not like `assert f(1) == 2`, with literals")


@lru_cache(MAX_PARSED)
def parse_hub_row(task_id: str, code: str, test: str) -> CodeProblem:
    """Return the problem of a row of MBPP+ on the hub.

    Raises:
        BadProblem: the test program of the row has an unexpected form.
    """
    from rapid.benchmarks.mbpp_plus.published import from_hub  # imports EvalPlus: a second

    row = {"task_id": task_id, "code": code, "test": test, "prompt": "", "test_list": []}
    try:
        return CodeProblem.model_validate(from_hub(row))
    except ValueError as error:
        raise BadProblem(str(error)) from None


def parse_release_row(**fields: Any) -> CodeProblem:
    """Return the problem of a row of EvalPlus's release. Its inputs may be strings of JSON.

    Raises:
        BadProblem: a field has an unexpected type.
    """
    try:  # as JSON text, because the keys of a cache must be hashable
        return _parse_release_row(json.dumps(fields, default=lambda array: array.tolist()))
    except (AttributeError, TypeError) as error:
        raise BadProblem(f"{fields['task_id']}: {error}") from None


@lru_cache(MAX_PARSED)
def _parse_release_row(fields_json: str) -> CodeProblem:
    fields = json.loads(fields_json)
    try:
        for name in ("base_input", "plus_input"):
            if isinstance(fields[name], str):
                fields[name] = json.loads(fields[name])
        return CodeProblem.model_validate({"prompt": "", **fields})
    except ValidationError as error:
        reason = describe_first_error(error, "row")
        raise BadProblem(f"{fields['task_id']}: {reason}") from None
    except ValueError as error:
        raise BadProblem(f"{fields['task_id']}: {error}") from None
