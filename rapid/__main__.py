"""The `rapid` command. If a fork server runs the job, it imports next to nothing."""

import os
import sys
from pathlib import Path

from rapid.processes.fork_server import RETRY_STATUS, run_in_child
from rapid.processes.lifetimes import end_with_reader, end_with_workflow

CLONE = Path(__file__).resolve().parents[1]
IN_CLONES = ("rapid/__main__.py", "Snakefile", "params.yaml")


def main() -> int:
    """Run `rapid` as an environment has it, with the code of the clone that is worked in.

    An environment has the code of the clone that it was made for. Others may share it, or have a
    copy of it. Snakemake takes the code beside the Snakefile, too, and `python -m rapid` this one.
    """
    folders = (Path.cwd(), *Path.cwd().parents)
    clones = (folder for folder in folders if all((folder / name).exists() for name in IN_CLONES))
    if (clone := next(clones, CLONE)) != CLONE:
        os.environ["PYTHONPATH"] = str(clone)
        os.execv(sys.executable, [sys.executable, "-m", "rapid", *sys.argv[1:]])
    return run_command()


def run_command() -> int:
    """Run the command; return its exit status, also 0 where only its runtime is off."""
    end_with_workflow()
    status = run_in_child(sys.argv[1:])
    if status is None:
        from rapid.cli import run

        with end_with_reader():
            status = run(sys.argv[1:])
    return 0 if status == RETRY_STATUS else status


if __name__ == "__main__":
    sys.exit(run_command())
