"""Tests that the contents of a report follow from its runs."""

import math

from rapid.config.params_schema import BASE
from reports.imported import scope


def make_rows(*names, **values) -> dict:
    """Return the rows of runs by (benchmark, model, algorithm, seed)."""
    row = {"start": BASE, "start_seed": math.nan, "pass@1": 0.5} | values
    return {scope.build_run(*name): row for name in names}


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
    training = derive_params(rows).training
    assert (training.start, training.start_seed) == ("sft", None)


def test_seed_of_the_start_is_derived_from_the_runs():
    """The model before training and the start have this seed only."""
    names = [("math", "m", BASE, 3), ("math", "m", "sft", 3)]
    trained = [("math", "m", "pg", 1), ("math", "m", "pg", 2)]
    rows = make_rows(*names) | make_rows(*trained, start="sft", start_seed=3.0)
    listed = {(run.algorithm, run.seed) for run in derive_params(rows).list_runs()}
    assert listed == {(BASE, 3), ("sft", 3), ("pg", 1), ("pg", 2), ("pg", 3)}
