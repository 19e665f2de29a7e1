"""After a copy, a checkout or a wrong clock, only jobs with lost results are run again."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from rapid.artifacts.layout import RESULT_FOLDERS
from rapid.artifacts.manifests import MANIFEST, hash_files, write_manifest
from rapid.config.specs import TokenizerSpec
from rapid.stages import maintenance
from tests.checkout import copy_checkout
from tests.conftest import ROOT
from tests.faults.finished_pipeline import write_pipeline
from tests.subprocesses import python

PARAMS = [Path("params.yaml")]
TARGETS = ["all_distill", "all_train", "all_evaluate"]  # all jobs of the pipeline but the report
TABLES = "reports/tables.tex"
TIMES = 20
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, TIMES))]


@pytest.fixture(scope="module")
def recorded_pipeline(tmp_path_factory) -> Path:
    """A finished pipeline with Snakemake's records of its jobs."""
    root = tmp_path_factory.mktemp("recorded")
    write_pipeline(root)
    run_snakemake("--touch", "--forceall", "--", *TARGETS, folder=root)
    assert (root / ".snakemake/metadata").is_dir()
    return root


@pytest.fixture
def pipeline(recorded_pipeline, tmp_path, monkeypatch) -> None:
    """Make a copy of the recorded pipeline the working directory."""
    shutil.copytree(recorded_pipeline, tmp_path / "tree")
    monkeypatch.chdir(tmp_path / "tree")


def run_snakemake(*arguments: str, folder: Path = Path()) -> str:
    """Run this clone's Snakefile on the results in a folder, and return Snakemake's output."""
    options = ("--snakefile", ROOT / "Snakefile", "--cores", 1, "--nocolor")
    ended = python("-m", "snakemake", *options, *arguments, folder=folder)
    return ended.stdout + ended.stderr


def list_planned_rules(*targets: str) -> list[str]:
    """Return the rules that Snakemake plans, one for each job."""
    return re.findall(
        r"^rule (?!all_)(\w+)", run_snakemake("-n", "--", *targets or TARGETS), re.MULTILINE
    )


def set_eta(value: float) -> None:
    values = yaml.safe_load(PARAMS[0].read_text())
    values["rapid"]["eta"] = value
    PARAMS[0].write_text(yaml.safe_dump(values, sort_keys=False))


@pytest.mark.fault("workflow: Snakemake's records and file times lost")
@pytest.mark.parametrize("seed", SEEDS)
def test_without_records_of_snakemake_only_lost_files_are_planned(pipeline, seed):
    """`cp -r` and a checkout leave files with times in any order."""
    rng = random.Random(seed)
    shutil.rmtree(".snakemake")
    for path in Path().rglob("*.*"):
        os.utime(path, (time_of_file := rng.uniform(1e9, 4e9), time_of_file))
    assert list_planned_rules() == []
    for path in rng.sample(sorted(Path("runs").rglob("steps.jsonl")), 3):
        path.unlink()
    assert sorted(list_planned_rules(TABLES)) == ["evaluate"] * 3 + ["report"] + ["train"] * 3


@pytest.mark.fault("workflow: Snakemake's records do not match results")
@pytest.mark.parametrize("seed", SEEDS[:4])
def test_manifests_and_not_records_decide_whether_parameters_changed(pipeline, seed):
    """`dvc exp apply`, or `git checkout` with `dvc checkout`, leave such results."""
    eta = random.Random(seed).uniform(3, 9)
    before = {path: path.read_bytes() for path in Path().rglob(MANIFEST)}
    set_eta(eta)
    runs = [path for path in before if path.parts[0] == "runs" and "rapid-H2" in str(path)]
    assert sorted(list_planned_rules()) == ["evaluate"] * len(runs) + ["train"] * len(runs)
    for path in runs:
        document = json.loads(path.read_text())
        document["spec"]["objective"]["eta"] = eta
        path.write_text(json.dumps(document))
    assert list_planned_rules() == []
    assert maintenance.verify(PARAMS) == 0
    run_snakemake("--touch", "--forceall", "--", *TARGETS)  # records of the other parameters
    set_eta(2.0)
    for path, content in before.items():
        path.write_bytes(content)
    assert list_planned_rules() == []


@pytest.mark.fault("workflow: file dated in the future", times=TIMES)
@pytest.mark.slow
def test_the_report_is_made_once_if_files_have_times_in_the_future(pipeline):
    rng = random.Random(0)
    files = [path for folder in RESULT_FOLDERS for path in Path(folder).rglob("*.json*")]
    for path in [Path("data/math/train.jsonl"), *rng.sample(files, TIMES - 1)]:
        time_of_file = time.time() + 10 ** rng.uniform(2, 9)
        os.utime(path, (time_of_file, time_of_file))
    assert maintenance.reconcile(PARAMS) == 0
    assert list_planned_rules() == []
    run_snakemake(TABLES)
    assert list_planned_rules(TABLES) == []
    assert maintenance.verify(PARAMS) == 0


@pytest.mark.fault("machine: clock set back during a job", times=TIMES)
def test_no_input_is_newer_than_the_end_of_its_job(tmp_path):
    """Snakemake deletes the outputs of a job whose inputs are newer."""
    spec = TokenizerSpec(benchmarks=["math"], vocabulary=300)
    for seed in range(TIMES):
        rng, folder = random.Random(seed), tmp_path / str(seed)
        inputs = [folder / name for name in ("data/train.jsonl", "models/m", "runs/r/model")]
        manifests = [folder / name / MANIFEST for name in ("data", "models/m", "runs/r")]
        for path in [inputs[0], *manifests, inputs[1] / "weights", inputs[2] / "weights"]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(path.name)
        for path in [*inputs, *manifests, inputs[1] / "weights"]:
            time_of_file = time.time() + rng.choice([-1, 1, 1]) * 10 ** rng.uniform(-3, 9)
            os.utime(path, (time_of_file, time_of_file))
        write_manifest(folder / "out", "train", spec, hash_files(*inputs), [])
        assert all(path.stat().st_mtime <= time.time() for path in [inputs[0], *manifests])


@pytest.mark.fault("workflow: environment of another clone", times=2)
def test_rapid_runs_the_code_of_the_clone_in_which_it_is_started(tmp_path):
    copy_checkout(tmp_path, "rapid", "Snakefile", "params.yaml", "docs")
    init = tmp_path / "rapid/__init__.py"
    init.write_text(re.sub(r'__version__ = ".*"', '__version__ = "7.7"', init.read_text()))
    command = [Path(sys.executable).with_name("rapid"), "--version"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for folder in (tmp_path, tmp_path / "docs"):
        assert subprocess.check_output(command, cwd=folder, env=environment) == b"rapid 7.7\n"
    assert subprocess.check_output(command, cwd=ROOT, env=environment) != b"rapid 7.7\n"
