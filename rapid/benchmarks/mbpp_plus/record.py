"""Record of an MBPP+ problem."""

from typing import Any

from pydantic import field_validator

from rapid.benchmarks.base import Problem


class CodeProblem(Problem):
    """A problem of MBPP+: a function to write. The fields are those of EvalPlus's release.

    `base_input` (from MBPP) and `plus_input` (added by EvalPlus) are lists of calls. A call is the
    list of its positional arguments.
    """

    id_field = "task_id"

    task_id: str
    prompt: str
    entry_point: str  # name of the function
    canonical_solution: str  # the reference solution, a program
    base_input: list[list[Any]]
    plus_input: list[list[Any]]
    atol: float = 0.0  # absolute tolerance of floats; 0 if the problem sets none
    contract: str = ""  # assertions on the inputs; not used
    assertion: str = ""  # example calls with their outputs; not used for grading

    @field_validator("plus_input", mode="before")
    @classmethod
    def _replace_missing_inputs(cls, value):
        return value or []  # the release has {} for a task without plus inputs

    @property
    def content(self) -> str:
        return self.prompt.split("assert")[0].strip()  # without the example call

    @property
    def unusable_reason(self) -> str:
        return "" if self.base_input or self.plus_input else "no inputs"
