"""What a report shows follows from its runs."""

import math

from rapid.config.sections import BASE
from reports.imported import scope


def rows(*names, **values) -> dict:
    """Return the rows of runs by (benchmark, model, algorithm, seed)."""
    return {scope.name_run(*name): {"start": BASE, "pass@1": 0.5} | values for name in names}


def derive(of: dict):
    return scope.derive_params(of, scope.PaperParams(), 0)


def test_the_model_with_the_most_benchmarks_is_that_of_table_1():
    names = [("mbpp_plus", "a", "pg", seed) for seed in range(9)]
    names += [("mbpp_plus", "b", "pg", 1), ("math", "b", "pg", 2), ("minif2f", "c", "pg", 4)]
    tables = derive(rows(*names)).tables
    assert (tables.main.model, tables.main.seeds) == ("b", [1, 2])
    families = tables.families
    assert (families.models, families.benchmark) == (["a"], "mbpp_plus")
    assert families.seeds == list(range(9))


def test_baselines_come_first_then_other_names_then_rapid_by_h():
    names = ["rapid-H16", "Z", "rapid-H4", "pg", "A", "rapid-H4,eta=4", BASE, "grpo-H4", "grpo"]
    params = derive(rows(*(("math", "m", name, 1) for name in names)))
    rapids = ["rapid-H4", "rapid-H4,eta=4", "rapid-H16"]
    assert params.tables.main.algorithms == ["grpo", "grpo-H4", "pg", "Z", "A", *rapids]
    assert params.tables.staleness.H == [4, 16]
    assert {run.algorithm for run in params.list_runs()} == {*names}


def test_a_benchmark_has_the_accuracies_that_its_runs_have():
    of = rows(("math", "m", "pg", 1), **{"pass@8": math.nan})
    of |= rows(("mbpp_plus", "m", "pg", 1), **{"pass@8": 0.9})
    of |= rows(("minif2f", "m", "pg", 1), **{"pass@1": math.nan})
    benchmarks = derive(of).benchmarks
    assert {name: sizes.pass_at for name, sizes in benchmarks.items()} == {
        "mbpp_plus": [1, 8], "math": [1], "minif2f": [1],
    }  # fmt: skip


def test_the_start_is_that_of_the_runs():
    of = rows(("math", "m", "sft", 1)) | rows(("math", "m", "pg", 1), start="sft")
    assert derive(of).training.start == "sft"
