"""Runs and manifests that a report reads, and their order."""

from rapid.config.params import load
from reports.measured import Measured
from tests.reports.conftest import make_run


def test_algorithms_have_the_tables_order_with_rapid_last_by_h(values, runs):
    values["tables"]["staleness"]["H"] = [16, 2]
    measured = Measured.read(load(values), runs.root)
    baselines, rapids = ["sft", "grpo", "naive-grpo", "pg", "dapo"], ["rapid-H2", "rapid-H4"]
    assert measured.algorithms == [*baselines, *rapids, "rapid-H16"]
    runs_in_order = measured.contests["math"].of("pg", "dapo", "grpo")
    assert list(runs_in_order.algorithm) == ["pg", "pg", "dapo", "dapo", "grpo", "grpo"]


def test_demonstrations_are_read_only_for_benchmarks_with_sft_runs(params, runs):
    for benchmark in ("math", "mbpp_plus"):
        demonstrations = runs.root / f"distilled/{benchmark}/completions.jsonl"
        demonstrations.parent.mkdir(parents=True)
        demonstrations.touch()
        runs.seal(demonstrations)
    trained = [make_run("sft"), make_run("pg", benchmark="mbpp_plus")]
    measured = Measured.read(params, runs.root, trained)
    assert [*measured.manifests] == ["distilled/math/manifest.json"]
