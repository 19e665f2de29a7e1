"""Converts rows of MBPP+ on the Hugging Face hub to the fields of EvalPlus's release.

On the hub, a task's inputs are in the source of a test program. The program is parsed and never
run. The inputs are literals in it, and the name of the function is in its call of `assertion`.
"""

import ast
import math

from evalplus.data.mbpp import mbpp_serialize_inputs


def from_hub(row: dict) -> dict:
    """Return the fields of a `CodeProblem`.

    The hub does not say which inputs are from MBPP and which ones EvalPlus added. So all of them
    become `base_input`, in the order of the test program.

    Raises:
        ValueError: the test program has an unexpected form; the message says what is missing.
    """
    try:
        program = ast.parse(row["test"])
        name = f"Mbpp/{row['task_id']}"
        function, tolerance = _find_tested_call(program)
        # EvalPlus's release is JSON, which lacks the sets and complex numbers of three tasks. This
        # converts them as in the release.
        inputs = mbpp_serialize_inputs(name, _read_inputs(program))
        example = "".join(f"{line}\n" for line in row["test_list"][:1])
        return {
            "task_id": name,
            "prompt": f'"""\n{row["prompt"].strip()}\n{example}"""\n',
            "entry_point": function,
            "canonical_solution": row["code"],
            "base_input": [list(arguments) for arguments in inputs],
            "plus_input": [],
            "atol": tolerance,
            "assertion": "\n".join(row["test_list"]),
        }
    except (KeyError, ValueError, SyntaxError, RecursionError) as error:
        raise ValueError(f"task {row.get('task_id')}: {error or type(error).__name__}") from None


def _read_inputs(program: ast.Module) -> list:
    """Return the literal that the program assigns to `inputs`."""
    for statement in program.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "inputs":
            return ast.literal_eval(_ConstantReplacer().visit(statement.value))
    raise ValueError("its test program has no inputs")


def _find_tested_call(program: ast.Module) -> tuple[str, float]:
    """Find `assertion(function(*inp), expected, tolerance)`; return the function and tolerance."""
    for node in ast.walk(program):
        match node:
            case ast.Call(
                func=ast.Name("assertion"),
                args=[ast.Call(func=ast.Name(name), args=[ast.Starred()]), _, ast.Constant(atol)],
            ):
                return name, float(atol)
    raise ValueError("its test program has no call `assertion(f(*inp), expected, tolerance)`")


class _ConstantReplacer(ast.NodeTransformer):
    """Replaces the names `inf` and `nan` by numbers, so that the inputs are literals."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in ("inf", "nan"):
            return ast.copy_location(ast.Constant(getattr(math, node.id)), node)
        return node
