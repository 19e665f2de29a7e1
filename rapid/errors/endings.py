"""How a command ends: what its user can mend is said in a line, and decides the exit status."""

import sys
from collections.abc import Callable
from pathlib import Path

from tqdm import tqdm

from rapid.artifacts.files import BadInput
from rapid.errors.shortages import shortage
from rapid.grading.grader import GraderDied, GradingFailed
from rapid.grading.lean import LeanUnavailable
from rapid.vllm_server import ServerDied

OK, FAILED, MISUSED = 0, 1, 2
ENDED = (GraderDied, GradingFailed, LeanUnavailable, ServerDied, FloatingPointError)


def ending(command: str, action: Callable[[], int | None], out: Path | None = None) -> int:
    """Do what a command does, and return its exit status.

    Args:
        out: the folder that it writes to, named where something is lacking there.

    Raises:
        Exception: what a user cannot mend: a mistake in this program.
    """
    try:
        return action() or OK
    except (BadInput, FileNotFoundError) as error:
        _say(command, error)
        return MISUSED
    except ENDED as error:
        _say(command, error)
        return FAILED
    except Exception as error:
        if (lacking := shortage(error)) is None:
            raise
        _say(command, f"{out}: {lacking}" if out else lacking)
        return FAILED


def _say(command: str, wrong: object) -> None:
    """Print what went wrong in a line of its own; a progress bar may have begun one."""
    for bar in list(tqdm._instances):
        bar.close()
    print(f"rapid {command}: {wrong}", file=sys.stderr)
