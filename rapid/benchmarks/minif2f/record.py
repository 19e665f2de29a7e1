"""Record of a MiniF2F problem."""

import re
from typing import Any

from pydantic import AliasChoices, Field, field_validator, model_validator

from rapid.benchmarks.base import Problem
from rapid.benchmarks.minif2f.flaws import find_flaw
from rapid.benchmarks.minif2f.modernize import modernize_header, modernize_statement

# How fields of a row are rewritten for a present Mathlib.
MODERNIZERS = {
    "header": modernize_header,
    "formal_statement": modernize_statement,
    "statement": modernize_statement,
}


class LeanProblem(Problem):
    """A theorem to prove.

    `formal_statement` ends in `:= by`. `header` is the Lean code before it, such as
    `import Mathlib`. Both are rewritten for a present Mathlib (`modernize`).
    """

    id_field = "name"

    name: str = Field(validation_alias=AliasChoices("name", "id"))
    formal_statement: str = Field(
        validation_alias=AliasChoices("formal_statement", "statement"),
        description="the key in a file may also be `statement`, and that of `name` may be `id`",
    )
    header: str = ""
    split: str = ""  # of the dataset; see rapid.benchmarks.published
    informal_prefix: str = Field("", description="the statement in words, as a Lean comment")

    @model_validator(mode="before")
    @classmethod
    def _modernize(cls, row: Any) -> Any:
        """Rewrite the header and the statement, and note whether this changed them."""
        if not isinstance(row, dict):
            return row
        texts = {
            key: rewrite(row[key])
            for key, rewrite in MODERNIZERS.items()
            if isinstance(row.get(key), str)
        }
        is_rewritten = any(text != row[key] for key, text in texts.items())
        return row | texts | {"is_rewritten": is_rewritten}

    @model_validator(mode="before")
    @classmethod
    def _add_informal_prefix(cls, row: Any) -> Any:
        """Convert the column `informal_stmt` of some datasets to `informal_prefix`."""
        if isinstance(row, dict) and (words := row.get("informal_stmt")):
            return {"informal_prefix": f"/-- {words.strip()} -/\n", **row}
        return row

    @field_validator("formal_statement")
    @classmethod
    def _end_with_by(cls, statement: str) -> str:
        """Make a statement end in `:= by`. In some datasets it ends in `sorry` or has no `:=`."""
        # The pattern matches at the end: an optional `:=`, `by` and `sorry`.
        bare = re.sub(r"\s*(:=\s*)?(\bby\s*)?(\bsorry\s*)?\Z", "", statement)
        return statement if statement.rstrip().endswith(":= by") else f"{bare} := by\n"

    @property
    def content(self) -> str:
        """Return the statement without the theorem's name."""
        return self.formal_statement.replace(self.name, "", 1)

    @property
    def unusable_reason(self) -> str:
        """Return why Lean refuses the statement; "" if no such flaw is known."""
        flaw = find_flaw(self.name, self.formal_statement)
        return (
            f"its statement is malformed: {flaw.why}" if flaw and flaw.kind == "malformed" else ""
        )

    @property
    def flaw(self) -> str:
        """Return the kind of the statement's flaw and what is wrong; "" if flaws.yaml has none."""
        flaw = find_flaw(self.name, self.formal_statement)
        return f"{flaw.kind}: {flaw.why}" if flaw else ""
