"""End points of a few runs, against values by hand."""

import math
from dataclasses import replace

import pytest

from rapid.artifacts.evaluations import CurvePoint
from rapid.benchmarks.problem_source import build_declared_source
from rapid.config.arena import Claim
from rapid.config.params import load
from rapid.config.specs import BASE, list_arena_runs
from reports import contents, outcomes
from reports.outcomes import (
    NO_EFFECT,
    FieldOutcomes,
    build_record,
    list_fields,
    read_recorded_outcome,
)
from reports.report_data import ReportData
from reports.tables import standings
from reports.tables.arena import judge_claims
from tests.reports.conftest import add_arena, make_run

# By seed: runtime, seconds to half of the steps, problems (of ten) solved then and at the end.
RUNS = {
    "pg": [(40, 20, 4, 6), (80, 40, 4, 4)],
    "grpo": [(20, 10, 3, 7), (20, None, 0, 5)],  # the second has no snapshot
    "dapo": [(40, 20, 3, 7), (40, 20, 3, 8)],  # the first sampled twice as many completions
}


@pytest.fixture
def data(values, runs):
    claims = [{"ours": "dapo", "theirs": "pg", "by": "accuracy"}]
    params = load(add_arena(values, dict.fromkeys(RUNS, 1e-4), claims=claims))
    for seed in (1, 2):
        runs.write_scores(make_run(BASE, seed), [8] * 2 + [0] * 8)
    for run in list_arena_runs(params):
        name = run.algorithm.split(",")[0]
        runtime, seconds, solved_at_half, solved_at_end = RUNS[name][run.seed - 1]
        runs.write_scores(run, [8] * solved_at_end + [0] * (10 - solved_at_end))
        completions = 128 if (name, run.seed) == ("dapo", 1) else 64
        runs.write_summary(
            run, runtime, completions=completions, optimizer_steps=16, staleness=0.25
        )
        if seconds:
            runs.write_curve(
                run, CurvePoint(step=8, seconds=seconds, pass_at={1: solved_at_half / 10})
            )
    return ReportData.read(params, runs.root, list_arena_runs(params))


def test_end_points_are_read_from_the_curve(data):
    """Equal time is half of PG's mean, 30 s; equal completions are half of one DAPO run's."""
    (field,) = list_fields(data)
    outcomes = field.outcomes
    assert {name: dict(outcome.seconds) for name, outcome in outcomes.items()} == {
        "pg": {1: pytest.approx(30), 2: math.inf},
        "grpo": {1: pytest.approx(15)},
        "dapo": {1: pytest.approx(30), 2: pytest.approx(28)},
    }
    accuracy_in_time = {
        name: dict(outcome.accuracy_in_time["mean"]) for name, outcome in outcomes.items()
    }
    assert accuracy_in_time["pg"] == pytest.approx({1: 0.5, 2: 0.35})
    assert accuracy_in_time["grpo"] == pytest.approx({1: 0.7})
    assert accuracy_in_time["dapo"] == pytest.approx({1: 0.5, 2: 0.55})
    assert dict(outcomes["grpo"].accuracy.mean(axis=1)) == pytest.approx({1: 0.7, 2: 0.5})
    assert dict(outcomes["dapo"].accuracy["mean"]) == pytest.approx({1: 0.3, 2: 0.8})


def test_arena_tables_are_numbered_in_order(data):
    content = contents.build_arena(data)
    numbers = [table.number for table in content.results]
    assert numbers == [*range(1, len(numbers) + 1)] and len(numbers) > 1
    sections = content.list_sections(["arena-math"])
    assert [section.anchor for section in sections] == [
        "first",
        "claims",
        "field",
        "time",
    ]  # no map


def test_comparisons_are_paired_by_seed_and_need_two_seeds(data):
    (field,) = list_fields(data)
    one_pair = field.compare("grpo", "pg", "seconds")
    assert one_pair.reason == "seeds with comparable runs of both: 1, but a comparison needs two"
    assert field.compare("dapo", "pg", "accuracy").value == pytest.approx(0.05)
    assert field.compare("grpo", "pg", "accuracy").value == pytest.approx(0.1)
    assert field.compare("dapo", "pg", "accuracy_in_time").value == pytest.approx(0.1)
    assert field.compare("pg", "pg", "seconds").value == NO_EFFECT["seconds"] == 1
    assert field.compare("pg", "dapo", "accuracy").sample == "n = 2 seeds and 1 problems"


def test_times_are_compared_on_one_make_of_processor_only(data):
    """Seed 2 of PG ran on a faster processor, and no other run did."""
    (field,) = list_fields(data)
    moved = (data.frame.seed == 2) & data.frame.algorithm.str.startswith("pg")
    machines = data.frame.hardware.mask(moved, "another processor")
    frame = data.frame.assign(hardware=machines)
    moved_field = FieldOutcomes("math", field.field, replace(data, frame=frame))
    assert [*map(list, field.pair_seconds("dapo", "pg"))] == [
        [30, pytest.approx(28)],
        [30, math.inf],
    ]
    assert [*map(list, moved_field.pair_seconds("dapo", "pg"))] == [[30], [30]]
    reason = moved_field.compare("dapo", "pg", "seconds").reason
    assert reason == "seeds with comparable runs of both: 1, but a comparison needs two"
    assert moved_field.compare("dapo", "pg", "accuracy").sample == "n = 2 seeds and 1 problems"
    # Half of the mean time of PG on each processor is 20 s and 40 s.
    in_time = {
        name: dict(end.accuracy_in_time["mean"]) for name, end in moved_field.outcomes.items()
    }
    assert in_time["pg"] == pytest.approx({1: 0.4, 2: 0.4})
    assert in_time["dapo"] == pytest.approx({1: 0.3, 2: 0.3})


def test_target_without_a_value_follows_from_the_test_problems(data):
    """The untrained model solves 2 of 10, PG 6 and 4 at the end: 0.2 + 0.75 x 0.3."""
    (field,) = list_fields(data)
    open_field = field.field.model_copy(update={"reach": None})
    by_rule = FieldOutcomes("math", open_field, data)
    assert by_rule.target_accuracy == by_rule.test_target.computed == 0.425
    assert by_rule.test_target.chance_of_computed == by_rule.test_target.chance_of_used == 0
    assert by_rule.outcomes["pg"].seconds[1] == pytest.approx(22.5)
    half_field = open_field.model_copy(update={"gain_share": 0.5})
    assert FieldOutcomes("math", half_field, data).target_accuracy == 0.35
    without_runs = ReportData.read(data.params, data.root / "none", list_arena_runs(data.params))
    assert math.isnan(FieldOutcomes("math", open_field, without_runs).target_accuracy)


@pytest.mark.parametrize(
    ("reach", "gain_share", "is_excluded"),
    [(None, 0.001, True), (None, 0.75, False), (0.2, 0.001, False)],
)
def test_target_that_is_reached_by_chance_leaves_claims_about_seconds_untested(
    data, reach, gain_share, is_excluded
):
    """With almost no share of the gain, the target is the accuracy before training, 0.2."""
    (field,) = list_fields(data)
    claims = [Claim(ours="dapo", theirs="pg", by=by) for by in ("seconds", "accuracy")]
    changes = {"reach": reach, "gain_share": gain_share, "claims": claims}
    changed_field = FieldOutcomes("math", field.field.model_copy(update=changes), data)
    assert changed_field.target_accuracy == pytest.approx(0.425 if gain_share == 0.75 else 0.2)
    by_seconds, by_accuracy = judge_claims([changed_field])
    assert (by_seconds.estimate.value is None) == is_excluded
    assert ("learn nothing" in by_seconds.estimate.reason) == is_excluded
    assert by_accuracy.estimate.value is not None


@pytest.mark.parametrize("snapshot_samples", [None, 2])
def test_a_note_says_if_snapshots_have_fewer_completions(data, snapshot_samples):
    (field,) = list_fields(data)
    open_field = field.field.model_copy(update={"reach": None})
    evaluation = data.params.evaluation.model_copy(update={"snapshot_samples": snapshot_samples})
    data = replace(data, params=data.params.model_copy(update={"evaluation": evaluation}))
    table = standings.build_standings_table(FieldOutcomes("math", open_field, data), 1)
    (note,) = (note for note in table.notes if note.startswith("Target accuracy: 20.0%"))
    assert ("evaluated on 2 completions per problem" in note) == (snapshot_samples == 2)


def test_record_has_a_row_for_each_run_with_a_curve(data):
    rows = build_record(data)
    assert {*rows.reach} == {0.5} and rows.run[0].startswith("pg,")
    assert [tuple(row) for row in rows[["algorithm", "seed"]].to_numpy()] == [
        ("pg", 1), ("pg", 2), ("grpo", 1), ("dapo", 1), ("dapo", 2),
    ]  # fmt: skip
    last_row = dict(rows.iloc[-1].drop(["clip_fraction", "run", "reach"]))
    assert last_row == pytest.approx(
        {"benchmark": "math", "algorithm": "dapo", "seed": 2, "runtime": 40, "staleness": 0.25,
         "seconds": 28, "accuracy": 0.8, "accuracy_in_time": 0.55}
    )  # fmt: skip
    doubled_times = read_recorded_outcome(rows[rows.algorithm == "dapo"].set_index("seed"), 2)
    assert list(doubled_times.seconds) == pytest.approx([60, 56])
    assert list(doubled_times.runs.runtime) == [80, 80]
    assert list(doubled_times.accuracy_in_time["mean"]) == pytest.approx([0.5, 0.55])


@pytest.fixture
def clustered_data(data, monkeypatch):
    """Ask for errors clustered over two skeletons of five problems each."""
    skeletons = {f"p{number}": "ab"[number % 2] for number in range(10)}
    monkeypatch.setattr(outcomes, "is_generated", lambda data, benchmark: True)
    monkeypatch.setattr(outcomes, "regenerate_skeletons", lambda data, benchmark: skeletons)
    arena = data.params.arena.model_copy(update={"clustered": True})
    return replace(data, params=data.params.model_copy(update={"arena": arena}))


def test_errors_of_accuracies_are_clustered_on_request(data, clustered_data):
    (plain,), (clustered,) = list_fields(data), list_fields(clustered_data)
    pair = ("grpo", "pg", "accuracy")
    assert plain.compare(*pair).sample == "n = 2 seeds and 10 problems"
    assert clustered.compare(*pair).sample == "n = 2 seeds and 2 problems"
    assert clustered.compare(*pair).value == pytest.approx(plain.compare(*pair).value)
    assert plain.estimate_pass_at("pg", 8).sample == "n = 2 seeds and 10 problems"
    assert clustered.estimate_pass_at("pg", 8).sample == "n = 2 seeds and 2 problems"
    for by in ("seconds", "accuracy_in_time"):
        assert clustered.compare("dapo", "pg", by).sample == plain.compare("dapo", "pg", by).sample
    assert build_record(clustered_data).equals(build_record(data))


def test_tables_say_over_what_errors_are_clustered(data, clustered_data):
    note = "(2 skeletons of 10 problems on MATH (made))"
    for report_data, is_clustered in ((data, False), (clustered_data, True)):
        claims, field, *_ = contents.build_arena(report_data).results
        assert [note in " ".join(table.notes) for table in (claims, field)] == [is_clustered] * 2


def test_published_problems_are_not_clustered(data, clustered_data, monkeypatch):
    monkeypatch.setattr(outcomes, "is_generated", lambda data, benchmark: False)
    source = build_declared_source("math", "hub")
    vars(clustered_data)["problems"] = clustered_data.problems | {"math": source}
    (field,) = list_fields(clustered_data)
    assert field.compare("grpo", "pg", "accuracy").sample == "n = 2 seeds and 10 problems"
    claims, *_ = contents.build_arena(clustered_data).results
    note = "Problems of MATH (hub) are not clustered, because they are not generated."
    assert note in claims.notes


def test_run_on_hardware_without_pg_has_no_accuracy_in_equal_time(data):
    moved = (data.frame.seed == 2) & data.frame.algorithm.str.startswith("dapo")
    frame = data.frame.assign(hardware=data.frame.hardware.mask(moved, "another processor"))
    rows = build_record(replace(data, frame=frame))
    rows = rows[rows.algorithm == "dapo"].set_index("seed")
    assert list(rows.accuracy_in_time) == pytest.approx([0.5, math.nan], nan_ok=True)
    recorded = read_recorded_outcome(rows, 1)
    assert list(recorded.accuracy_in_time.index) == [1] and list(recorded.accuracy.index) == [1, 2]
