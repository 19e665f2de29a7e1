"""The whole DAG at experiments/ci.yaml size: the tables are made, and what a change plans again."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rapid.artifacts.files import read_jsonl, sha256_file
from rapid.artifacts.runs import StepRecord
from rapid.config import specs
from rapid.config.params import load, read
from tests.conftest import ROOT

OVERLAY = "experiments/ci.yaml"
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the tracked files, in which the DAG has been run once."""
    folder = tmp_path_factory.mktemp("checkout")
    copy_checkout(folder)
    result = snakemake(folder, "reports/tables.tex")
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-8000:]
    return folder


def copy_checkout(folder: Path) -> None:
    """Copy the tracked files, and those not yet tracked, as they are."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def snakemake(folder: Path, *arguments: str, cores: int = 4) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [
        sys.executable, "-m", "snakemake", "--cores", str(cores), "--nocolor",
        "--configfile", "params.yaml", OVERLAY, "--", *arguments,
    ]  # fmt: skip
    if "-n" in arguments:
        command = [part for part in command if part != "-n"]
        command.insert(3, "-n")
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=environment, check=False
    )


def planned(folder: Path) -> list[str]:
    """The rules that a dry run would run, a name for each job."""
    lines = dry_run(folder).splitlines()
    return [
        line.split()[-1].removesuffix(":")
        for line in lines
        if line.startswith(("rule ", "localrule "))
    ]


def dry_run(folder: Path) -> str:
    result = snakemake(folder, "-n", "reports/tables.tex")
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout + result.stderr


@contextmanager
def edited(path: Path, old: str, new: str) -> Iterator[None]:
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, new, 1))
    try:
        yield
    finally:
        path.write_text(before)


def rapid(folder: Path, command: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    whole = [sys.executable, "-m", "rapid", command, "--configfile", "params.yaml", OVERLAY]
    return subprocess.run(
        whole, cwd=folder, capture_output=True, text=True, env=environment, check=False
    )


def params():
    return load(read(ROOT / "params.yaml", ROOT / OVERLAY))


def test_every_run_leaves_its_small_files_and_a_model(checkout):
    for run in specs.runs(params()):
        folder = checkout / run.folder
        summary = json.loads((folder / "summary.json").read_text())
        manifest = json.loads((folder / "manifest.json").read_text())
        evaluation = json.loads((checkout / run.evaluation / "evaluation.json").read_text())
        evaluated = json.loads((checkout / run.evaluation / "manifest.json").read_text())
        assert summary["status"] == evaluation["status"] == "ok", summary["note"]
        assert manifest["spec"]["run"] == run.model_dump()
        model = f"{run.folder}/model/model.safetensors"
        assert manifest["outputs"][model] == evaluated["inputs"][model]
        assert (folder / "model" / "config.json").is_file()
        runtime = summary["runtime"]
        phases = sum(
            runtime[p] for p in ("sampling", "grading", "backpropagation", "sync", "other")
        )
        assert phases == pytest.approx(runtime["total"], rel=1e-6)
        assert runtime["startup"] > 0
        steps = (folder / "steps.jsonl").read_text().splitlines()
        assert len(steps) == summary["optimizer_steps"] > 0


def test_the_tables_have_the_figures_of_the_runs(checkout):
    tables = (checkout / "reports/tables.tex").read_text()
    assert tables.count(r"\begin{table}") == 4
    assert "nan" not in tables.lower()
    evaluation = checkout / "evaluations/mbpp_plus/tiny-qwen2/pg/seed1/evaluation.json"
    figure = json.loads(evaluation.read_text())["pass_at"]["1"]
    assert f"{100 * figure:.1f}\\%" in tables


@pytest.mark.slow
def test_a_run_repeated_from_its_manifest_gives_the_same_steps_and_weights(checkout):
    times = {"seconds", "sampling", "grading", "backpropagation", "sync"}
    run, model = "runs/mbpp_plus/tiny-gemma3/dapo/seed1", "models/tiny-gemma3"
    command = [sys.executable, "-m", "rapid", "train", "--spec", f"{run}/manifest.json"]
    command += ["--model", model, "--data", "data/mbpp_plus/train.jsonl"]
    subprocess.run([*command, "--out", "again"], cwd=checkout, check=True, capture_output=True)
    once, again = (
        [step.model_dump(exclude=times) for step in read_jsonl(folder / "steps.jsonl", StepRecord)]
        for folder in (checkout / run, checkout / "again")
    )
    assert once == again
    assert any(step["gradient_norm"] > 0 for step in once)
    first, second = (checkout / run / "model", checkout / "again/model")
    assert sha256_file(first / WEIGHTS) == sha256_file(second / WEIGHTS)
    assert sha256_file(first / WEIGHTS) != sha256_file(checkout / model / WEIGHTS)


def test_nothing_is_planned_again(checkout):
    assert planned(checkout) == []


def test_a_changed_eta_plans_rapid_s_runs_their_evaluations_and_the_report(checkout):
    overlay = checkout / OVERLAY
    before = overlay.read_text()
    try:
        overlay.write_text(before + "rapid: {eta: 3.0}\n")
        jobs = planned(checkout)
    finally:
        overlay.write_text(before)
    rapid = [run for run in specs.runs(params()) if run.algorithm.startswith("rapid")]
    assert sorted(jobs) == sorted(["train", "evaluate"] * len(rapid) + ["report"])


PROMPT = "rapid/benchmarks/math/prompt.txt.j2"


def test_a_comment_in_a_prompt_plans_nothing(checkout):
    with edited(checkout / PROMPT, "{# Graded", "{# Graded, and more"):
        assert planned(checkout) == []


def test_an_edited_prompt_plans_its_benchmark_and_the_report_and_is_named(checkout):
    with edited(checkout / PROMPT, "Solution", "Answer"):
        output, rules = dry_run(checkout), planned(checkout)
    math = [run for run in specs.runs(params()) if run.benchmark == "math"]
    assert sorted(rules) == sorted(
        ["distill", "evaluate_base", "report", *["train", "evaluate"] * len(math)]
    )
    jobs = [line for line in output.splitlines() if "output: " in line]
    assert jobs and all("/math/" in line or "reports/" in line for line in jobs)
    assert f"made with other code: {PROMPT}" in output


def test_an_accepted_change_of_code_plans_nothing(checkout):
    manifest = checkout / "runs/math/tiny-qwen2/pg/seed1/manifest.json"
    with edited(checkout / PROMPT, "Solution", "Answer"):
        stale = rapid(checkout, "verify")
        assert stale.returncode == 1
        assert f"runs/math/tiny-qwen2/pg/seed1: made with other code: {PROMPT}" in stale.stdout
        accepted = rapid(checkout, "accept")
        assert accepted.returncode == 0, accepted.stdout + accepted.stderr
        assert "accepted: runs/math/tiny-qwen2/pg/seed1" in accepted.stdout
        assert planned(checkout) == []
        [note] = json.loads(manifest.read_text())["accepted"]
        assert list(note["was"]) == [PROMPT]
    assert rapid(checkout, "accept").returncode == 0  # of the prompt as it was
    assert planned(checkout) == []


def test_a_deleted_evaluation_plans_itself_and_the_report(checkout):
    evaluation = checkout / "evaluations/math/tiny-qwen2/pg/seed1/evaluation.json"
    aside = evaluation.with_suffix(".aside")
    evaluation.rename(aside)
    try:
        assert sorted(planned(checkout)) == ["evaluate", "report"]
    finally:
        aside.rename(evaluation)


def test_a_wrong_value_ends_before_any_job(checkout):
    overlay = checkout / OVERLAY
    before = overlay.read_text()
    try:
        overlay.write_text(before + "rapid: {eta: -1}\n")
        result = snakemake(checkout, "reports/tables.tex")
    finally:
        overlay.write_text(before)
    assert result.returncode != 0
    output = result.stdout + result.stderr
    assert "rapid.eta: -1 is not allowed; allowed: greater than 0" in output
    assert "Building DAG" not in output
    assert "Traceback" not in output
