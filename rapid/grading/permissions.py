"""Permissions, given by a user, to grade without a sandbox."""

from pydantic import Field

from rapid.settings import Settings


class GradingPermissions(Settings):
    """Permissions to grade without a sandbox on a machine where no sandbox works.

    By default a grader that needs a sandbox refuses to start without one. Reports name the
    permissions that are on.
    """

    unsafe_sandbox: bool = Field(
        False, description="run Python completions unsandboxed where no sandbox works"
    )
    unsafe_lean: bool = Field(
        False, description="run a native Lean unsandboxed where bubblewrap does not work"
    )

    @property
    def unsafe_settings(self) -> list[str]:
        """Return the names of the permissions that are on. Each is about one grader's sandbox."""
        return [name for name, value in self if value]


NO_PERMISSIONS = GradingPermissions()
