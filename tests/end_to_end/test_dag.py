"""The complete DAG at the size of experiments/ci.yaml: its results, and the jobs that changes plan."""

import json
import os
import re
import shutil
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
from reports.plots import FIGURES
from tests.checkout import ROOT, copy_checkout
from tests.subprocesses import python

WEIGHTS = "model.safetensors"
TABLES = "reports/tables.tex"
PROMPT = "rapid/benchmarks/math/prompt.txt.j2"
ETA = {"name": "eta", "rapid": {"eta": 3.0}, "training": {"start": "sft"}}  # an experiment


def make_small_values() -> dict:
    """Return experiments/ci.yaml as a default, with fewer algorithms, models and problems.

    Made problems are imitated, so that no teacher has to be trained.
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


PARAMS = load(make_small_values())
RUNS = specs.list_table_runs(PARAMS)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the tracked files, in which the DAG has been run once."""
    folder = tmp_path_factory.mktemp("checkout")
    copy_checkout(folder)
    (folder / "params.yaml").write_text(yaml.safe_dump(make_small_values(), sort_keys=False))
    (folder / "experiments/eta.yaml").write_text(yaml.safe_dump(ETA))
    output = run_snakemake(folder, TABLES, options=("--verbose",))
    folder.with_suffix(".log").write_text(output)
    return folder


def run_snakemake(
    folder: Path, *targets: str, overlays=(), options=(), status=0, default=("params.yaml",)
) -> str:
    """Run Snakemake as from a shell without an activated environment; return its output."""
    search_path = os.environ["PATH"].split(os.pathsep)
    search_path = [path for path in search_path if path != str(Path(sys.executable).parent)]
    variables = {"PATH": os.pathsep.join(search_path), "PYTHONPATH": ""}
    files = [*default, *(f"experiments/{name}.yaml" for name in overlays)]
    command = ["-m", "snakemake", "--cores", 4, "--nocolor", *options, "--configfile", *files]
    ended = python(*command, "--", *targets, folder=folder, status=status, **variables)
    return ended.stdout + ended.stderr


def run_rapid(folder: Path, *command: str) -> str:
    return python("-m", "rapid", *command, folder=folder, PYTHONPATH=str(folder)).stdout


def list_rules(output: str) -> list[str]:
    """Return the rules that Snakemake plans or ran, a name for each job."""
    return re.findall(r"^(?:rule|\[ *\d+/\d+\]) (\w+)", output, re.MULTILINE)


@contextmanager
def edit_file(path: Path, old: str, new: str) -> Iterator[None]:
    """Replace a text in a file for a while."""
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, new, 1))
    try:
        yield
    finally:
        path.write_text(before)


def read_file_states(folder: Path) -> dict[str, tuple[int, int] | None]:
    """Return the time and size of every file, and the folders, but for caches."""
    states = {}
    for path in folder.rglob("*"):
        if not {".snakemake", "__pycache__"}.intersection(path.parts):
            stat = path.stat() if path.is_file() else None
            states[str(path.relative_to(folder))] = stat and (stat.st_mtime_ns, stat.st_size)
    return states


def read_json(*parts: object) -> dict:
    return json.loads(Path(*parts).read_text())


def test_every_run_leaves_its_records_and_a_model(checkout):
    for run in RUNS:
        folder, evaluation_folder = checkout / run.folder, checkout / run.evaluation
        summary, manifest = read_json(folder, "summary.json"), read_json(folder, "manifest.json")
        evaluation = read_json(evaluation_folder, "evaluation.json")
        assert summary["status"] == evaluation["status"] == "ok", summary["note"]
        assert manifest["spec"]["run"] == run.model_dump()
        model = f"{run.folder}/model/{WEIGHTS}"
        inputs = read_json(evaluation_folder, "manifest.json")["inputs"]
        assert manifest["outputs"][model] == inputs[model]
        assert (folder / "model" / "config.json").is_file()
        runtime = summary["runtime"]
        phases = ("sampling", "grading", "backpropagation", "sync", "other")
        assert sum(runtime[p] for p in phases) == pytest.approx(runtime["total"], rel=1e-6)
        assert runtime["startup"] > 0
        steps = (folder / "steps.jsonl").read_text().splitlines()
        assert len(steps) == summary["optimizer_steps"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, data", [("rapid-H4", "data/{}/train.jsonl"), ("sft", "distilled/{}/samples.jsonl")]
)
def test_a_run_repeated_from_its_manifest_gives_the_same_steps_and_weights(checkout, name, data):
    """The RL run tests sampling. Only sft is sure to have a gradient at this size."""
    times = {"seconds", "sampling", "grading", "backpropagation", "sync"}
    run, repeated_folder = f"runs/mbpp_plus/tiny-qwen2/{name}/seed1", f"again/{name}"
    command = ["train", "--spec", f"{run}/manifest.json", "--model", "models/tiny-qwen2"]
    run_rapid(checkout, *command, "--data", data.format("mbpp_plus"), "--out", repeated_folder)
    steps, repeated = (
        [step.model_dump(exclude=times) for step in read_jsonl(folder / "steps.jsonl", StepRecord)]
        for folder in (checkout / run, checkout / repeated_folder)
    )
    assert steps == repeated
    digests = [
        sha256_file(checkout / folder / "model" / WEIGHTS) for folder in (run, repeated_folder)
    ]
    assert digests[0] == digests[1]
    if name == "sft":
        assert all(step["gradient_norm"] > 0 for step in steps)
        assert digests[0] != sha256_file(checkout / "models/tiny-qwen2" / WEIGHTS)


def test_the_report_of_snakemake_shows_every_table_and_figure(checkout):
    page = checkout / "snakemake.html"
    run_snakemake(checkout, options=("--report", page.name))
    text = page.read_text()
    page.unlink()
    [results] = re.findall(r'^ *var results = (\{".*);$', text, re.MULTILINE)
    results = json.loads(results)
    texts = ("report.html", "tables.txt", "appendix.txt")
    figures = {f"reports/figures/{name}.png" for name in FIGURES}
    assert set(results) == figures | {f"reports/{name}" for name in texts}
    assert all(entry["labels"]["shows"] and "<p>" in entry["caption"] for entry in results.values())
    title = (checkout / "reports/tables.txt").read_text().splitlines()[0]
    assert json.dumps(title)[1:-1] in text  # on the first page, which describes the workflow


def test_the_fork_server_was_ready(checkout):
    """Without the fork server no job would fail, but each would start slowly."""
    assert "Traceback" not in (checkout / "logs/fork_server.log").read_text()


def test_snakemake_selects_jobs_when_one_has_ended_and_not_every_second(checkout):
    output = checkout.with_suffix(".log").read_text()
    assert 0 < output.count("Ready jobs: ") <= 2 * output.count("Finished jobid: ")


def test_a_changed_eta_and_a_lost_evaluation_plan_the_affected_jobs(checkout):
    """They plan RAPID's runs and their evaluations, the lost evaluation, and the report."""
    runs = [run for run in RUNS if run.algorithm.startswith("rapid")]
    evaluation = checkout / "evaluations/math/tiny-qwen2/sft/seed1/evaluation.json"
    evaluation.rename(moved_evaluation := evaluation.with_suffix(".aside"))
    try:
        with edit_file(checkout / "params.yaml", "eta: 2.0", "eta: 3.0"):
            output = run_snakemake(checkout, TABLES, options=("-n", "--verbose"))
    finally:
        moved_evaluation.rename(evaluation)
    expected = ["train", "evaluate"] * len(runs) + ["evaluate", "report"]
    assert sorted(list_rules(output)) == sorted(expected)
    pattern = r"output: (runs/\S+)/manifest.json.*?priority: (\d+)$"
    priorities = {name: int(n) for name, n in re.findall(pattern, output, re.M | re.S)}
    plan = Plan(PARAMS)
    assert priorities == {run.folder: plan.get_priority(run.folder) for run in runs}


def test_an_edited_prompt_plans_its_benchmark_and_the_report_and_is_named(checkout):
    with edit_file(checkout / PROMPT, "Solution", "Answer"):
        output = run_snakemake(checkout, TABLES, options=("-n",))
    runs = [run for run in RUNS if run.benchmark == "math"]
    expected = ["demonstrate", "evaluate", "report", *["train", "evaluate"] * len(runs)]
    assert sorted(list_rules(output)) == sorted(expected)
    jobs = [line for line in output.splitlines() if line.startswith("rule ")]
    assert jobs and all("/math" in line or "reports" in line for line in jobs)
    assert f"code has changed: {PROMPT}" in output


def test_an_accepted_change_of_code_plans_only_the_report(checkout, tmp_path):
    run, copy = "runs/math/tiny-qwen2/rapid-H4/seed1", tmp_path / "copy"
    shutil.copytree(checkout, copy, ignore=shutil.ignore_patterns("rapid-fork-server"))  # sockets
    with edit_file(copy / PROMPT, "Solution", "Answer"):
        assert f"accepted: {run}" in run_rapid(copy, "accept")
        assert list_rules(run_snakemake(copy, TABLES, options=("-n",))) == ["report"]
    [note] = read_json(copy, run, "manifest.json")["accepted"]
    assert list(note["was"]) == [PROMPT]


def test_an_overlay_alone_reuses_the_results_of_the_default(checkout):
    """Its benchmark is the second of the default, whose order decides the tokenizer."""
    overlay = {"name": "second", "benchmarks": {"math": {"train": 8}}}
    (checkout / "experiments/second.yaml").write_text(yaml.safe_dump(overlay))
    output = run_snakemake(checkout, overlays=("second",), options=("-n",), default=())
    assert list_rules(output) == ["report", "all"]


def test_a_wrong_value_ends_before_any_job(checkout):
    with edit_file(checkout / "params.yaml", "eta: 2.0", "eta: -1"):
        output = run_snakemake(checkout, TABLES, status=1)
    assert "rapid.eta: -1 is invalid: must be greater than 0" in output
    assert "Building DAG" not in output
    assert "Traceback" not in output


@pytest.mark.slow
class TestExperiment:
    """An experiment with another eta, which starts from the default's SFT."""

    @pytest.fixture(scope="class")
    def states_of_default(self, checkout):
        """The states of the default's files before the experiment was run."""
        states = read_file_states(checkout)
        run_snakemake(checkout, "all", overlays=("eta",))
        return states

    def test_an_experiment_changes_no_file_of_the_default(self, checkout, states_of_default):
        after = read_file_states(checkout)
        assert {path: after.get(path) for path in states_of_default} == states_of_default
        folder = Path("experiments/eta")
        for path in map(Path, after.keys() - states_of_default.keys()):
            assert path == folder or folder in path.parents

    def test_the_report_of_an_experiment_reads_its_own_runs_and_shared_ones(
        self, checkout, states_of_default
    ):
        reports = checkout / "experiments/eta/reports"
        assert (reports / "tables.tex").is_file()
        document = read_json(reports, "manifest.json")
        assert document["spec"]["params"]["rapid"]["eta"] == 3.0
        runs, inputs = "evaluations/math/tiny-qwen2", document["inputs"]
        assert f"{runs}/sft/seed1/evaluation.json" in inputs
        assert f"experiments/eta/{runs}/rapid-H4/seed1/evaluation.json" in inputs
        assert f"{runs}/rapid-H4/seed1/evaluation.json" not in inputs

    def test_an_experiment_is_up_to_date_and_a_dry_run_writes_nothing(
        self, checkout, states_of_default
    ):
        before = read_file_states(checkout)
        output = run_snakemake(checkout, "all", TABLES, overlays=("eta",), options=("-n",))
        assert list_rules(output) == []
        assert read_file_states(checkout) == before
        output = run_rapid(
            checkout, "verify", "--configfile", "params.yaml", "experiments/eta.yaml"
        )
        assert "stale" not in output and "not run" not in output
