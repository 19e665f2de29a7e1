"""The runs that a report is about, and their order."""

from rapid.config.params import load
from reports.measured import Measured
from tests.reports.conftest import run_of


def test_algorithms_are_in_the_tables_order_and_rapid_is_last_by_h(values, runs):
    values["tables"]["staleness"]["H"] = [16, 2]
    measured = Measured.read(load(values), runs.root)
    baselines, rapids = ["sft", "grpo", "naive-grpo", "pg", "dapo"], ["rapid-H2", "rapid-H4"]
    assert measured.algorithms == [*baselines, *rapids, "rapid-H16"]
    runs_in_order = measured.contests["math"].of("pg", "dapo", "grpo")
    assert list(runs_in_order.algorithm) == ["pg", "pg", "dapo", "dapo", "grpo", "grpo"]


def test_demonstrations_are_of_the_benchmarks_on_which_they_are_imitated(params, runs):
    for benchmark in ("math", "mbpp_plus"):
        demonstrations = runs.root / f"distilled/{benchmark}/completions.jsonl"
        demonstrations.parent.mkdir(parents=True)
        demonstrations.touch()
        runs.seal(demonstrations)
    trained = [run_of("sft"), run_of("pg", benchmark="mbpp_plus")]
    measured = Measured.read(params, runs.root, trained)
    assert [*measured.manifests] == ["distilled/math/manifest.json"]
