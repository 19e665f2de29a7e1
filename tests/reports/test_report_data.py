"""Runs and manifests that a report reads, and their order."""

from rapid.config.params import load
from reports.report_data import ReportData
from tests.reports.conftest import make_run


def test_algorithms_have_the_tables_order_with_rapid_last_by_h(values, runs):
    values["tables"]["staleness"]["H"] = [16, 2]
    data = ReportData.read(load(values), runs.root)
    baselines, rapid_algorithms = (
        ["sft", "grpo", "naive-grpo", "pg", "dapo"],
        ["rapid-H2", "rapid-H4"],
    )
    assert data.algorithms == [*baselines, *rapid_algorithms, "rapid-H16"]
    runs_in_order = data.runs_by_benchmark["math"].select("pg", "dapo", "grpo")
    assert list(runs_in_order.algorithm) == ["pg", "pg", "dapo", "dapo", "grpo", "grpo"]


def test_demonstrations_are_read_only_for_benchmarks_with_sft_runs(params, runs):
    for benchmark in ("math", "mbpp_plus"):
        demonstrations = runs.root / f"distilled/{benchmark}/completions.jsonl"
        demonstrations.parent.mkdir(parents=True)
        demonstrations.touch()
        runs.add_to_manifest(demonstrations)
    trained = [make_run("sft"), make_run("pg", benchmark="mbpp_plus")]
    data = ReportData.read(params, runs.root, trained)
    assert [*data.manifests] == ["distilled/math/manifest.json"]
