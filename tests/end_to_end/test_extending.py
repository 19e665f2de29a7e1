"""The six diffs of docs/extending.md are applied to a copy of the tree, which is run."""

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
# What each diff may touch beside new tests: the new thing, the line that makes it known, an
# overlay.
PLACES = {
    "algorithm": {
        "rapid/algorithms/maxrl.py", "rapid/algorithms/__init__.py", "experiments/maxrl.yaml",
    },
    "benchmark": {
        "rapid/benchmarks/gcd/__init__.py", "rapid/benchmarks/gcd/made.py",
        "rapid/benchmarks/gcd/prompt.txt.j2", "rapid/benchmarks/__init__.py",
        "experiments/gcd.yaml",
    },
    "metric": {"rapid/artifacts/metrics.py", "rapid/training/metrics.py"},
    "column": {"reports/tables/columns.py", "reports/tables/results.py"},
    "figure": {"reports/plots/figures/memory.py"},
    "model": {"experiments/my-model.yaml"},
}  # fmt: skip
OVERLAYS = ("maxrl", "gcd", "my-model", "tiny")
# The overlays of the page at a size that takes a minute.
TINY = """
benchmarks: {mbpp_plus: null, math: null, minif2f: null, gcd: {train: 8, test: 4}}
models: {tiny-qwen2: {layers: 1, hidden: 64, steps: 20, benchmarks: [gcd], error_rate: 0.6}}
pretraining: {demonstrations: 200, vocabulary: 400}
tables:
  main: {algorithms: [pg, maxrl, maxrl-H4, rapid-H4], seeds: [1]}
  families: {benchmark: gcd, models: [my-model], algorithms: [pg], seeds: [1]}
  staleness: {H: [2]}
experiment: {benchmark: gcd}
rapid: {H: 2}
studies: null
"""


def command(folder: Path, *arguments: str) -> str:
    """Run the copy's code and return its output."""
    return python(*arguments, folder=folder, PYTHONPATH=str(folder), **ACTIVATED).stdout


def apply(folder: Path, name: str, *options: str) -> None:
    subprocess.run(["git", "apply", *options], cwd=folder, input=DIFFS[name], text=True, check=True)


@pytest.fixture(scope="module")
def extended(tmp_path_factory, toy_model) -> Path:
    """A copy of the tree with all six diffs."""
    folder = tmp_path_factory.mktemp("extended")
    copy_checkout(folder)
    for name in NAMES:
        apply(folder, name)
    shutil.copytree(toy_model, folder / "my-model")
    return folder


@pytest.fixture(scope="module")
def run(extended) -> Path:
    """The folder with the outputs of a run of the copy."""
    (extended / "experiments/tiny.yaml").write_text(TINY)
    overlays = [f"experiments/{name}.yaml" for name in OVERLAYS]
    asked = ["--cores", "2", "--configfile", "params.yaml", *overlays]
    command(extended, "-m", "snakemake", *asked)
    [report] = extended.rglob("reports/tables.txt")
    return report.parent.parent


def table(folder: Path, number: int) -> str:
    """Return one of the printed tables, without its notes."""
    printed = (folder / "reports/tables.txt").read_text(encoding="utf-8")
    return re.split(r"Table \d\. ", printed)[number]


@pytest.mark.parametrize("name", NAMES)
def test_a_diff_touches_one_place(name):
    touched = set(re.findall(r"^\+\+\+ b/(\S+)", DIFFS[name], re.MULTILINE))
    assert {path for path in touched if not path.startswith("tests/")} == PLACES[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_diff_applies_by_itself(name):
    apply(ROOT, name, "--check")


@pytest.mark.slow
def test_the_tests_that_the_page_names_pass(extended):
    tests = [
        "tests/algorithms/test_maxrl.py",
        "tests/training/test_every_algorithm.py",
        "tests/benchmarks/test_made.py",
        "tests/benchmarks/test_prompts.py",
    ]
    asked = ["-p", "no:cacheprovider", "-v", "-k", "maxrl or gcd", *tests]
    output = command(extended, "-m", "pytest", *asked)
    assert [file for file in tests if not re.search(rf"{file}::.* PASSED", output)] == []


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["maxrl", "maxrl-H4"])
def test_the_algorithm_trains_and_is_evaluated(run, algorithm):
    place = f"gcd/tiny-qwen2/{algorithm}/seed1"
    summary = json.loads((run / "runs" / place / "summary.json").read_text())
    assert summary["status"] == "ok" and summary["optimizer_steps"] == 8
    evaluation = json.loads((run / "evaluations" / place / "evaluation.json").read_text())
    assert evaluation["status"] == "ok" and evaluation["problems"] == 4


@pytest.mark.slow
def test_the_algorithm_has_rows_in_the_table_and_a_colour_in_figures(run, extended):
    assert re.search(r"^  MaxRL +\d", table(run, 1), re.MULTILINE)
    assert re.search(r"^  MaxRL \(H=4\) +\d", table(run, 1), re.MULTILINE)
    code = "from reports.plots import looks; print(looks.declared_look('maxrl-H4').color)"
    assert command(extended, "-c", code).strip() == "#1A10FF"
    assert "MaxRL" in (run / "reports/report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_benchmark_has_problems_and_columns(run):
    assert len((run / "data/gcd/train.jsonl").read_text().splitlines()) == 8
    assert all(table(run, number).count("GCD (made)\n") for number in (1, 3))
    assert re.search(r"^  GCD \(made\) +Pass@1 ", table(run, 4), re.MULTILINE)


@pytest.mark.slow
def test_the_metric_is_in_the_files_of_a_run_and_compared(run, extended):
    folder = run / "runs/gcd/tiny-qwen2/rapid-H2/seed1"
    steps = [json.loads(line)["solved"] for line in (folder / "steps.jsonl").open()]
    mean = json.loads((folder / "summary.json").read_text())["solved"]
    assert mean == pytest.approx(sum(steps) / len(steps))
    overlays = [f"experiments/{name}.yaml" for name in OVERLAYS]
    code = "import sys; from rapid.config.params import load_files as load"
    code += "; print(load(*sys.argv[1:]).model_dump_json())"
    params = command(extended, "-c", code, "params.yaml", *overlays)
    command(extended, "-m", "reports.experiment", "--config", params, "--out", "compared")
    assert json.loads((extended / "compared/metrics.json").read_text())["solved"] == mean
    assert list((extended / "compared/live").rglob("solved.tsv"))


@pytest.mark.slow
def test_the_column_has_figures(run):
    assert re.search(r"H +Pass@1 +Time +Stale +Length", table(run, 3))


@pytest.mark.slow
def test_the_figure_is_drawn_and_shown(run):
    for kind in ("pdf", "png"):
        assert (run / f"reports/figures/memory.{kind}").stat().st_size
    page = (run / "reports/report.html").read_text(encoding="utf-8")
    assert 'id="figure-memory"' in page


@pytest.mark.slow
def test_the_model_is_fetched_trained_and_evaluated(run, extended):
    fetched = json.loads((run / "models/my-model/manifest.json").read_text())
    assert fetched["spec"]["params"]["source"] == "my-model"
    for algorithm in ("base", "pg"):
        place = run / f"evaluations/gcd/my-model/{algorithm}/seed1/evaluation.json"
        assert json.loads(place.read_text())["status"] == "ok"
    assert re.search(r"^my-model\n.*\n.*\n  Base +\d.*\n  PG +\d", table(run, 2), re.MULTILINE)
