"""A small pipeline with profiles/slurm, on a real SLURM of two nodes with one core each.

Running jobs are killed in three ways: by scancel, by kill -9, and by a requeue as in a preemption.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml

from rapid.config.params import load, read
from tests.checkout import copy_checkout
from tests.conftest import ROOT
from tests.end_to_end import slurm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(slurm.describe_missing()), reason=slurm.describe_missing() or "there is SLURM"
    ),
]

TABLES = ("reports/tables.tex", "reports/tables.txt", "reports/report.html")
# For a SLURM without accounting: Snakemake looks for jobs in squeue, and uses no account.
PLAIN_SLURM_OPTIONS = ["--slurm-status-command", "squeue", "--slurm-no-account"]
PLAIN_SLURM_OPTIONS += ["--slurm-init-seconds-before-status-checks", "5"]
SECONDS = 1_500


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm.run_slurm(tmp_path_factory.mktemp("slurm") / "slurm", nodes=2) as environment:
        programs = Path(sys.executable).parent
        yield {**environment, "PATH": f"{programs}:{environment['PATH']}"}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the tracked files, with parameters of nine jobs."""
    folder = tmp_path_factory.mktemp("checkout")
    copy_checkout(folder)
    values = read(ROOT / "params.yaml", ROOT / "experiments/ci.yaml") | {"name": None}
    values["benchmarks"] = {"mbpp_plus": values["benchmarks"]["mbpp_plus"]}
    model = values["models"]["tiny-qwen2"] | {"benchmarks": ["mbpp_plus"], "error_rate": 0.9}
    values["models"] = {"tiny-qwen2": model}
    values["teacher"] = "tiny-qwen2"
    values["tables"]["main"] = {"model": "tiny-qwen2", "algorithms": ["pg"], "seeds": [1]}
    values["tables"]["families"] |= {"models": [], "algorithms": ["pg"]}
    values["tables"]["staleness"] = {"H": [4]}
    del values["studies"]
    load(values)
    (folder / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    return folder


def start_workflow(folder: Path, environment: dict, log: Path, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "snakemake", "--profile", "profiles/slurm"]
    with open(log, "w") as stream:
        return subprocess.Popen(
            [*command, *PLAIN_SLURM_OPTIONS, "--nocolor", *arguments],
            cwd=folder, env=environment, stdout=stream, stderr=stream,
        )  # fmt: skip


def list_jobs(environment: dict) -> list[tuple[str, str, str]]:
    """Return number, state and comment (rule and wildcards) of all jobs, with finished ones."""
    command = ("squeue", "--states=all", "--noheader", "--format=%i|%T|%k")
    lines = slurm.run_slurm_command(environment, *command).splitlines()
    return [tuple(line.split("|")) for line in lines]


def find_processes(job: str, folder: Path) -> list[psutil.Process]:
    """Return the `rapid` commands that run in a SLURM job in this folder."""
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cmdline()[1:3] == ["-m", "rapid"] and process.cwd() == str(folder):
                processes += [process] if process.environ().get("SLURM_JOB_ID") == job else []
    return processes


def requeue_job(job: str, folder: Path, environment: dict) -> None:
    slurm.run_slurm_command(environment, "scontrol", "requeue", job)


def cancel_job(job: str, folder: Path, environment: dict) -> None:
    slurm.run_slurm_command(environment, "scancel", job)


def kill_processes(job: str, folder: Path, environment: dict) -> None:
    for process in find_processes(job, folder):
        process.kill()


# The function that kills the first job of a rule with these wildcards, of which {root} is empty.
KILLS_BY_RULE = {
    "rule_evaluate_wildcards__mbpp_plus_tiny-qwen2_base": requeue_job,
    "rule_train_wildcards__mbpp_plus_tiny-qwen2_pg": cancel_job,
    "rule_train_wildcards__mbpp_plus_tiny-qwen2_rapid-H4": kill_processes,
}


def find_kill(comment: str) -> Callable | None:
    """Return the function that kills the job with this comment, if there is one."""
    kills = KILLS_BY_RULE.items()
    return next((function for rule, function in kills if comment.startswith(rule)), None)


@pytest.fixture(scope="module")
def killed_jobs(cluster, checkout):
    """The numbers of killed jobs by the function that killed them, and the log of the ended workflow."""
    log, jobs = checkout / "slurm.log", {}
    workflow = start_workflow(checkout, cluster, log, "reports/tables.tex")
    try:
        deadline = time.monotonic() + SECONDS
        while workflow.poll() is None and time.monotonic() < deadline:
            for job, state, comment in list_jobs(cluster):
                kill_job = find_kill(comment)
                is_due = kill_job and kill_job not in jobs and state == "RUNNING"
                if is_due and find_processes(job, checkout):
                    kill_job(job, checkout, cluster)
                    jobs[kill_job] = job
            time.sleep(0.5)
        assert workflow.poll() == 0, log.read_text()[-6000:]
    finally:
        workflow.terminate()
        workflow.wait()
    return jobs, log.read_text()


def test_killed_jobs_are_restarted_and_the_tables_are_made(killed_jobs, checkout, cluster):
    jobs, log = killed_jobs
    states = {job: state for job, state, _ in list_jobs(cluster)}
    assert states[jobs[requeue_job]] == "COMPLETED"  # SLURM restarted it under the same number
    assert states[jobs[cancel_job]] == "CANCELLED"
    assert states[jobs[kill_processes]] == "FAILED"
    assert log.count("Trying to restart job") == 2
    for name in TABLES:
        assert (checkout / name).stat().st_size > 0
    evaluation = checkout / "evaluations/mbpp_plus/tiny-qwen2/pg/seed1/evaluation.json"
    figure = json.loads(evaluation.read_text())["pass_at"]["1"]
    assert f"{100 * figure:.1f}\\%" in (checkout / TABLES[0]).read_text()


def test_jobs_request_their_memory_and_time(killed_jobs, cluster):
    cancelled_job = killed_jobs[0][cancel_job]
    description = slurm.run_slurm_command(cluster, "scontrol", "show", "job", cancelled_job)
    assert "TimeLimit=02:00:00" in description
    assert re.search(r"TRES=cpu=1,mem=6000M,node=1\b", description)
    assert "Requeue=1" in description


def test_jobs_do_not_use_a_fork_server(killed_jobs, checkout):
    """The environment that SLURM exports to jobs contains RAPID_FORK_SERVER."""
    assert not (checkout / "logs/fork_server.log").exists()
    (log,) = (checkout / "logs/train").glob("*.pg.seed1.log")
    assert re.search(r"^running on core\(s\) \d+$", log.read_text(), re.MULTILINE)


def test_a_training_job_runs_processes_on_two_nodes(killed_jobs, checkout, cluster):
    overlay = checkout / "two-nodes.yaml"
    overlay.write_text(
        "{compute: {processes: 2, nodes: 2}, sft: {micro_batch: 4},"
        " benchmarks: {mbpp_plus: {n_step: 8}}}\n"
    )
    run, log = "runs/mbpp_plus/tiny-qwen2/rapid-H4/seed1", checkout / "two-nodes.log"
    workflow = start_workflow(
        checkout, cluster, log, "--configfile", "params.yaml", overlay.name,
        "--", f"{run}/manifest.json",
    )  # fmt: skip
    status = workflow.wait(SECONDS)
    # The progress bars of two processes are mixed in this log.
    file = checkout / "logs/train/mbpp_plus.tiny-qwen2.rapid-H4.seed1.log"
    output = file.read_text(errors="replace")
    assert status == 0, log.read_text()[-3000:] + output[-6000:]
    job = max(
        (number for number, _, comment in list_jobs(cluster) if "rapid-H4" in comment), key=int
    )
    assert "NumNodes=2" in slurm.run_slurm_command(cluster, "scontrol", "show", "job", job)
    assert output.count("on core(s)") == 2  # a launcher on each node
    manifest = json.loads((checkout / run / "manifest.json").read_text())
    assert manifest["spec"]["compute"]["nodes"] == 2
    assert manifest["outputs"][f"{run}/model/model.safetensors"]
    assert json.loads((checkout / run / "summary.json").read_text())["optimizer_steps"] == 8
