"""Record of a MiniF2F problem."""

import re
from typing import Any

from pydantic import AliasChoices, Field, field_validator, model_validator

from rapid.benchmarks.base import Problem


class LeanProblem(Problem):
    """A theorem to prove. `formal_statement` ends in `:= by`; `header` comes before it."""

    id_field = "name"

    name: str = Field(validation_alias=AliasChoices("name", "id"))
    formal_statement: str = Field(
        validation_alias=AliasChoices("formal_statement", "statement"),
        description="core-Lean rows call it statement",
    )
    header: str = ""
    split: str = ""
    informal_prefix: str = Field("", description="the statement in words, as a Lean comment")

    @model_validator(mode="before")
    @classmethod
    def _add_informal_prefix(cls, row: Any) -> Any:
        if isinstance(row, dict) and (words := row.get("informal_stmt")):
            return {"informal_prefix": f"/-- {words.strip()} -/\n", **row}
        return row

    @field_validator("formal_statement")
    @classmethod
    def _end_with_by(cls, statement: str) -> str:
        """Make a statement end in `:= by`; some datasets end it in `sorry`, or without a proof."""
        stated = re.sub(r"\s*(:=\s*)?(\bby\s*)?(\bsorry\s*)?\Z", "", statement)
        return statement if statement.rstrip().endswith(":= by") else f"{stated} := by\n"

    @property
    def content(self) -> str:
        return self.formal_statement.replace(self.name, "", 1)
