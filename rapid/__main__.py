"""The `rapid` command. Where a warm process runs the job, it imports next to nothing."""

import sys

from rapid.machine.processes import end_with_reader, end_with_workflow
from rapid.machine.warm import AGAIN, run_in_child


def main() -> int:
    """Run the command; return its exit status, also 0 where only its runtime is off."""
    end_with_workflow()
    status = run_in_child(sys.argv[1:])
    if status is None:
        from rapid.cli import run

        with end_with_reader():
            status = run(sys.argv[1:])
    return 0 if status == AGAIN else status


if __name__ == "__main__":
    sys.exit(main())
