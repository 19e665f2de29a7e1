"""A folder that was copied, checked out, or whose clock was wrong: what was made there stays made."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

import pytest
import yaml

from rapid.artifacts.manifests import MANIFEST
from rapid.freshness import FOLDERS
from rapid.stages import upkeep
from tests.checkout import copy_checkout
from tests.conftest import ROOT
from tests.faults import made

PARAMS = [Path("params.yaml")]
MADE = ["all_distill", "all_train", "all_evaluate"]  # of the pipeline below, which has no reports
TABLES = "reports/tables.tex"
TIMES = 20
SLOW = [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, TIMES))]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A pipeline that has ended, whose jobs Snakemake has records of."""
    root = tmp_path_factory.mktemp("whole")
    made.make(root)
    snakemake("--touch", "--forceall", "--", *MADE, folder=root)
    assert (root / ".snakemake/metadata").is_dir()
    return root


@pytest.fixture
def tree(whole, tmp_path, monkeypatch) -> Path:
    """A copy of it."""
    shutil.copytree(whole, tmp_path / "tree")
    monkeypatch.chdir(tmp_path / "tree")
    return tmp_path / "tree"


def snakemake(*arguments: str, folder: Path | str = ".") -> str:
    """Return what Snakemake says, with the Snakefile of this clone and the results of a folder."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile")]
    done = subprocess.run(
        [*command, "--cores", "1", "--nocolor", *arguments],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def planned(*targets: str) -> list[str]:
    """Return the rules that Snakemake plans, one for each job."""
    return re.findall(r"^rule (?!all_)(\w+)", snakemake("-n", "--", *targets), re.MULTILINE)


def set_eta(value: float) -> None:
    values = yaml.safe_load(PARAMS[0].read_text())
    values["rapid"]["eta"] = value
    PARAMS[0].write_text(yaml.safe_dump(values, sort_keys=False))


@pytest.mark.fault("Snakemake's records and times of files lost")
@pytest.mark.parametrize("seed", SLOW)
def test_a_copy_without_snakemake_s_records_has_everything_made(tree, seed):
    """After `cp -r`, or a checkout, which leave files in no order of times."""
    rng = random.Random(seed)
    shutil.rmtree(".snakemake")
    for path in Path().rglob("*.*"):
        os.utime(path, (then := rng.uniform(1e9, 4e9), then))
    assert planned(*MADE) == []
    steps = sorted(Path("runs").rglob("steps.jsonl"))
    lost = rng.sample(steps, 3)
    for path in lost:
        path.unlink()
    assert sorted(planned(TABLES)) == ["evaluate"] * 3 + ["report"] + ["train"] * 3


@pytest.mark.fault("results of other parameters than Snakemake's records")
@pytest.mark.parametrize("seed", SLOW[:4])
def test_parameters_are_judged_by_manifests(tree, seed):
    """As `dvc exp apply`, or `git checkout` with `dvc checkout`, leave them, forth and back."""
    eta = random.Random(seed).uniform(3, 9)
    before = {path: path.read_bytes() for path in Path().rglob(MANIFEST)}
    set_eta(eta)
    reached = planned(*MADE)
    runs = [path for path in before if path.parts[0] == "runs" and "rapid-H2" in str(path)]
    assert sorted(reached) == ["evaluate"] * len(runs) + ["train"] * len(runs)
    for path in runs:
        document = json.loads(path.read_text())
        document["spec"]["objective"]["eta"] = eta
        path.write_text(json.dumps(document))
    assert planned(*MADE) == []
    assert upkeep.verify(PARAMS) == 0
    snakemake("--touch", "--forceall", "--", *MADE)  # what it would have recorded meanwhile
    set_eta(2.0)
    for path, content in before.items():
        path.write_bytes(content)
    assert planned(*MADE) == []


@pytest.mark.fault("a file dated in the future", times=TIMES)
def test_files_from_the_future_keep_nothing_from_being_made(tree):
    rng = random.Random(0)
    files = [path for room in FOLDERS for path in Path(room).rglob("*.json*")]
    for path in [Path("data/math/train.jsonl"), *rng.sample(files, TIMES - 1)]:
        then = time.time() + 10 ** rng.uniform(2, 9)
        os.utime(path, (then, then))
    assert upkeep.reconcile(PARAMS) == 0
    assert planned(*MADE) == []
    snakemake(TABLES)
    assert planned(TABLES) == []
    assert upkeep.verify(PARAMS) == 0


@pytest.mark.fault("an environment of another clone", times=2)
def test_rapid_runs_the_code_of_the_clone_that_is_worked_in(tmp_path):
    copy_checkout(tmp_path, "rapid", "Snakefile", "params.yaml", "docs")
    init = tmp_path / "rapid/__init__.py"
    init.write_text(re.sub(r'__version__ = ".*"', '__version__ = "7.7"', init.read_text()))
    command = [Path(sys.executable).with_name("rapid"), "--version"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for folder in (tmp_path, tmp_path / "docs"):
        assert subprocess.check_output(command, cwd=folder, env=environment) == b"rapid 7.7\n"
    assert subprocess.check_output(command, cwd=ROOT, env=environment) != b"rapid 7.7\n"


@pytest.mark.fault("an environment copied or moved with its folder")
@pytest.mark.parametrize("carry", [shutil.copytree, shutil.move])
@pytest.mark.parametrize("name", ["copy", "a/b/.venv", "my copy", "it's a copy"])
def test_an_environment_of_another_folder_is_made_anew(tmp_path, carry, name):
    """Its programs are those of the folder that it was made in, and so is what `activate` names."""
    first, second = tmp_path / "first", tmp_path / name
    (first / "requirements").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", first)
    for path in ("requirements/cpu.txt", "pyproject.toml"):
        (first / path).touch()
    venv.create(first / ".venv", symlinks=True)
    (first / ".venv/installed-cpu").touch()
    assert "Nothing to be done" in setup(first)
    (linked := tmp_path / "linked").mkdir()
    for path in first.iterdir():
        (linked / path.name).symlink_to(path)
    assert "Nothing to be done" in setup(linked)  # one that is shared is nobody's to delete
    carry(first, second)
    assert "works only there: it is made anew for this folder" in setup(second)


def setup(folder: Path) -> str:
    return subprocess.check_output(["make", "--dry-run", "setup"], cwd=folder, text=True)
