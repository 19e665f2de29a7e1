"""A workflow that is killed goes on when the same command is given again; so does a report."""

import getpass
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml

from rapid.artifacts.files import sha256_file, write_jsonl
from tests.checkout import copy_checkout
from tests.faults.runs import PATIENCE, Workshop, problems, result, small
from tests.subprocesses import adopting

KILLS = 4
COMMAND = [sys.executable, "-m", "snakemake", "--cores", "2", "--nocolor", "reports/tables.tex"]
REPORT = [sys.executable, "-m", "reports", "--config", "params.yaml"]
REPORT += ["--html", "reports/report.html", "--output", "reports/tables.tex"]
REPORT += ["--figures", "reports/figures"]
MADE = ("data", "models", "distilled", "runs", "evaluations")


@pytest.fixture(scope="module")
def left_behind():
    with adopting() as found:
        yield found


@pytest.fixture(scope="module")
def fresh(toy_model, tmp_path_factory, left_behind) -> Path:
    """A copy of the tree with small parameters, in which nothing was run."""
    shop = Workshop(tmp_path_factory.mktemp("workshop"), toy_model, left_behind)
    shop.finish(shop.train("sft"), "sft")  # a model that solves some problems
    shop.end()
    folder = tmp_path_factory.mktemp("checkout")
    copy_checkout(folder)
    shutil.copytree(shop.folder / "sft/model", folder / "toy")
    write_jsonl(folder / "problems.jsonl", problems())
    values = small(math="problems.jsonl", toy="toy") | {"checkpoint_seconds": 0}
    (folder / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    return folder


@pytest.fixture(scope="module")
def whole(fresh) -> tuple[Path, float]:
    """The same in which the workflow was run, undisturbed; and the seconds that it took."""
    folder = fresh.with_name("whole")
    shutil.copytree(fresh, folder)
    (temporary := folder.with_name("temporary")).mkdir()
    return folder, finish(folder, COMMAND, TMPDIR=str(temporary))


def start(folder: Path, command: list[str], **more: str) -> subprocess.Popen:
    """Start a command as a terminal does, with processes that a signal can reach together."""
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"} | more
    with open(folder / "said.log", "a") as log:
        return subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip


def finish(folder: Path, command: list[str], **more: str) -> float:
    """Run a command to its end; return the seconds that it took."""
    began = time.monotonic()
    assert start(folder, command, **more).wait(PATIENCE) == 0, said(folder)
    return time.monotonic() - began


def said(folder: Path) -> str:
    return (folder / "said.log").read_text()[-4000:]


def made(folder: Path) -> dict:
    """Return all results in a folder, but for what differs from run to run."""
    return {room: result(folder / room) for room in MADE}


@pytest.mark.slow
def test_an_undisturbed_workflow_leaves_nothing_to_do_and_nothing_behind(whole):
    """Also as seen from a shell in which the environment is not activated."""
    folder, _ = whole
    programs = Path(sys.executable).parent
    bare = {"PATH": os.defpath, "HOME": os.environ["HOME"]}

    def printed(*command: str) -> str:
        options = {"cwd": folder, "env": bare, "check": True, "capture_output": True, "text": True}
        done = subprocess.run([str(programs / command[0]), *command[1:]], **options)
        return done.stdout + done.stderr

    assert "Nothing to be done" in printed("snakemake", "-n")
    assert "stale" not in printed("python", "-m", "rapid", "verify")
    left = {path.name for path in folder.with_name("temporary").iterdir()}
    assert left <= {f"rapid-cores-{os.geteuid()}", f"torchinductor_{getpass.getuser()}"}
    logs = [*(folder / "logs").rglob("*.log")]
    assert logs and max(path.stat().st_size for path in logs) < 100_000  # a kilobyte for a step


def signalled(number: int) -> Callable[[subprocess.Popen], None]:
    """Return what sends a signal to all processes of a command."""
    return lambda command: os.killpg(command.pid, number)


def end_one(command: subprocess.Popen) -> None:
    """Kill the youngest process, which is a job's or on the way to it."""
    found = psutil.Process(command.pid).children(recursive=True)
    for one in [*sorted(found, key=psutil.Process.create_time, reverse=True), command]:
        with suppress(psutil.NoSuchProcess):  # it has just ended
            return one.kill()


ENDS = {
    "workflow, snakemake killed": subprocess.Popen.kill,
    "workflow, all processes killed": signalled(signal.SIGKILL),
    "workflow, all processes told to end": signalled(signal.SIGTERM),
    "workflow, Ctrl-C": signalled(signal.SIGINT),
    "workflow, a job killed": end_one,
}
FAULTS = [
    pytest.param(end, id=name, marks=pytest.mark.fault(name, times=KILLS))
    for name, end in ENDS.items()
]


@pytest.mark.slow
@pytest.mark.parametrize("end", FAULTS)
def test_a_killed_workflow_goes_on_by_the_same_command(fresh, whole, left_behind, tmp_path, end):
    undisturbed, seconds = whole
    expected, moments, kills = made(undisturbed), random.Random(6), 0
    folder = tmp_path / "checkout"
    while kills < KILLS:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(fresh, folder)
        while kills < KILLS:
            command, began = start(folder, COMMAND), time.monotonic()
            try:
                assert command.wait(moments.uniform(0.1, 0.9) * seconds) == 0, said(folder)
                seconds = min(seconds, time.monotonic() - began)
                break
            except subprocess.TimeoutExpired:
                end(command)
                command.wait(PATIENCE)
            kills += 1
            assert not left_behind(), said(folder)
    finish(folder, COMMAND)
    assert made(folder) == expected
    assert not left_behind()
    assert not [*folder.rglob("checkpoints")]
    assert not [*Path(folder, ".snakemake/locks").glob("*")]


@pytest.mark.slow
@pytest.mark.fault("report, ended by SIGKILL or SIGTERM", times=KILLS)
def test_a_killed_report_is_made_again(whole, tmp_path):
    folder, kills = tmp_path / "checkout", 0
    shutil.copytree(whole[0], folder)
    moments, tables = random.Random(7), folder / "reports/tables.tex"
    expected, seconds = sha256_file(tables), finish(folder, REPORT)
    while kills < KILLS:
        command = start(folder, REPORT)
        try:
            command.wait(moments.uniform(0, seconds))
        except subprocess.TimeoutExpired:
            command.send_signal((signal.SIGKILL, signal.SIGTERM)[kills % 2])
            kills += 1
        command.wait(PATIENCE)
        assert sha256_file(tables) == expected  # whole, be it the one before
    finish(folder, REPORT)
    assert sha256_file(tables) == expected
