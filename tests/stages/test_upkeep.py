"""`rapid accept`: what it covers, says and leaves as it was. Snakemake is a stand-in."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from rapid.artifacts.freshness import Job
from rapid.artifacts.manifests import write_manifest
from rapid.config.jobs import Plan, plan
from rapid.config.params import load
from rapid.stages import upkeep

LONG_AGO = 1e9


@pytest.fixture
def default(values, tmp_path, monkeypatch) -> Plan:
    """params.yaml's plan, in a folder where problems were made long ago."""
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    found = plan(load(values))
    make(found.job("data/math"), "rapid/stages/prepare.py")
    return found


def make(job: Job, changed: str) -> None:
    """Make a job as it would have been with another file of code."""
    out, manifest = Path(job.folder, "out"), Path(job.manifest)
    out.parent.mkdir(parents=True)
    out.write_text("out")
    write_manifest(out.parent, job.stage, job.spec, {}, [out])
    document = json.loads(manifest.read_text())
    document["spec"]["code"] = document["code"][changed] = "another"
    manifest.write_text(json.dumps(document))
    for path in (out, manifest):
        os.utime(path, (LONG_AGO, LONG_AGO))


@pytest.fixture
def snakemake(monkeypatch) -> dict:
    """Stand in for `snakemake --touch`, which makes targets new; keep what it was given."""
    found, run = {}, subprocess.run

    def touch(command, **options) -> subprocess.CompletedProcess:
        if "--touch" not in command:
            return run(command, **options)
        found.update(targets=command[command.index("--") + 1 :], command=command)
        for target in found["targets"]:
            os.utime(target)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", touch)
    return found


def accept() -> int:
    return upkeep.accept([Path("params.yaml")])


def test_what_is_accepted_keeps_its_time_and_what_changed_is_named(default, snakemake, capsys):
    """Else what others made of it, and did not accept, would be older than it."""
    assert accept() == 0
    assert snakemake["targets"] == ["data/math/manifest.json"]
    assert os.stat("data/math/manifest.json").st_mtime == LONG_AGO
    assert "--no-hooks" in snakemake["command"]  # nothing that jobs need has to be here
    said = capsys.readouterr()
    assert "made with other code: rapid/stages/prepare.py" in said.err
    assert "/rapid-H16,eta=1/" not in said.out


def test_studies_that_are_begun_are_covered(default, snakemake, capsys):
    run = default.job("runs/math/tiny-qwen2/rapid-H16,eta=1/seed1")
    make(run, "rapid/stages/train.py")
    accept()
    assert f"accepted: {run.folder}" in capsys.readouterr().out
