"""On machines where no sandbox works, grading needs the unsafe flag. A seccomp filter simulates them."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pydantic
import pytest

from tests.conftest import ROOT

FOLDER = Path(__file__).parent


def is_readable_by_all(path: Path | str) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in Path(path).resolve().parents)


# The system's Python of this version, because the other user imports this environment's packages.
SYSTEM_PYTHON = "/usr/bin/python{}.{}".format(*sys.version_info)
PYTHON = sys.executable if is_readable_by_all(sys.executable) else SYSTEM_PYTHON
PACKAGES = Path(pydantic.__file__).parents[1]
ROOT_USER, ORDINARY_USER = 0, 65534

pytestmark = pytest.mark.skipif(
    not os.access(PYTHON, os.X_OK), reason="no Python interpreter that every user may execute"
)


# The fast tests run as the ordinary user, the slow tests as root too.
MOSTLY_AS_ORDINARY_USER = pytest.mark.parametrize(
    "user", [ORDINARY_USER, pytest.param(ROOT_USER, marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture(params=[ROOT_USER, ORDINARY_USER], ids=["root", "ordinary user"])
def user(request):
    """A user to run as, which the user of these tests may become."""
    if os.geteuid() not in (ROOT_USER, request.param):
        pytest.skip("only root can be another user")
    if request.param == ORDINARY_USER and not (
        is_readable_by_all(__file__) and is_readable_by_all(PACKAGES)
    ):
        pytest.skip("another user cannot read this checkout")
    return request.param


@pytest.fixture
def folder():
    """A folder that the other user may enter, unlike pytest's own folders."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def run_restricted(
    denied: str, user: int, *command: str, folder: Path
) -> subprocess.CompletedProcess:
    home = folder / "home"
    home.mkdir()
    os.chown(home, user, -1)
    changes = {"PYTHONPATH": f"{ROOT}:{PACKAGES}", "HOME": str(home), "TMPDIR": str(home)}
    return subprocess.run(
        [
            PYTHON,
            str(FOLDER / "restricted_kernel.py"),
            denied,
            str(user),
            PYTHON,
            "-B",
            "-m",
            *command,
        ],
        cwd=ROOT,
        env=os.environ | changes,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture
def grade(user, double, folder):
    """Return a function that runs `rapid grade` on a right and a wrong completion."""
    completions = ["def f(x): return 2 * x", "def f(x): return 3 * x"]
    rows = [json.dumps({"id": double.id, "completion": code}) for code in completions]
    (folder / "completions").write_text("\n".join(rows))
    (folder / "problems").write_text(double.model_dump_json())
    files = ["--problems", str(folder / "problems"), "--completions", str(folder / "completions")]

    def grade(denied: str, *options: str) -> subprocess.CompletedProcess:
        command = ["rapid", "grade", "--benchmark", "mbpp_plus", *files, "--workers", "1"]
        return run_restricted(denied, user, *command, *options, folder=folder)

    return grade


@MOSTLY_AS_ORDINARY_USER
@pytest.mark.parametrize("denied", ["namespaces,landlock", "namespaces,seccomp"])
def test_without_isolation_nothing_is_graded(grade, denied):
    result = grade(denied)
    assert result.returncode == 1
    assert result.stdout == ""
    for word in ("bubblewrap", "user namespaces", "Landlock", "--unsafe-sandbox"):
        assert word in result.stderr
    assert "Traceback" not in result.stderr


@MOSTLY_AS_ORDINARY_USER
def test_with_the_unsafe_flag_completions_are_graded_with_a_warning(grade):
    result = grade("namespaces,landlock,seccomp", "--unsafe-sandbox")
    assert result.returncode == 0, result.stderr
    rewards = [json.loads(line)["reward"] for line in result.stdout.splitlines()]
    assert rewards == [1.0, 0.0]
    assert "NOT ISOLATED" in result.stderr


@MOSTLY_AS_ORDINARY_USER
@pytest.mark.parametrize("denied", ["namespaces", "landlock,seccomp", "pidfd"])
def test_one_kind_of_isolation_is_enough(grade, denied):
    result = grade(denied)
    assert result.returncode == 0, result.stderr
    assert [json.loads(line)["reward"] for line in result.stdout.splitlines()] == [1.0, 0.0]


@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0, reason="for an ordinary user the tests of attacks are this test"
)
@pytest.mark.parametrize("user", [ORDINARY_USER], indirect=True)
def test_intrusions_fail_against_the_grader_of_an_ordinary_user(user, folder):
    """The intrusions of test_attacks.py, by completions that run as the grader's user."""
    tests = [str(FOLDER / "test_attacks.py"), "-k", "intrusion", "-m", "slow or not slow"]
    result = run_restricted(
        "", user, "pytest", "-q", "-p", "no:cacheprovider", *tests, folder=folder
    )
    assert result.returncode == 0, result.stdout
