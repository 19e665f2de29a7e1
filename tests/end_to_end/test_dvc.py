"""The pipeline with DVC at the size of experiments/ci.yaml, with real git and dvc in fresh folders.

The tests share their clones and depend on their order: repro, a changed parameter, a sweep over H,
push, clone, restore.
"""

import csv
import io
import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import yaml

from rapid.config.jobs import list_jobs
from rapid.config.params import load, read
from tests import recompute
from tests.checkout import ROOT, copy_checkout
from tests.end_to_end.test_dag import list_rules
from tests.subprocesses import ACTIVATED, wait_for

pytestmark = pytest.mark.slow

TABLES = ("reports/tables.tex", "reports/tables.txt", "reports/experiment/metrics.json")
SWEEP = (2, 8)
IDENTITY = {f"GIT_{role}_NAME": "a" for role in ("AUTHOR", "COMMITTER")}
IDENTITY |= {f"GIT_{role}_EMAIL": "a@b" for role in ("AUTHOR", "COMMITTER")}
ENVIRONMENT = os.environ | ACTIVATED | IDENTITY


def run_command(folder: Path, *command: str, check: bool = True) -> str:
    """Run a command, and return its output."""
    ended = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    output = ended.stdout + ended.stderr
    assert not check or ended.returncode == 0, f"{' '.join(command)}:\n{output[-6000:]}"
    return output


def commit_all(folder: Path, message: str) -> None:
    run_command(folder, "git", "add", "-A")
    run_command(folder, "git", "commit", "-qm", message)


def set_param(folder: Path, section: str, key: str, value) -> None:
    path = folder / "params.yaml"
    values = yaml.safe_load(path.read_text())
    values[section][key] = value
    path.write_text(yaml.safe_dump(values, sort_keys=False))


def count_rules(output: str) -> Counter:
    """Count the jobs of each rule that Snakemake ran or plans, by its output."""
    return Counter(name for name in list_rules(output) if not name.startswith("all_"))


def read_manifests(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.glob("*/**/manifest.json")}


def count_planned(folder: Path) -> Counter:
    return count_rules(
        run_command(folder, "snakemake", "-n", "--cores", "2", "--nocolor", "reports/tables.tex")
    )


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A repository of the tracked files, with ci.yaml's sizes in params.yaml, after `dvc repro`."""
    folder = tmp_path_factory.mktemp("dvc") / "here"
    copy_checkout(folder)
    values = read(ROOT / "params.yaml", ROOT / "experiments/ci.yaml") | {"name": None}
    (folder / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    run_command(folder, "git", "init", "-q", ".")
    commit_all(folder, "the pipeline")
    run_command(folder, "dvc", "repro")
    commit_all(folder, "eta 2")
    return folder


def test_repro_runs_all_jobs_and_a_second_repro_none(checkout):
    assert set(read_manifests(checkout)) == {
        job.manifest for job in list_jobs(load_params(checkout))
    }
    assert "didn't change, skipping" in run_command(checkout, "dvc", "repro")
    assert not count_planned(checkout)


def test_tables_equal_the_recomputation_from_raw_files(checkout):
    values = yaml.safe_load((checkout / "params.yaml").read_text())
    differing, count = recompute.compare_all(checkout, values, checkout / "reports")
    assert not differing
    assert count > 100


def load_params(folder: Path):
    return load(read(folder / "params.yaml"))


def test_git_tracks_no_large_files(checkout):
    tracked = run_command(
        checkout, "git", "ls-files", "data", "models", "runs", "evaluations", "distilled"
    )
    assert tracked == ""


def test_a_changed_eta_runs_only_the_affected_jobs(checkout):
    before = read_manifests(checkout)
    set_param(checkout, "rapid", "eta", 3.0)
    output = run_command(checkout, "dvc", "repro")
    affected_jobs = [job for job in list_jobs(load_params(checkout)) if "/rapid-H" in job.folder]
    counts = count_rules(output)
    assert counts["train"] + counts["evaluate"] == len(affected_jobs)
    assert set(counts) == {"train", "evaluate", "report", "experiment"}
    after = read_manifests(checkout)
    assert {path for path in after if after[path] != before[path]} == {
        *(job.manifest for job in affected_jobs),
        "reports/manifest.json",
        "reports/experiment/manifest.json",
    }
    assert "rapid.eta" in run_command(checkout, "dvc", "params", "diff")
    assert "runtime" in run_command(checkout, "dvc", "metrics", "diff")
    run_command(checkout, "git", "commit", "-qm", "eta 3", "params.yaml")


def read_sweep_commands() -> list[str]:
    """Return docs/dvc.md's three commands for a sweep: to queue it, to run it, to show it."""
    text = (ROOT / "docs/dvc.md").read_text(encoding="utf-8")
    return re.findall(r"^    (dvc exp (?:run --|show --csv)(?:.*\\\n)*.*)$", text, re.MULTILINE)


def test_a_sweep_over_h_is_queued_and_shown(checkout):
    """The commands are those of docs/dvc.md, and dvc.lock is neither staged nor committed."""
    assert run_command(checkout, "git", "status", "--short") == " M dvc.lock\n"
    queue_command, work_command, show_command = read_sweep_commands()
    run_command(checkout, "sh", "-c", queue_command.replace("2,4,8,16", ",".join(map(str, SWEEP))))
    rewards = []

    def has_ended() -> bool:
        # `dvc exp show` sends the worker a message. A worker that reads a message before it is
        # written ends (celery/kombu#1551), so the command is not called more often than needed.
        if not rewards:
            rows = list_experiments(checkout, check=False)  # fails while DVC makes a folder
            figures = [row.get("reward") for row in rows if row.get("State") == "Running"]
            rewards.extend(float(figure) for figure in figures if figure not in (None, "", "!"))
        return worker.poll() is not None

    with open(checkout.parent / "work", "w") as output:  # the worker keeps its output open
        worker = subprocess.Popen(
            ["sh", "-c", work_command],
            cwd=checkout,
            env=ENVIRONMENT,
            stdout=output,
            stderr=output,
        )
    wait_for(has_ended, 900, interval=2)
    assert rewards and all(0 <= reward <= 1 for reward in rewards)
    rows = list_experiments(checkout)
    rows = {int(row["rapid.H"]): row for row in rows if row["typ"].startswith("branch")}
    assert set(rows) == set(SWEEP), run_command(checkout, "dvc", "queue", "logs", check=False)
    for row in rows.values():
        assert 0 <= float(row["pass@1"]) <= float(row["pass@8"]) <= 100
        assert float(row["runtime"]) > 0
    logs = [run_command(checkout, "dvc", "queue", "logs", rows[H]["Experiment"]) for H in SWEEP]
    assert not any(count_rules(log)["prepare"] + count_rules(log)["pretrain"] for log in logs)
    assert [count_rules(log)["train"] for log in logs] == [0, 1]  # ci.yaml has a run with H = 2
    assert rows[8]["runtime"] != rows[2]["runtime"]
    plots = ["dvc", "plots", "diff", "--json", rows[2]["rev"], rows[8]["rev"]]
    assert "reward" in run_command(checkout, *plots)
    lines = run_command(checkout, "sh", "-c", show_command).splitlines()
    head, *printed = [re.split(r"  +", line.strip()) for line in lines]
    assert [row[0] for row in printed] == ["sweep-1", "sweep-2"]
    assert {"Experiment", "pass@1", "pass@8", "runtime", "rapid.H"} <= {*head}
    assert {len(row) for row in printed} == {len(head)}
    # The workspace has not changed.
    assert run_command(checkout, "git", "status", "--short") == " M dvc.lock\n"


def test_an_experiment_is_applied_and_undone(checkout):
    before = read(checkout / "params.yaml")
    run_command(checkout, "dvc", "exp", "apply", "sweep-2")
    before["rapid"]["H"] = SWEEP[1]
    assert read(checkout / "params.yaml") == before
    assert "stale" not in run_command(checkout, "rapid", "verify")
    output = run_command(checkout, "sh", "-c", "git restore params.yaml && dvc repro")
    assert set(count_rules(output)) == {"report", "experiment"}
    commit_all(checkout, "eta 3, its results")


def list_experiments(folder: Path, check: bool = True) -> list[dict]:
    output = run_command(folder, "dvc", "exp", "show", "--csv", check=check)
    return list(csv.DictReader(io.StringIO(output)))


@pytest.fixture(scope="module")
def clone(checkout) -> Path:
    """A clone that was restored from the shared remote in its .dvc/config."""
    remote = checkout.parent / "shared"
    run_command(checkout, "dvc", "remote", "add", "--default", "shared", str(remote))
    commit_all(checkout, "a shared remote")
    run_command(checkout, "dvc", "push")
    folder = checkout.parent / "another/place/elsewhere"
    run_command(checkout.parent, "git", "clone", "-q", str(checkout), str(folder))
    run_command(folder, "rapid", "restore")
    return folder


def test_a_restored_clone_has_the_same_tables_and_plans_nothing(checkout, clone):
    assert not count_planned(clone)
    for path in TABLES:
        assert (clone / path).read_bytes() == (checkout / path).read_bytes()
    assert "up to date" in run_command(clone, "dvc", "status")


def test_a_model_can_be_downloaded_by_its_name(checkout, clone):
    run_command(checkout, "git", "tag", "-a", "rapid-math@v1.0.0", "-m", "first")
    run_command(
        checkout.parent, "dvc", "artifacts", "get", str(checkout), "rapid-math", "-o", "model"
    )
    weights = "model.safetensors"
    [trained] = checkout.glob(f"runs/math/tiny-qwen2/rapid-H4/seed1/model/{weights}")
    assert (checkout.parent / "model" / weights).read_bytes() == trained.read_bytes()
