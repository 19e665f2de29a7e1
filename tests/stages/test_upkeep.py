"""`rapid accept`, `verify` and `restore`: what they cover, say and leave. DVC is a stand-in."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from rapid.artifacts.manifests import write_manifest
from rapid.config.jobs import Plan, build_plan
from rapid.config.params import load
from rapid.freshness import Job
from rapid.stages import upkeep


@pytest.fixture
def default(values, tmp_path, monkeypatch) -> Plan:
    """params.yaml's plan, in a folder where problems were made long ago."""
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    planned = build_plan(load(values))
    make(planned.job("data/math"), "rapid/stages/prepare.py")
    return planned


def make(job: Job, changed: str) -> None:
    """Make a job as it would have been with another file of code."""
    out, manifest = Path(job.folder, "out"), Path(job.manifest)
    out.parent.mkdir(parents=True)
    out.write_text("out")
    write_manifest(out.parent, job.stage, job.spec, {}, [out])
    document = json.loads(manifest.read_text())
    document["spec"]["code"] = document["code"][changed] = "another"
    manifest.write_text(json.dumps(document))


def accept() -> int:
    return upkeep.accept([Path("params.yaml")])


def test_what_is_accepted_is_named_with_what_changed(default, capsys):
    assert accept() == 0
    printed = capsys.readouterr()
    assert "accepted: data/math" in printed.out
    assert "code has changed: rapid/stages/prepare.py" in printed.err
    assert "/rapid-H16,eta=1/" not in printed.out


def test_studies_that_are_begun_are_covered(default, capsys):
    run = default.job("runs/math/tiny-qwen2/rapid-H16,eta=1/seed1")
    make(run, "rapid/stages/train.py")
    accept()
    assert f"accepted: {run.folder}" in capsys.readouterr().out


def test_the_metrics_for_dvc_count_once_they_are_made(default, capsys):
    """Else not all would be made after `make tables`, which nothing lacks."""
    upkeep.verify([Path("params.yaml")])
    assert "reports/experiment" not in capsys.readouterr().out
    make(default.job("reports/experiment"), "reports/experiment.py")
    upkeep.verify([Path("params.yaml")])
    assert "stale: reports/experiment: made with other code" in capsys.readouterr().out


@pytest.fixture
def pulls(monkeypatch) -> list[list[str]]:
    """Stand in for a `dvc pull` that fails; keep how it was called."""
    commands: list[list[str]] = []

    def fail(command, **options) -> subprocess.CompletedProcess:
        commands.append(command[3:])
        return subprocess.CompletedProcess(command, 1)

    monkeypatch.setattr(subprocess, "run", fail)
    return commands


@pytest.mark.parametrize("lock", ["", "schema: '2.0'\nstages: {}\n", None])
def test_without_results_in_dvc_lock_nothing_is_pulled(default, pulls, capsys, lock):
    """`dvc pull --force` would delete what was made here."""
    if lock is not None:
        Path("dvc.lock").write_text(lock)
    assert upkeep.restore([Path("params.yaml")], force=True) == 1
    assert "dvc.lock: it lists no results to pull" in capsys.readouterr().err
    assert pulls == []


def test_files_are_replaced_only_where_it_is_asked_for(default, pulls, capsys):
    Path("dvc.lock").write_text("stages: {data: {cmd: make}}")
    assert upkeep.restore([Path("params.yaml")]) == 1
    assert "`rapid restore --force` replaces them" in capsys.readouterr().err
    assert upkeep.restore([Path("params.yaml")], force=True) == 1
    assert "--force" not in capsys.readouterr().err
    assert pulls == [["pull"], ["pull", "--force"]]
