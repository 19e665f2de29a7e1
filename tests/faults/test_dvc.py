"""DVC's records in a repository with this one's configuration and a pipeline of two small stages."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

STAGES = """
stages:
  base:
    cmd: echo base >> {log} && mkdir -p base && echo 1 > base/model
    params: [seed]
    outs:
      - base: {{persist: true}}
  run:
    cmd: echo run >> {log} && cp params.yaml run
    deps: [base]
    params: [H]
    outs:
      - run: {{persist: true}}
"""


@pytest.fixture
def dvc(tmp_path):
    """Return a function that runs commands in such a repository, and returns which stages ran."""
    folder, log = tmp_path / "repository", tmp_path / "log"
    tracked = subprocess.check_output(["git", "ls-files", ".dvc", "dvc.lock"], cwd=ROOT, text=True)
    for name in tracked.split():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "dvc.yaml").write_text(STAGES.format(log=log))
    (folder / "params.yaml").write_text("seed: 0\nH: 1\n")
    (folder / ".gitignore").write_text("/base/\n/run\n")
    identity = {
        f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    first = ("git init -q .", "git add -A", "git commit -qm first", "dvc repro")

    def run(*commands: str) -> list[str]:
        for command in commands if log.exists() else (*first, *commands):
            with open(tmp_path / "output", "w") as output:  # a worker of the queue keeps it open
                subprocess.run(
                    command, shell=True, cwd=folder, env=os.environ | identity | {"PATH": path},
                    stdout=output, stderr=output, check=True, timeout=200,
                )  # fmt: skip
        return log.read_text().split()

    return run


@pytest.mark.slow
@pytest.mark.fault(
    "dvc.lock not staged, or unstaged by an experiment, before a queued one", times=2
)
def test_a_queued_experiment_makes_what_its_parameter_reaches_and_no_more(dvc):
    assert dvc() == ["base", "run"]
    queued = ("dvc exp run --queue -S H={}", "dvc exp run --run-all")
    assert dvc(*(command.format(2) for command in queued)) == ["base", "run", "run"]
    assert dvc("dvc exp run -S H=3", "git reset -q") == ["base", *["run"] * 3]
    assert dvc(*(command.format(4) for command in queued)) == ["base", *["run"] * 4]


@pytest.mark.slow
@pytest.mark.fault("an experiment of DVC's applied, and undone without a commit", times=1)
def test_an_experiment_can_be_applied_and_undone(dvc):
    dvc("dvc exp run --queue --name mine -S H=2", "dvc exp run --run-all")
    assert dvc("dvc exp apply mine") == ["base", "run", "run"]
    assert dvc("git restore params.yaml && dvc repro") == ["base", *["run"] * 3]
