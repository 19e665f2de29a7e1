"""`rapid accept`, `verify`, `reconcile`, `restore`: jobs, messages, files; a stub replaces DVC."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from rapid.artifacts.manifests import write_manifest
from rapid.config.jobs import Plan, build_plan
from rapid.config.params import load
from rapid.freshness import Job
from rapid.stages import maintenance


@pytest.fixture
def default(values, tmp_path, monkeypatch) -> Plan:
    """The plan of params.yaml, in a folder where older code made the problems."""
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    planned = build_plan(load(values))
    finish_with_other_code(planned.get_job("data/math"), "rapid/stages/prepare.py")
    return planned


def finish_with_other_code(job: Job, changed: str) -> None:
    """Write the files of a job, as if one file of code had been different."""
    out, manifest = Path(job.folder, "out"), Path(job.manifest)
    out.parent.mkdir(parents=True)
    out.write_text("out")
    write_manifest(out.parent, job.stage, job.spec, {}, [out])
    document = json.loads(manifest.read_text())
    document["spec"]["code"] = document["code"][changed] = "another"
    manifest.write_text(json.dumps(document))


def accept_all() -> int:
    return maintenance.accept([Path("params.yaml")])


def test_accepted_jobs_are_listed_with_the_changed_code(default, capsys):
    assert accept_all() == 0
    printed = capsys.readouterr()
    assert "accepted: data/math" in printed.out
    assert "code has changed: rapid/stages/prepare.py" in printed.err
    assert "/rapid-H16,eta=1/" not in printed.out


def test_reconcile_succeeds_where_verify_fails_and_discards_the_manifest(default, capsys):
    params, job = [Path("params.yaml")], default.get_job("data/math")
    assert (maintenance.verify(params), Path(job.manifest).is_file()) == (1, True)
    findings = capsys.readouterr().out
    assert (maintenance.reconcile(params), Path(job.manifest).is_file()) == (0, False)
    assert capsys.readouterr().out == findings


def test_default_reports_are_made_again_if_jobs_shared_with_an_experiment_are_accepted(default):
    finish_with_other_code(default.get_job("reports"), "reports/contents.py")
    Path("eta.yaml").write_text("name: eta\nrapid: {eta: 3.0}\n")
    maintenance.accept([Path("params.yaml"), Path("eta.yaml")])
    assert not Path(default.get_job("reports").manifest).exists()


def test_accept_covers_started_studies(default, capsys):
    run = default.get_job("runs/math/tiny-qwen2/rapid-H16,eta=1/seed1")
    finish_with_other_code(run, "rapid/stages/train.py")
    accept_all()
    assert f"accepted: {run.folder}" in capsys.readouterr().out


def test_verify_covers_the_metrics_for_dvc_once_they_exist(default, capsys):
    """Otherwise `rapid verify` would always report a missing job after `make tables`."""
    maintenance.verify([Path("params.yaml")])
    assert "reports/experiment" not in capsys.readouterr().out
    finish_with_other_code(default.get_job("reports/experiment"), "reports/experiment.py")
    maintenance.verify([Path("params.yaml")])
    assert "stale: reports/experiment: made with other code" in capsys.readouterr().out


@pytest.fixture
def pulls(monkeypatch) -> list[list[str]]:
    """Commands given to a stub of `dvc pull`, which fails."""
    commands: list[list[str]] = []

    def fail(command, **options) -> subprocess.CompletedProcess:
        commands.append(command[3:])
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", fail)
    return commands


@pytest.mark.parametrize("lock", ["", "schema: '2.0'\nstages: {}\n", None])
def test_restore_pulls_nothing_without_results_in_dvc_lock(default, pulls, capsys, lock):
    """`dvc pull --force` would delete local results."""
    if lock is not None:
        Path("dvc.lock").write_text(lock)
    assert maintenance.restore([Path("params.yaml")], force=True) == 1
    assert "dvc.lock: it is missing or lists no results to pull" in capsys.readouterr().err
    assert pulls == []


def test_restore_replaces_files_only_with_force(default, pulls, capsys):
    Path("dvc.lock").write_text("stages: {data: {cmd: make}}")
    assert maintenance.restore([Path("params.yaml")]) == 1
    assert "`rapid restore --force` replaces them, and deletes results" in capsys.readouterr().err
    assert maintenance.restore([Path("params.yaml")], force=True) == 1
    assert "--force" not in capsys.readouterr().err
    assert pulls == [["pull"], ["pull", "--force"]]
