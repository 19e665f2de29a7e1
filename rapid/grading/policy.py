"""Settings with which a user gives up walls, the isolation of completions from the machine."""

from pydantic import Field

from rapid.settings import Settings


class Grading(Settings):
    """Permission to grade without walls on a machine that offers none. Reports say so.

    By default a grader that needs walls refuses to start without them.
    """

    unsafe_sandbox: bool = Field(
        False, description="run Python completions even if they cannot be sandboxed"
    )
    unsafe_lean: bool = Field(False, description="run a native Lean even if it cannot be sandboxed")

    @property
    def given_up(self) -> list[str]:
        """Return the keys of the walls that may be missing."""
        return [name for name, value in self if value]


STRICT = Grading()
