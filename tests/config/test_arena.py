"""The section `arena`: its runs, and errors for invalid values."""

import pytest

from rapid.algorithms.variant_names import format_variant, parse_variant_name
from rapid.artifacts.layout import ARENA
from rapid.config.jobs import Plan
from rapid.config.params import BadParams, load
from rapid.config.specs import build_train_spec, list_arena_runs

FIELD = {
    "seeds": 2,
    "more_seeds": {"pg": 3},
    "problems": 16,
    "snapshots": 2,
    "reach": 0.5,
    "rates": {"pg": 3e-4, "grpo-H2": 1e-4, "pg,n_step=8": 1e-3},
    "claims": [{"ours": "grpo-H2", "theirs": "pg", "by": "seconds"}],
}
MAP = {"seeds": 2, "problems": 64, "n_step": [4, 16], "H": [1, 2], "rate": 1e-4}


@pytest.fixture
def values(values):
    return values | {"arena": {"fields": {"math": FIELD}, "maps": {"math": MAP}}}


def arena_seeds(values, **changes) -> dict[str, list[int]]:
    """Return the seeds of each algorithm that the arena runs."""
    seeds = {}
    for run in list_arena_runs(load(values | {"arena": values["arena"] | changes})):
        seeds.setdefault(run.algorithm, []).append(run.seed)
    return seeds


def test_arena_runs_its_field_and_its_map(values):
    settings = "problems=16,learning_rate={},snapshots=2"
    cells = [(4, 1, 0.0001), (4, 2, 0.0001), (16, 1, 0.0002), (16, 2, 0.0002)]
    assert arena_seeds(values) == {
        f"pg,{settings.format(0.0003)}": [1, 2, 3],
        f"grpo-H2,{settings.format(0.0001)}": [1, 2],
        f"pg,n_step=8,{settings.format(0.001)}": [1, 2],
    } | {f"rapid-H{h},n_step={n},problems=64,learning_rate={r}": [1, 2] for n, h, r in cells}


def change_field(**changes) -> dict:
    return {"math": FIELD | changes}


def test_tuning_tries_all_rates_except_for_algorithms_with_the_rate_of_another(values):
    rates = {"math": [1e-5, 1e-2]}
    equal = FIELD["rates"] | {"grpo-H2": 3e-4}
    fields = change_field(rates=equal, same_rate={"grpo-H2": "pg"})
    seeds = arena_seeds(values, fields=fields, tuning={"rates": rates, "seeds": [9]})
    names = ("pg", "pg,n_step=8")
    tuned_rates = ("0.00001", "0.01")
    assert seeds == {f"{n},problems=16,learning_rate={r}": [9] for n in names for r in tuned_rates}
    with pytest.raises(BadParams, match=r"tuning\.rates: no learning rates for math"):
        arena_seeds(values, tuning={"rates": {"mbpp_plus": [1e-5]}, "seeds": [9]})


@pytest.mark.parametrize(
    ("same_rate", "message"),
    [
        ({"grpo-H4": "pg"}, "no learning rate for grpo-H4"),
        ({"grpo-H2": "pg"}, "rates.grpo-H2: 0.0001 .*must be 0.0003, the rate of pg"),
        ({"grpo-H2": "pg,n_step=8", "pg,n_step=8": "pg"}, "must be tuned itself"),
    ],
)
def test_algorithm_with_the_rate_of_another_has_its_number(values, same_rate, message):
    with pytest.raises(BadParams, match=message):
        arena_seeds(values, fields=change_field(same_rate=same_rate))


def test_comparison_with_a_record_runs_selected_algorithms_with_pg_and_no_map(values):
    seeds = arena_seeds(values, only=["pg", "grpo-H2"], record="results.csv")
    assert [*seeds.values()] == [[1, 2], [1, 2]]
    with pytest.raises(BadParams, match=r"only: .* must include pg"):
        arena_seeds(values, only=["grpo-H2"], record="results.csv")
    with pytest.raises(BadParams, match="record: is missing"):
        arena_seeds(values, only=["pg", "grpo-H2"])


def test_report_depends_on_runs_whose_specs_have_problems_and_rates(values):
    params = load(values)
    names = [job.folder for job in Plan(params).list_with_inputs(ARENA)]
    assert names[-1] == ARENA and len({*names}) == len(names)
    assert {"data/math", "models/tiny-qwen2"} < {*names}
    assert {run.folder for run in list_arena_runs(params)} < {*names}
    assert not any("/sft/" in folder for folder in names)
    spec = build_train_spec(params, list_arena_runs(params)[0])
    assert (spec.problems, spec.training.learning_rate, spec.snapshots) == (16, 3e-4, 2)


def test_map_without_a_rate_takes_that_of_pg(values):
    cells = {name: value for name, value in MAP.items() if name != "rate"}
    arena = {"fields": {"math": FIELD}, "maps": {"math": cells}}
    assert load(values | {"arena": arena}).arena.maps["math"].rate == FIELD["rates"]["pg"]
    with pytest.raises(BadParams, match=r"maps\.math\.rate: is missing"):
        load(values | {"arena": {"maps": {"math": cells}}})


@pytest.mark.parametrize("rate", [1.0, 3e-5, 0.00123, 2e-10])
def test_variant_is_parsed_as_it_was_formatted(rate):
    assert (
        parse_variant_name(format_variant("pg", epochs=2, learning_rate=rate)).changes.learning_rate
        == rate
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"claims": [{"ours": "dapo", "theirs": "pg", "by": "seconds"}]},
            "rates: no learning rate for dapo",
        ),
        ({"rates": {"dapo": 1e-4, "rloo": 1e-4}, "claims": []}, "rates: no learning rate for pg"),
        (
            {"claims": [{"ours": "pg", "theirs": "pg", "by": "seconds", "expect": "same"}]},
            "expect: 'same' is invalid: must be 'better' if `by` is seconds",
        ),
        (
            {"problems": 1},
            "is invalid: its number of problems must be at least 2, the number of prompts",
        ),
    ],
)
def test_invalid_fields_are_refused(values, change, message):
    field = FIELD | {"more_seeds": {}} | change
    with pytest.raises(BadParams, match=message):
        load(values | {"arena": {"fields": {"math": field}}})


@pytest.mark.parametrize(("key", "section"), [("fields", FIELD), ("maps", MAP)])
def test_benchmark_that_params_yaml_lacks_is_refused(values, key, section):
    del values["benchmarks"]["minif2f"]
    with pytest.raises(
        BadParams, match=rf"arena\.{key}\.minif2f: .* must be one of the benchmarks"
    ):
        load(values | {"arena": {key: {"minif2f": section}}})


def test_seeds_may_be_listed(values):
    values["arena"]["fields"]["math"] = FIELD | {"seeds": [5], "more_seeds": {}}
    values["arena"]["maps"] = {}
    assert {*map(tuple, arena_seeds(values).values())} == {(5,)}
    with pytest.raises(BadParams, match="at least 1 item"):
        load(values | {"arena": {"fields": {"math": FIELD | {"seeds": []}}}})


def test_all_runs_can_start_from_one_run(values):
    """The start is trained with its seed alone, and its model is an input of each run."""
    values["training"] |= {"start": "sft", "start_seed": 7}
    params = load(values)
    starts = [run for run in list_arena_runs(params) if run.algorithm == "sft"]
    assert [run.seed for run in starts] == [7]
    plan = Plan(params)
    trained = [job for job in plan.list_with_inputs(ARENA) if job.rule == "train"]
    (start,) = (job for job in trained if job.folder == starts[0].folder)
    others = [job for job in trained if job is not start]
    assert {job.options["model"][0] for job in others} == {f"{start.folder}/model"}
    assert {job.spec.training.start_seed for job in others} == {7} and len(others) > 10
    evaluated = {job.spec.run for job in plan.list_with_inputs(ARENA) if job.rule == "evaluate"}
    assert {run.seed for run in evaluated if run.algorithm in ("base", "sft")} == {7}
    values["training"]["start"] = "base"
    with pytest.raises(BadParams, match="start_seed: 7 is invalid: must be unset if start is"):
        load(values)


def test_run_that_others_start_from_has_no_start_seed_itself(values):
    values["training"] |= {"start": "dppo", "start_seed": 7}
    (start,) = (run for run in list_arena_runs(load(values)) if run.algorithm == "dppo")
    spec = build_train_spec(load(values), start)
    assert type(spec).model_validate_json(spec.model_dump_json()) == spec
    assert (spec.training.start, spec.training.start_seed) == ("base", None)


def test_published_problems_cannot_be_reserved(values):
    values["benchmarks"]["math"] |= {"source": "hub", "reserved": 3}
    with pytest.raises(BadParams, match="reserved"):
        load(values)
