"""The same command resumes a killed workflow, and a killed report."""

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
from rapid.processes import locks
from rapid.resources.leases import name_lease_folder
from tests.checkout import copy_checkout
from tests.faults.conftest import make_fault_cases
from tests.faults.runs import PATIENCE, JobRunner, make_problems, make_small_values, read_results
from tests.subprocesses import adopt_orphans

KILLS = 4
COMMAND = [sys.executable, "-m", "snakemake", "--cores", "2", "--nocolor", "reports/tables.tex"]
REPORT = [sys.executable, "-m", "reports", "--config", "params.yaml"]
REPORT += ["--html", "reports/report.html", "--output", "reports/tables.tex"]
REPORT += ["--figures", "reports/figures"]
FOLDERS = ("data", "models", "distilled", "runs", "evaluations")


@pytest.fixture(scope="module")
def left_behind():
    with adopt_orphans() as left_behind:
        yield left_behind


@pytest.fixture(scope="module")
def fresh_checkout(toy_model, tmp_path_factory, left_behind) -> Path:
    """A copy of the tree with small parameters, in which nothing was run."""
    job_runner = JobRunner(tmp_path_factory.mktemp("job_runner"), toy_model, left_behind)
    job_runner.finish(
        job_runner.build_train_command("sft"), "sft"
    )  # the model then solves some problems
    job_runner.end()
    folder = tmp_path_factory.mktemp("checkout")
    copy_checkout(folder)
    shutil.copytree(job_runner.folder / "sft/model", folder / "toy")
    write_jsonl(folder / "problems.jsonl", make_problems())
    values = make_small_values(math="problems.jsonl", toy="toy") | {"checkpoint_seconds": 0}
    (folder / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    return folder


@pytest.fixture(scope="module")
def undisturbed(fresh_checkout) -> tuple[Path, float]:
    """A copy in which the workflow was run without a fault, and the seconds that it took."""
    folder = fresh_checkout.with_name("undisturbed")
    shutil.copytree(fresh_checkout, folder)
    (temporary := folder.with_name("temporary")).mkdir()
    return folder, finish_command(folder, COMMAND, TMPDIR=str(temporary))


def start_command(folder: Path, command: list[str], **variables: str) -> subprocess.Popen:
    """Start a command in a process group of its own, as a terminal does."""
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    with open(folder / "output.log", "a") as log:
        return subprocess.Popen(
            command, cwd=folder, env=environment | variables, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def finish_command(folder: Path, command: list[str], **variables: str) -> float:
    """Run a command to its end; return the seconds that it took."""
    start_time = time.monotonic()
    assert start_command(folder, command, **variables).wait(PATIENCE) == 0, read_log_tail(folder)
    return time.monotonic() - start_time


def read_log_tail(folder: Path) -> str:
    return (folder / "output.log").read_text()[-4000:]


def read_all_results(folder: Path) -> dict:
    return {folder_name: read_results(folder / folder_name) for folder_name in FOLDERS}


@pytest.mark.slow
def test_an_undisturbed_workflow_is_up_to_date_and_leaves_no_files_behind(undisturbed):
    """This is checked from a shell in which the environment is not activated."""
    folder, _ = undisturbed
    program_folder = Path(sys.executable).parent
    minimal_environment = {"PATH": os.defpath, "HOME": os.environ["HOME"]}

    def run_program(*command: str) -> str:
        options = {
            "cwd": folder,
            "env": minimal_environment,
            "check": True,
            "capture_output": True,
            "text": True,
        }
        ended = subprocess.run([str(program_folder / command[0]), *command[1:]], **options)
        return ended.stdout + ended.stderr

    assert "Nothing to be done" in run_program("snakemake", "-n")
    assert "stale" not in run_program("python", "-m", "rapid", "verify")
    temporary = {path.name for path in folder.with_name("temporary").iterdir()}
    assert temporary <= {name_lease_folder().name, f"torchinductor_{getpass.getuser()}"}
    logs = [*(folder / "logs").rglob("*.log")]
    # A log has less than a kilobyte per step.
    assert logs and max(path.stat().st_size for path in logs) < 100_000


def send_signal(signal_number: int) -> Callable[[subprocess.Popen], None]:
    """Return a function that sends a signal to all processes of a command."""
    return lambda command: os.killpg(command.pid, signal_number)


def kill_youngest(command: subprocess.Popen) -> None:
    """Kill the youngest process, which is a job or starts one."""
    children = psutil.Process(command.pid).children(recursive=True)
    for process in [*sorted(children, key=psutil.Process.create_time, reverse=True), command]:
        with suppress(psutil.NoSuchProcess):  # it has just ended
            return process.kill()


KILLED = {
    "workflow: SIGKILL to Snakemake": subprocess.Popen.kill,
    "workflow: SIGKILL to all processes": send_signal(signal.SIGKILL),
    "workflow: SIGTERM to all processes": send_signal(signal.SIGTERM),
    "workflow: Ctrl-C": send_signal(signal.SIGINT),
    "workflow: job killed": kill_youngest,
}


@pytest.mark.slow
@pytest.mark.parametrize("kill", make_fault_cases(KILLED, KILLS))
def test_the_same_command_resumes_a_killed_workflow(
    fresh_checkout, undisturbed, left_behind, tmp_path, kill
):
    undisturbed_folder, seconds = undisturbed
    expected, moments, kills = read_all_results(undisturbed_folder), random.Random(6), 0
    folder = tmp_path / "checkout"
    while kills < KILLS:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(fresh_checkout, folder)
        while kills < KILLS:
            command, start_time = start_command(folder, COMMAND), time.monotonic()
            try:
                assert command.wait(moments.uniform(0.1, 0.9) * seconds) == 0, read_log_tail(folder)
                seconds = min(seconds, time.monotonic() - start_time)
                break
            except subprocess.TimeoutExpired:
                kill(command)
                command.wait(PATIENCE)
            kills += 1
            assert not left_behind(), read_log_tail(folder)
    finish_command(folder, COMMAND)
    assert read_all_results(folder) == expected
    assert not left_behind()
    assert not [*folder.rglob("checkpoints")]
    for name in (locks.SNAKEMAKE_LOCKS, locks.FORK_SERVER_SOCKETS):
        assert not [*Path(folder, ".snakemake", name).glob("*")]


@pytest.mark.slow
@pytest.mark.fault("killed jobs: report by SIGKILL or SIGTERM", times=KILLS)
def test_a_killed_report_is_made_again(undisturbed, tmp_path):
    folder, kills = tmp_path / "checkout", 0
    shutil.copytree(undisturbed[0], folder)
    moments, tables = random.Random(7), folder / "reports/tables.tex"
    expected, seconds = sha256_file(tables), finish_command(folder, REPORT)
    while kills < KILLS:
        command = start_command(folder, REPORT)
        try:
            command.wait(moments.uniform(0, seconds))
        except subprocess.TimeoutExpired:
            command.send_signal((signal.SIGKILL, signal.SIGTERM)[kills % 2])
            kills += 1
        command.wait(PATIENCE)
        assert sha256_file(tables) == expected  # the complete earlier table or the complete new one
    finish_command(folder, REPORT)
    assert sha256_file(tables) == expected
