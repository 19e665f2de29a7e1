"""Runs a command. If the user can correct an error, one line is printed instead of a traceback."""

import sys
from collections.abc import Callable
from pathlib import Path

from tqdm import tqdm

from rapid.artifacts.files import BadInput
from rapid.errors.shortages import describe_shortage
from rapid.grading.grader import GraderDied, GradingFailed
from rapid.grading.lean import LeanUnavailable
from rapid.vllm_server import ServerDied

OK, FAILED, MISUSED = 0, 1, 2  # exit statuses
# Errors with the status FAILED, although the command is correct: a grader, Lean or the vLLM server
# does not work, or weights are not finite.
EXPECTED_ERRORS = (GraderDied, GradingFailed, LeanUnavailable, ServerDied, FloatingPointError)


def run_command(command: str, action: Callable[[], int | None], out: Path | None = None) -> int:
    """Run a command, print an error that the user can correct, and return the exit status.

    Args:
        command: name of the subcommand of `rapid`.
        action: does the work, and returns an exit status or None for success.
        out: the folder that the command writes to, for messages about a full disk and similar
            shortages.

    Raises:
        Exception: any other exception, which is a bug of this program.
    """
    try:
        return action() or OK
    except (BadInput, FileNotFoundError) as error:
        _print_error(command, error)
        return MISUSED
    except EXPECTED_ERRORS as error:
        _print_error(command, error)
        return FAILED
    except Exception as error:
        if (message := describe_shortage(error)) is None:
            raise
        _print_error(command, f"{out}: {message}" if out else message)
        return FAILED


def _print_error(command: str, message: object) -> None:
    """Close progress bars, and print an error on a new line."""
    for bar in list(tqdm._instances):
        bar.close()
    print(f"rapid {command}: {message}", file=sys.stderr)
