"""The whole DAG at experiments/ci.yaml size: the tables are made, and what a change plans again."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from rapid.artifacts.files import read_jsonl, sha256_file
from rapid.artifacts.runs import StepRecord
from rapid.config import specs
from rapid.config.jobs import Plan
from rapid.config.params import load, read
from reports.formats import percent
from reports.plots import FIGURES
from tests.checkout import ROOT, copy_checkout
from tests.subprocesses import python

WEIGHTS = "model.safetensors"
TABLES = "reports/tables.tex"
PROMPT = "rapid/benchmarks/math/prompt.txt.j2"
ETA = {"name": "eta", "rapid": {"eta": 3.0}, "training": {"start": "sft"}}  # an experiment


def values() -> dict:
    """experiments/ci.yaml as a default, smaller still: to the DAG, algorithms and models are alike.

    Nobody waits for a teacher to be trained: made problems are imitated.
    """
    values = read(ROOT / "params.yaml", ROOT / "experiments/ci.yaml") | {"name": None}
    for benchmark in values["benchmarks"].values():
        benchmark |= {"train": 8, "test": 2}
    values["sft"] |= {"demonstrations": 16}
    values["studies"] = None
    values["tables"] = {
        "main": {"model": "tiny-qwen2", "algorithms": ["sft", "rapid-H4"], "seeds": [1]},
        "families": {"benchmark": "math", "models": [], "algorithms": ["pg"], "seeds": [1]},
        "staleness": {"H": [4]},
    }
    return values


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the tracked files, in which the DAG has been run once."""
    folder = tmp_path_factory.mktemp("checkout")
    copy_checkout(folder)
    (folder / "params.yaml").write_text(yaml.safe_dump(values(), sort_keys=False))
    (folder / "experiments/eta.yaml").write_text(yaml.safe_dump(ETA))
    said = succeed(snakemake(folder, TABLES, options=("--verbose",)))
    folder.with_suffix(".log").write_text(said)
    return folder


def snakemake(
    folder: Path, *targets: str, overlays: tuple[str, ...] = (), options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess:
    """Run Snakemake as from an environment that is not activated."""
    programs = os.environ["PATH"].split(os.pathsep)
    others = [path for path in programs if path != str(Path(sys.executable).parent)]
    environment = {**os.environ, "PATH": os.pathsep.join(others)}
    environment.pop("PYTHONPATH", None)
    files = [f"experiments/{name}.yaml" for name in overlays]
    command = [
        sys.executable, "-m", "snakemake", "--cores", "4", "--nocolor", *options,
        "--configfile", "params.yaml", *files, "--", *targets,
    ]  # fmt: skip
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=environment, check=False
    )


def succeed(result: subprocess.CompletedProcess) -> str:
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-8000:]
    return result.stdout + result.stderr


def planned(folder: Path, *targets: str, overlays: tuple[str, ...] = ()) -> list[str]:
    """The rules that a dry run would run, a name for each job."""
    result = snakemake(folder, *(targets or [TABLES]), overlays=overlays, options=("-n",))
    return rules(succeed(result))


def rules(output: str) -> list[str]:
    """The rules that Snakemake plans or ran, by what it printed."""
    return re.findall(r"^(?:rule|\[ *\d+/\d+\]) (\w+)", output, re.MULTILINE)


@contextmanager
def edited(path: Path, old: str, new: str) -> Iterator[None]:
    """Meanwhile a file has another text."""
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, new, 1))
    try:
        yield
    finally:
        path.write_text(before)


def rapid(folder: Path, *command: str) -> subprocess.CompletedProcess:
    return python("-m", "rapid", *command, folder=folder, status=None, PYTHONPATH=str(folder))


def params():
    return load(values())


def written(folder: Path) -> dict[str, tuple[int, int] | None]:
    """The time and size of every file, and the folders; but for what Snakemake and Python keep."""
    found = {}
    for path in folder.rglob("*"):
        if not {".snakemake", "__pycache__"}.intersection(path.parts):
            known = path.stat() if path.is_file() else None
            found[str(path.relative_to(folder))] = known and (known.st_mtime_ns, known.st_size)
    return found


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
        phases = ("sampling", "grading", "backpropagation", "sync", "other")
        assert sum(runtime[p] for p in phases) == pytest.approx(runtime["total"], rel=1e-6)
        assert runtime["startup"] > 0
        steps = (folder / "steps.jsonl").read_text().splitlines()
        assert len(steps) == summary["optimizer_steps"] > 0


def test_the_tables_have_the_figures_of_the_runs(checkout):
    tables = (checkout / "reports/tables.tex").read_text()
    assert tables.count(r"\begin{table}") == 3  # there are no families
    assert "nan" not in tables.lower()
    evaluation = checkout / "evaluations/mbpp_plus/tiny-qwen2/sft/seed1/evaluation.json"
    figure = percent(json.loads(evaluation.read_text())["pass_at"]["1"])
    assert figure.replace("%", r"\%") in tables


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, data", [("rapid-H4", "data/{}/train.jsonl"), ("sft", "distilled/{}/samples.jsonl")]
)
def test_a_run_repeated_from_its_manifest_gives_the_same_steps_and_weights(checkout, name, data):
    """What samples; and what has a gradient, which at this size RL may not have."""
    times = {"seconds", "sampling", "grading", "backpropagation", "sync"}
    run, again = f"runs/mbpp_plus/tiny-qwen2/{name}/seed1", f"again/{name}"
    command = ["train", "--spec", f"{run}/manifest.json", "--model", "models/tiny-qwen2"]
    succeed(rapid(checkout, *command, "--data", data.format("mbpp_plus"), "--out", again))
    once, twice = (
        [step.model_dump(exclude=times) for step in read_jsonl(folder / "steps.jsonl", StepRecord)]
        for folder in (checkout / run, checkout / again)
    )
    assert once == twice
    first, second = (checkout / run / "model", checkout / again / "model")
    assert sha256_file(first / WEIGHTS) == sha256_file(second / WEIGHTS)
    if name == "sft":
        assert all(step["gradient_norm"] > 0 for step in once)
        assert sha256_file(first / WEIGHTS) != sha256_file(checkout / "models/tiny-qwen2" / WEIGHTS)


def test_snakemake_s_report_shows_every_table_and_figure(checkout):
    succeed(snakemake(checkout, options=("--report", "snakemake.html")))
    page = (checkout / "snakemake.html").read_text()
    (checkout / "snakemake.html").unlink()
    [results] = re.findall(r'^ *var results = (\{".*);$', page, re.MULTILINE)
    shown = json.loads(results)
    texts = ("report.html", "tables.txt", "appendix.txt")
    figures = {f"reports/figures/{name}.png" for name in FIGURES}
    assert set(shown) == figures | {f"reports/{text}" for text in texts}
    assert all(one["labels"]["shows"] and "<p>" in one["caption"] for one in shown.values())
    title = (checkout / "reports/tables.txt").read_text().splitlines()[0]
    assert json.dumps(title)[1:-1] in page  # on the first page, which describes the workflow


def test_the_process_that_forks_jobs_was_ready(checkout):
    """Without it every job starts by itself, and none fails."""
    assert "Traceback" not in (checkout / "logs/warm.log").read_text()


def test_snakemake_looks_for_a_job_to_start_when_one_has_ended_and_not_every_second(checkout):
    said = checkout.with_suffix(".log").read_text()
    assert 0 < said.count("Ready jobs: ") <= 2 * said.count("Finished jobid: ")


def test_a_changed_eta_and_a_lost_evaluation_plan_what_they_reach(checkout):
    """RAPID's runs and their evaluations, the evaluation, and the report."""
    rapid = [run for run in specs.runs(params()) if run.algorithm.startswith("rapid")]
    evaluation = checkout / "evaluations/math/tiny-qwen2/sft/seed1/evaluation.json"
    evaluation.rename(aside := evaluation.with_suffix(".aside"))
    try:
        with edited(checkout / "params.yaml", "eta: 2.0", "eta: 3.0"):
            output = succeed(snakemake(checkout, TABLES, options=("-n", "--verbose")))
    finally:
        aside.rename(evaluation)
    expected = ["train", "evaluate"] * len(rapid) + ["evaluate", "report"]
    assert sorted(rules(output)) == sorted(expected)
    said = re.findall(r"output: (runs/\S+)/manifest.json.*?priority: (\d+)$", output, re.M | re.S)
    plan = Plan(params())
    assert {name: int(turn) for name, turn in said} == {
        run.folder: plan.priority(run.folder) for run in rapid
    }


def test_an_edited_prompt_plans_its_benchmark_and_the_report_and_is_named(checkout):
    with edited(checkout / PROMPT, "Solution", "Answer"):
        output = succeed(snakemake(checkout, TABLES, options=("-n",)))
    math = [run for run in specs.runs(params()) if run.benchmark == "math"]
    expected = ["distill", "evaluate", "report", *["train", "evaluate"] * len(math)]
    assert sorted(rules(output)) == sorted(expected)
    jobs = [line for line in output.splitlines() if line.startswith("rule ")]
    assert jobs and all("/math" in line or "reports" in line for line in jobs)
    assert f"made with other code: {PROMPT}" in output


def test_an_accepted_change_of_code_plans_the_report_alone(checkout, tmp_path):
    run, copy = "runs/math/tiny-qwen2/rapid-H4/seed1", tmp_path / "copy"
    shutil.copytree(checkout, copy, ignore=shutil.ignore_patterns("rapid-warm"))  # sockets
    with edited(copy / PROMPT, "Solution", "Answer"):
        accepted = rapid(copy, "accept")
        assert accepted.returncode == 0, accepted.stdout + accepted.stderr
        assert f"accepted: {run}" in accepted.stdout
        assert planned(copy) == ["report"]
    [note] = json.loads((copy / run / "manifest.json").read_text())["accepted"]
    assert list(note["was"]) == [PROMPT]


def test_a_wrong_value_ends_before_any_job(checkout):
    with edited(checkout / "params.yaml", "eta: 2.0", "eta: -1"):
        result = snakemake(checkout, TABLES)
    assert result.returncode != 0
    output = result.stdout + result.stderr
    assert "rapid.eta: -1 is not allowed; allowed: greater than 0" in output
    assert "Building DAG" not in output
    assert "Traceback" not in output


class TestExperiment:
    """Another eta, from the default's SFT, under a name of its own."""

    @pytest.fixture(scope="class")
    def before(self, checkout):
        """The files of the default, before the experiment was run."""
        found = written(checkout)
        succeed(snakemake(checkout, "all", overlays=("eta",)))
        return found

    def test_it_changes_no_file_of_the_default(self, checkout, before):
        after = written(checkout)
        assert {path: after.get(path) for path in before} == before
        new = {Path(path) for path in after.keys() - before.keys()}
        own = Path("experiments/eta")
        assert all(path == own or own in path.parents for path in new)

    def test_it_has_a_report_of_its_own(self, checkout, before):
        theirs, ours = (checkout / place / "reports" for place in (".", "experiments/eta"))
        assert (theirs / "tables.tex").is_file() and (ours / "tables.tex").is_file()
        document = json.loads((ours / "manifest.json").read_text())
        assert document["spec"]["params"]["rapid"]["eta"] == 3.0
        read = document["inputs"]
        assert "evaluations/math/tiny-qwen2/sft/seed1/evaluation.json" in read
        assert "experiments/eta/evaluations/math/tiny-qwen2/rapid-H4/seed1/evaluation.json" in read
        assert "evaluations/math/tiny-qwen2/rapid-H4/seed1/evaluation.json" not in read

    def test_its_rl_starts_where_sft_ended(self, checkout, before):
        made = checkout / "experiments/eta/runs/math/tiny-qwen2/rapid-H4/seed1/manifest.json"
        first = f"runs/math/tiny-qwen2/sft/seed1/model/{WEIGHTS}"
        assert json.loads(made.read_text())["inputs"][first] == sha256_file(checkout / first)
        printed = (checkout / "experiments/eta/reports/tables.txt").read_text()
        assert "RL starts from the model that SFT" in " ".join(printed.split())

    def test_it_made_what_is_not_the_default_s_and_no_more(self, checkout, before):
        made = {path.parent for path in (checkout / "experiments/eta").rglob("manifest.json")}
        rapid = [run for run in specs.runs(params()) if run.algorithm == "rapid-H4"]
        expected = [folder for run in rapid for folder in (run.folder, run.evaluation)]
        own = checkout / "experiments/eta"
        assert made == {own / folder for folder in [*expected, "reports"]}

    def test_it_is_up_to_date_and_so_is_the_default_by_its_paths(self, checkout, before):
        """And a dry run writes nothing."""
        made = written(checkout)
        assert planned(checkout, "all", TABLES, overlays=("eta",)) == []
        assert written(checkout) == made
        done = rapid(checkout, "verify", "--configfile", "params.yaml", "experiments/eta.yaml")
        assert done.returncode == 0, done.stdout
        assert "stale" not in done.stdout and "not made" not in done.stdout
