"""The pipeline at its smallest by profiles/slurm, on a real SLURM of two nodes of one core.

Jobs are killed in three ways while they run: by scancel, by kill -9, and as a preemption does it.
"""

import json
import re
import subprocess
import sys
import time
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
    pytest.mark.skipif(bool(slurm.missing()), reason=slurm.missing() or "there is SLURM"),
]

TABLES = ("reports/tables.tex", "reports/tables.txt", "reports/report.html")
# A SLURM without accounting: jobs are looked for in squeue, and charged to nobody.
PLAIN = ["--slurm-status-command", "squeue", "--slurm-no-account"]
PLAIN += ["--slurm-init-seconds-before-status-checks", "5"]
SECONDS = 1_500


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with slurm.running(tmp_path_factory.mktemp("slurm") / "slurm", nodes=2) as environment:
        bin = Path(sys.executable).parent
        yield {**environment, "PATH": f"{bin}:{environment['PATH']}"}


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


def start(folder: Path, environment: dict, log: Path, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "snakemake", "--profile", "profiles/slurm"]
    with open(log, "w") as stream:
        return subprocess.Popen(
            [*command, *PLAIN, "--nocolor", *arguments],
            cwd=folder, env=environment, stdout=stream, stderr=stream,
        )  # fmt: skip


def show(job: str, environment: dict) -> str:
    """What SLURM says of a job."""
    command = ["scontrol", "show", "job", job]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def queue(environment: dict) -> list[tuple[str, str, str]]:
    """SLURM's jobs, finished ones too: number, state, comment (rule and wildcards)."""
    command = ["squeue", "--states=all", "--noheader", "--format=%i|%T|%k"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [tuple(line.split("|")) for line in done.stdout.splitlines()]


def processes_of(job: str, folder: Path) -> list[psutil.Process]:
    """The `rapid` commands that run in a SLURM job, in this folder."""
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cmdline()[1:3] == ["-m", "rapid"] and process.cwd() == str(folder):
                processes += [process] if process.environ().get("SLURM_JOB_ID") == job else []
    return processes


def requeue(job: str, folder: Path, environment: dict) -> None:
    subprocess.run(["scontrol", "requeue", job], env=environment, check=True)


def cancel(job: str, folder: Path, environment: dict) -> None:
    subprocess.run(["scancel", job], env=environment, check=True)


def kill(job: str, folder: Path, environment: dict) -> None:
    for process in processes_of(job, folder):
        process.kill()


# How the first job of a rule (and wildcards, of which {root} is empty) is killed.
KILLS = {
    "rule_evaluate_wildcards__mbpp_plus_tiny-qwen2_base": requeue,
    "rule_train_wildcards__mbpp_plus_tiny-qwen2_pg": cancel,
    "rule_train_wildcards__mbpp_plus_tiny-qwen2_rapid-H4": kill,
}


@pytest.fixture(scope="module")
def killed(cluster, checkout):
    """The workflow, run to its end, and the jobs that were killed on the way by how they were."""
    log, jobs = checkout / "slurm.log", {}
    workflow = start(checkout, cluster, log, "reports/tables.tex")
    try:
        deadline = time.monotonic() + SECONDS
        while workflow.poll() is None and time.monotonic() < deadline:
            for job, state, comment in queue(cluster):
                how = next((h for rule, h in KILLS.items() if comment.startswith(rule)), None)
                if how and how not in jobs and state == "RUNNING" and processes_of(job, checkout):
                    how(job, checkout, cluster)
                    jobs[how] = job
            time.sleep(0.5)
        assert workflow.poll() == 0, log.read_text()[-6000:]
    finally:
        workflow.terminate()
        workflow.wait()
    return jobs, log.read_text()


def test_killed_jobs_are_started_again_and_the_tables_are_made(killed, checkout, cluster):
    jobs, log = killed
    states = {job: state for job, state, _ in queue(cluster)}
    assert states[jobs[requeue]] == "COMPLETED"  # by SLURM itself, under the same number
    assert states[jobs[cancel]] == "CANCELLED"
    assert states[jobs[kill]] == "FAILED"
    assert log.count("Trying to restart job") == 2
    for name in TABLES:
        assert (checkout / name).stat().st_size > 0
    evaluation = checkout / "evaluations/mbpp_plus/tiny-qwen2/pg/seed1/evaluation.json"
    figure = json.loads(evaluation.read_text())["pass_at"]["1"]
    assert f"{100 * figure:.1f}\\%" in (checkout / TABLES[0]).read_text()


def test_jobs_ask_slurm_for_their_memory_and_time(killed, cluster):
    shown = show(killed[0][cancel], cluster)
    assert "TimeLimit=02:00:00" in shown
    assert re.search(r"TRES=cpu=1,mem=6000M,node=1\b", shown)
    assert "Requeue=1" in shown


def test_the_work_is_done_in_the_jobs_and_not_in_a_fork_server(killed, checkout):
    """RAPID_WARM is exported to jobs with the rest of the environment."""
    assert not (checkout / "logs/warm.log").exists()
    (log,) = (checkout / "logs/train").glob("*.pg.seed1.log")
    assert re.search(r"^on core\(s\) \d+$", log.read_text(), re.MULTILINE)


def test_one_training_job_has_processes_on_two_nodes(killed, checkout, cluster):
    overlay = checkout / "two-nodes.yaml"
    overlay.write_text(
        "{compute: {processes: 2, nodes: 2}, sft: {micro_batch: 4},"
        " benchmarks: {mbpp_plus: {n_step: 8}}}\n"
    )
    run, log = "runs/mbpp_plus/tiny-qwen2/rapid-H4/seed1", checkout / "two-nodes.log"
    workflow = start(
        checkout, cluster, log, "--configfile", "params.yaml", overlay.name,
        "--", f"{run}/manifest.json",
    )  # fmt: skip
    status = workflow.wait(SECONDS)
    # Of two processes at once: their bars run into each other.
    file = checkout / "logs/train/mbpp_plus.tiny-qwen2.rapid-H4.seed1.log"
    output = file.read_text(errors="replace")
    assert status == 0, log.read_text()[-3000:] + output[-6000:]
    job = max((j for j, _, comment in queue(cluster) if "rapid-H4" in comment), key=int)
    assert "NumNodes=2" in show(job, cluster)
    assert output.count("on core(s)") == 2  # a launcher on each
    manifest = json.loads((checkout / run / "manifest.json").read_text())
    assert manifest["spec"]["compute"]["nodes"] == 2
    assert manifest["outputs"][f"{run}/model/model.safetensors"]
    assert json.loads((checkout / run / "summary.json").read_text())["optimizer_steps"] == 8
