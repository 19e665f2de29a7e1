"""A command that was disturbed is run again in another child of the warm process."""

import pytest

from rapid.machine.warm import attempt
from tests.machine.test_warm import rapid, serving

# A command that is disturbed until the attempt that its argument names.
DISTURBED = """
import sys
from pathlib import Path
from rapid.machine import warm
def run(arguments):
    print(warm.attempt(), flush=True)
    return warm.AGAIN if warm.attempt() < int(arguments[0]) else 0
warm.SHARE = {share}
warm.serve(Path(sys.argv[1]), int(sys.argv[2]), lambda: None, run)
"""


@pytest.fixture
def attempts(request, tmp_path):
    """Return a function that runs the command once; the attempts that it took."""

    def run(quiet: int) -> list[int]:
        result = rapid(tmp_path / "socket", str(quiet))
        assert result.returncode == 0
        return [int(line) for line in result.stdout.split()]

    with serving(tmp_path / "socket", DISTURBED.format(share=request.param)):
        yield run


@pytest.mark.parametrize("attempts", [1.0], indirect=True)
def test_there_are_three_attempts_at_most(attempts):
    assert [attempts(quiet) for quiet in (1, 2, 9)] == [[1], [1, 2], [1, 2, 3]]


@pytest.mark.parametrize("attempts", [0.25], indirect=True)
def test_where_all_are_disturbed_a_share_is_run_again(attempts):
    """The first command, and the fifth in the order of all attempts."""
    assert [len(attempts(9)) for _ in range(5)] == [2, 1, 1, 2, 1]


def test_a_command_by_itself_is_the_first_attempt():
    assert attempt() == 1
