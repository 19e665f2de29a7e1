"""A command that was disturbed is run again in another child of the warm process."""

import sys

import pytest

from rapid.machine.warm import attempt
from tests.machine.test_warm import rapid, serve

# A command that is disturbed until the attempt that its argument names.
DISTURBED = """
import sys
from pathlib import Path
from rapid.machine.warm import AGAIN, attempt, serve
def run(arguments):
    number, last = attempt()
    print(number, flush=True)
    return AGAIN if number < int(arguments[0]) and not last else 0
serve(Path(sys.argv[1]), int(sys.argv[2]), lambda: None, run)
"""


@pytest.fixture(scope="module")
def socket(tmp_path_factory):
    path = tmp_path_factory.mktemp("disturbed") / "socket"
    server = serve(path, sys.executable, "-c", DISTURBED)
    yield path
    server.kill()
    server.wait()


@pytest.mark.parametrize(
    ("quiet", "attempts", "expected"),
    [(1, "3", [1]), (2, "3", [1, 2]), (9, "3", [1, 2, 3]), (9, "1", [1])],
)
def test_there_are_three_attempts_at_most(socket, monkeypatch, quiet, attempts, expected):
    monkeypatch.setenv("RAPID_ATTEMPTS", attempts)
    result = rapid(socket, str(quiet))
    assert [int(line) for line in result.stdout.split()] == expected
    assert result.returncode == 0


def test_a_command_by_itself_has_one():
    assert attempt() == (1, True)
