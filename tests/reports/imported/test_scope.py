"""Tests that the contents of a report follow from its runs."""

import math

from rapid.config.params_schema import BASE
from reports.imported import scope


def make_rows(*names, **values) -> dict:
    """Return the rows of runs by (benchmark, model, algorithm, seed)."""
    return {scope.build_run(*name): {"start": BASE, "pass@1": 0.5} | values for name in names}


def derive_params(rows: dict):
    return scope.derive_params(rows, scope.PresentationParams(), 0)


def test_table_1_has_the_model_with_the_most_benchmarks():
    names = [("mbpp_plus", "a", "pg", seed) for seed in range(9)]
    names += [("mbpp_plus", "b", "pg", 1), ("math", "b", "pg", 2), ("minif2f", "c", "pg", 4)]
    tables = derive_params(make_rows(*names)).tables
    assert (tables.main.model, tables.main.seeds) == ("b", [1, 2])
    families = tables.families
    assert (families.models, families.benchmark) == (["a"], "mbpp_plus")
    assert families.seeds == list(range(9))


def test_baselines_come_first_then_other_names_then_rapid_by_h():
    names = ["rapid-H16", "Z", "rapid-H4", "pg", "A", "rapid-H4,eta=4", BASE, "grpo-H4", "grpo"]
    params = derive_params(make_rows(*(("math", "m", name, 1) for name in names)))
    rapid_algorithms = ["rapid-H4", "rapid-H4,eta=4", "rapid-H16"]
    assert params.tables.main.algorithms == ["grpo", "grpo-H4", "pg", "Z", "A", *rapid_algorithms]
    assert params.tables.staleness.H == [4, 16]
    assert {run.algorithm for run in params.list_runs()} == {*names}


def test_pass_at_k_of_a_benchmark_are_those_of_its_runs():
    rows = make_rows(("math", "m", "pg", 1), **{"pass@8": math.nan})
    rows |= make_rows(("mbpp_plus", "m", "pg", 1), **{"pass@8": 0.9})
    rows |= make_rows(("minif2f", "m", "pg", 1), **{"pass@1": math.nan})
    benchmarks = derive_params(rows).benchmarks
    assert {name: sizes.pass_at for name, sizes in benchmarks.items()} == {
        "mbpp_plus": [1, 8], "math": [1], "minif2f": [1],
    }  # fmt: skip


def test_start_is_derived_from_the_runs():
    rows = make_rows(("math", "m", "sft", 1)) | make_rows(("math", "m", "pg", 1), start="sft")
    assert derive_params(rows).training.start == "sft"
