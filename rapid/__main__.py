"""Entry point of the `rapid` command.

If the workflow has started a fork server (`rapid.processes.fork_server`), a child of that server
runs the job, and this process only passes on the arguments. So this module imports as little as
possible.
"""

import os
import sys
from pathlib import Path

from rapid.processes.fork_server import RETRY_STATUS, run_in_child
from rapid.processes.lifetimes import end_with_reader, end_with_workflow

CLONE = Path(__file__).resolve().parents[1]
# A folder with all of these files counts as a clone of this repository.
CLONE_FILES = ("rapid/__main__.py", "Snakefile", "params.yaml")


def main() -> int:
    """Run `rapid` with the code of the clone that contains the working folder.

    Snakemake imports the code next to its Snakefile, and jobs have to run the same code. But an
    environment's `rapid` script imports the code of the clone for which the environment was made.
    If the working folder is in another clone, this process is replaced by that clone's
    `python -m rapid`.
    """
    folders = (Path.cwd(), *Path.cwd().parents)
    clones = (folder for folder in folders if all((folder / name).exists() for name in CLONE_FILES))
    if (clone := next(clones, CLONE)) != CLONE:
        os.environ["PYTHONPATH"] = str(clone)
        os.execv(sys.executable, [sys.executable, "-m", "rapid", *sys.argv[1:]])
    return run_command()


def run_command() -> int:
    """Run the command and return its exit status.

    RETRY_STATUS, with which a run asks to be repeated because other processes used its core,
    becomes 0: the run's result is correct, and only its runtime is too long.
    """
    end_with_workflow()  # SIGTERM when the workflow that started this job ends
    status = run_in_child(sys.argv[1:])
    if status is None:
        from rapid.cli import run

        with end_with_reader():  # exit silently after `rapid ... | head`
            status = run(sys.argv[1:])
    return 0 if status == RETRY_STATUS else status


if __name__ == "__main__":
    sys.exit(run_command())
