"""The six diffs of docs/extending.md are applied to a copy of the tree, which is then run."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.checkout import copy_checkout
from tests.conftest import ROOT
from tests.subprocesses import ACTIVATED, python

PAGE = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
NAMES = ("algorithm", "benchmark", "metric", "column", "figure", "model")
DIFFS = dict(zip(NAMES, re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL), strict=True))
# The files that each diff may touch beside new tests.
FILES_OF_DIFFS = {
    "algorithm": {
        "rapid/algorithms/raft.py", "rapid/algorithms/__init__.py", "experiments/raft.yaml",
    },
    "benchmark": {
        "rapid/benchmarks/gcd/__init__.py", "rapid/benchmarks/gcd/made.py",
        "rapid/benchmarks/gcd/prompt.txt.j2", "rapid/benchmarks/__init__.py",
        "experiments/gcd.yaml",
    },
    "metric": {"rapid/artifacts/metrics.py", "rapid/training/batch_statistics.py"},
    "column": {"reports/tables/columns.py", "reports/tables/results.py"},
    "figure": {"reports/plots/figures/memory.py"},
    "model": {"experiments/my-model.yaml"},
}  # fmt: skip
OVERLAYS = ("raft", "gcd", "my-model", "tiny")
# The overlays of the page, at a size that takes a minute.
TINY = """
benchmarks: {mbpp_plus: null, math: null, minif2f: null, gcd: {train: 8, test: 4}}
models: {tiny-qwen2: {layers: 1, hidden: 64, steps: 20, benchmarks: [gcd], error_rate: 0.6}}
pretraining: {demonstrations: 200, vocabulary: 400}
tables:
  main: {algorithms: [pg, raft, raft-H4, rapid-H4], seeds: [1]}
  families: {benchmark: gcd, models: [my-model], algorithms: [pg], seeds: [1]}
  staleness: {H: [2]}
experiment: {benchmark: gcd}
rapid: {H: 2}
studies: null
"""


def run_python(folder: Path, *arguments: str) -> str:
    """Run the copy's code and return its output."""
    return python(*arguments, folder=folder, PYTHONPATH=str(folder), **ACTIVATED).stdout


def apply_diff(folder: Path, name: str, *options: str) -> None:
    subprocess.run(["git", "apply", *options], cwd=folder, input=DIFFS[name], text=True, check=True)


@pytest.fixture(scope="module")
def extended_checkout(tmp_path_factory, toy_model) -> Path:
    """A copy of the tree with all six diffs."""
    folder = tmp_path_factory.mktemp("extended")
    copy_checkout(folder)
    for name in NAMES:
        apply_diff(folder, name)
    shutil.copytree(toy_model, folder / "my-model")
    return folder


@pytest.fixture(scope="module")
def run_folder(extended_checkout) -> Path:
    """The folder with the outputs of a run of the copy."""
    (extended_checkout / "experiments/tiny.yaml").write_text(TINY)
    overlays = [f"experiments/{name}.yaml" for name in OVERLAYS]
    arguments = ["--cores", "2", "--configfile", "params.yaml", *overlays]
    run_python(extended_checkout, "-m", "snakemake", *arguments)
    [report] = extended_checkout.rglob("reports/tables.txt")
    return report.parent.parent


def read_table(folder: Path, number: int) -> str:
    """Return one of the printed tables, without its notes."""
    printed = (folder / "reports/tables.txt").read_text(encoding="utf-8")
    return re.split(r"Table \d\. ", printed)[number]


@pytest.mark.parametrize("name", NAMES)
def test_a_diff_touches_only_its_files(name):
    touched = set(re.findall(r"^\+\+\+ b/(\S+)", DIFFS[name], re.MULTILINE))
    assert {path for path in touched if not path.startswith("tests/")} == FILES_OF_DIFFS[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_diff_applies_by_itself(name):
    apply_diff(ROOT, name, "--check")


@pytest.mark.slow
def test_the_tests_that_the_page_names_pass(extended_checkout):
    tests = [
        "tests/algorithms/test_raft.py",
        "tests/training/test_every_algorithm.py",
        "tests/benchmarks/test_made.py",
        "tests/benchmarks/test_prompts.py",
    ]
    arguments = ["-p", "no:cacheprovider", "-v", "-k", "raft or gcd", *tests]
    output = run_python(extended_checkout, "-m", "pytest", *arguments)
    assert [file for file in tests if not re.search(rf"{file}::.* PASSED", output)] == []


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["raft", "raft-H4"])
def test_the_algorithm_trains_and_is_evaluated(run_folder, algorithm):
    path = f"gcd/tiny-qwen2/{algorithm}/seed1"
    summary = json.loads((run_folder / "runs" / path / "summary.json").read_text())
    assert summary["status"] == "ok" and summary["optimizer_steps"] == 8
    evaluation = json.loads((run_folder / "evaluations" / path / "evaluation.json").read_text())
    assert evaluation["status"] == "ok" and evaluation["problems"] == 4


@pytest.mark.slow
def test_the_algorithm_has_rows_in_the_table_and_a_colour_in_figures(run_folder, extended_checkout):
    assert re.search(r"^  RAFT +\d", read_table(run_folder, 1), re.MULTILINE)
    assert re.search(r"^  RAFT \(H=4\) +\d", read_table(run_folder, 1), re.MULTILINE)
    code = "from reports.plots import series_styles; print(series_styles.get_declared_style('raft-H4').color)"
    assert run_python(extended_checkout, "-c", code).strip() == "#0050F0"
    assert "RAFT" in (run_folder / "reports/report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_benchmark_has_problems_and_columns(run_folder):
    assert len((run_folder / "data/gcd/train.jsonl").read_text().splitlines()) == 8
    assert all(read_table(run_folder, number).count("GCD (made)\n") for number in (1, 3))
    assert re.search(r"^  GCD \(made\) +Pass@1 ", read_table(run_folder, 4), re.MULTILINE)


@pytest.mark.slow
def test_the_metric_is_recorded_by_runs_and_compared(run_folder, extended_checkout):
    folder = run_folder / "runs/gcd/tiny-qwen2/rapid-H2/seed1"
    steps = [json.loads(line)["solved"] for line in (folder / "steps.jsonl").open()]
    mean = json.loads((folder / "summary.json").read_text())["solved"]
    assert mean == pytest.approx(sum(steps) / len(steps))
    overlays = [f"experiments/{name}.yaml" for name in OVERLAYS]
    code = "import sys; from rapid.config.params import load_files as load"
    code += "; print(load(*sys.argv[1:]).model_dump_json())"
    params = run_python(extended_checkout, "-c", code, "params.yaml", *overlays)
    run_python(
        extended_checkout, "-m", "reports.experiment", "--config", params, "--out", "compared"
    )
    assert json.loads((extended_checkout / "compared/metrics.json").read_text())["solved"] == mean
    assert list((extended_checkout / "compared/live").rglob("solved.tsv"))


@pytest.mark.slow
def test_the_column_is_in_its_table(run_folder):
    assert re.search(r"H +Pass@1 +Time +Stale +Length", read_table(run_folder, 3))


@pytest.mark.slow
def test_the_figure_is_drawn_and_shown_in_the_report(run_folder):
    for kind in ("pdf", "png"):
        assert (run_folder / f"reports/figures/memory.{kind}").stat().st_size
    page = (run_folder / "reports/report.html").read_text(encoding="utf-8")
    assert 'id="figure-memory"' in page


@pytest.mark.slow
def test_the_model_is_fetched_trained_and_evaluated(run_folder, extended_checkout):
    fetched = json.loads((run_folder / "models/my-model/manifest.json").read_text())
    assert fetched["spec"]["params"]["source"] == "my-model"
    for algorithm in ("base", "pg"):
        path = run_folder / f"evaluations/gcd/my-model/{algorithm}/seed1/evaluation.json"
        assert json.loads(path.read_text())["status"] == "ok"
    assert re.search(
        r"^my-model\n.*\n.*\n  Base +\d.*\n  PG +\d", read_table(run_folder, 2), re.MULTILINE
    )
