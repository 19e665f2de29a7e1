"""The `rapid` command. Where a warm process runs the job, it imports next to nothing."""

import sys

from rapid.machine.warm import run_in_child


def main() -> int:
    status = run_in_child(sys.argv[1:])
    if status is None:
        from rapid.cli import run

        status = run(sys.argv[1:])
    return status


if __name__ == "__main__":
    sys.exit(main())
