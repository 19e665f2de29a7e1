"""Machines without walls, which a seccomp filter makes: nothing is graded, unless accepted."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pydantic
import pytest

from tests.conftest import ROOT

HERE = Path(__file__).parent


def readable_by_all(path: Path | str) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in Path(path).resolve().parents)


PYTHON = sys.executable if readable_by_all(sys.executable) else "/usr/bin/python3"
PACKAGES = Path(pydantic.__file__).parents[1]
ROOT_USER, ORDINARY_USER = 0, 65534

pytestmark = pytest.mark.skipif(not os.access(PYTHON, os.X_OK), reason="no Python that all may run")


# What the weaker user is asked, root is asked in the slow tests.
MOSTLY_ORDINARY = pytest.mark.parametrize(
    "user", [ORDINARY_USER, pytest.param(ROOT_USER, marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture(params=[ROOT_USER, ORDINARY_USER], ids=["root", "ordinary user"])
def user(request):
    """A user to run as, with whom this test's user may change places."""
    if os.geteuid() not in (ROOT_USER, request.param):
        pytest.skip("only root can be another user")
    if request.param == ORDINARY_USER and not (
        readable_by_all(__file__) and readable_by_all(PACKAGES)
    ):
        pytest.skip("another user cannot read this checkout")
    return request.param


@pytest.fixture
def folder():
    """Where the other user may go, as he may not in pytest's own folders."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def run(denied: str, user: int, *command: str, folder: Path) -> subprocess.CompletedProcess:
    home = folder / "home"
    home.mkdir()
    os.chown(home, user, -1)
    changes = {"PYTHONPATH": f"{ROOT}:{PACKAGES}", "HOME": str(home), "TMPDIR": str(home)}
    return subprocess.run(
        [PYTHON, str(HERE / "deprived.py"), denied, str(user), PYTHON, "-B", "-m", *command],
        cwd=ROOT,
        env=os.environ | changes,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture
def grade(user, double, folder):
    """Runs `rapid grade` on two completions, one of which is right."""
    completions = ["def f(x): return 2 * x", "def f(x): return 3 * x"]
    rows = [json.dumps({"id": double.id, "completion": code}) for code in completions]
    (folder / "completions").write_text("\n".join(rows))
    (folder / "problems").write_text(double.model_dump_json())
    files = ["--problems", str(folder / "problems"), "--completions", str(folder / "completions")]

    def grade(denied: str, *options: str) -> subprocess.CompletedProcess:
        command = ["rapid", "grade", "--benchmark", "mbpp_plus", *files, "--workers", "1"]
        return run(denied, user, *command, *options, folder=folder)

    return grade


@MOSTLY_ORDINARY
@pytest.mark.parametrize("denied", ["namespaces,landlock", "namespaces,seccomp"])
def test_without_walls_nothing_is_graded(grade, denied):
    done = grade(denied)
    assert done.returncode == 1
    assert done.stdout == ""
    for word in ("bubblewrap", "user namespaces", "Landlock", "--unsafe-sandbox"):
        assert word in done.stderr
    assert "Traceback" not in done.stderr


@MOSTLY_ORDINARY
def test_with_the_walls_waived_completions_are_graded_and_it_is_said(grade):
    done = grade("namespaces,landlock,seccomp", "--unsafe-sandbox")
    assert done.returncode == 0, done.stderr
    rewards = [json.loads(line)["reward"] for line in done.stdout.splitlines()]
    assert rewards == [1.0, 0.0]
    assert "NOT WALLED OFF" in done.stderr


@MOSTLY_ORDINARY
@pytest.mark.parametrize("denied", ["namespaces", "landlock,seccomp", "pidfd"])
def test_one_wall_that_counts_is_enough(grade, denied):
    done = grade(denied)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["reward"] for line in done.stdout.splitlines()] == [1.0, 0.0]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="this user is one: its tests are these")
@pytest.mark.parametrize("user", [ORDINARY_USER], indirect=True)
def test_an_ordinary_users_grader_is_raided_in_vain(user, folder):
    """The raids of test_attacks.py, with completions that run as the grader's own user."""
    tests = [str(HERE / "test_attacks.py"), "-k", "raid", "-m", "slow or not slow"]
    done = run("", user, "pytest", "-q", "-p", "no:cacheprovider", *tests, folder=folder)
    assert done.returncode == 0, done.stdout
