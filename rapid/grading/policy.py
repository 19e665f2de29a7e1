"""The walls around completions that a user may give up."""

from pydantic import Field

from rapid.settings import Settings


class Grading(Settings):
    """Walls that may be missing on a machine that has none. Reports name those that are missing."""

    unsafe_sandbox: bool = Field(
        False, description="run Python completions even if they cannot be sandboxed"
    )
    unsafe_lean: bool = Field(False, description="run a native Lean even if it cannot be sandboxed")

    @property
    def given_up(self) -> list[str]:
        """Return the keys that are true."""
        return [name for name, value in self if value]


STRICT = Grading()
