"""Record of an MBPP+ problem."""

from typing import Any

from pydantic import field_validator

from rapid.benchmarks.base import Problem


class CodeProblem(Problem):
    """A function to write (MBPP+). Each input is the list of the call's positional arguments."""

    id_field = "task_id"

    task_id: str
    prompt: str
    entry_point: str
    canonical_solution: str
    base_input: list[list[Any]]
    plus_input: list[list[Any]]
    atol: float = 0.0
    contract: str = ""
    assertion: str = ""

    @field_validator("plus_input", mode="before")
    @classmethod
    def _replace_missing_inputs(cls, value):
        return value or []  # the release writes {} where there are none

    @property
    def content(self) -> str:
        return self.prompt.split("assert")[0].strip()  # the example is no part of the task

    @property
    def unusable_reason(self) -> str:
        return "" if self.base_input or self.plus_input else "no inputs"
