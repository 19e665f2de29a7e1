"""Collection of run files as rows: values, reasons for missing ones, and errors."""

import math

import pytest

from rapid.artifacts.files import BadFile
from rapid.artifacts.manifests import hash_files
from rapid.artifacts.runs import Runtime
from rapid.config import specs
from rapid.config.specs import Run
from reports.collect import collect_runs, explain_missing

RUN = Run(benchmark="mbpp_plus", model="tiny_qwen", algorithm="rapid-H4", seed=1)
BASE = RUN.model_copy(update={"algorithm": "base"})
PG = RUN.model_copy(update={"algorithm": "pg"})
SFT = RUN.model_copy(update={"algorithm": "sft"})


def select_row(frame, run):
    is_row = (frame[list(run.model_dump())] == list(run.model_dump().values())).all(axis=1)
    (row,) = (row for _, row in frame[is_row].iterrows())
    return row


def test_every_evaluation_of_the_tables_has_a_row(params, runs):
    frame = collect_runs(params, runs.root)
    assert len(frame) == len(specs.add_base_runs(params, specs.list_table_runs(params)))
    assert frame[["pass@1", "pass@8", "runtime", "staleness"]].isna().all(axis=None)
    assert (frame.H.notna() == frame.algorithm.str.startswith("rapid")).all()
    row = select_row(frame, RUN)
    assert explain_missing(row, "pass@1") == "not evaluated: no evaluation.json of a finished job"
    assert explain_missing(row, "runtime") == "not trained: no summary.json of a finished job"


def test_values_of_a_row_are_those_of_the_files(params, runs):
    runs.write_scores(RUN, [4, 0], ks=(1, 8))
    runtime = Runtime(total=90, sampling=60, backpropagation=30, startup=5)
    runs.write_summary(RUN, runtime=runtime, staleness=0.07, clip_fraction=0.4)
    row = select_row(collect_runs(params, runs.root), RUN)
    assert (row["pass@1"], row["pass@8"], row.problems, row.samples) == (0.25, 0.5, 2, 8)
    assert (row.runtime, row["runtime.sampling"], row["runtime.startup"]) == (90, 60, 5)
    assert (row.staleness, row.clip_fraction, row.H) == (0.07, 0.4, 4)
    assert row.no_evaluation_reason == row.no_summary_reason == ""


def test_unavailable_training_has_no_values(params, runs):
    runs.write_summary(RUN, status="unavailable", note="no Lean here.", runtime=None)
    row = select_row(collect_runs(params, runs.root), RUN)
    assert math.isnan(row.runtime)
    assert (row.hardware, row.commit) == ("", "")
    assert explain_missing(row, "runtime") == "not trained: no Lean here"


@pytest.mark.parametrize(
    ("note", "reason"), [("no Lean here", "no Lean here"), ("", "evaluation.json gives no reason")]
)
def test_unavailable_evaluation_has_no_values(params, runs, note, reason):
    runs.write_evaluation(RUN, status="unavailable", note=note, pass_at={1: 0.0})
    row = select_row(collect_runs(params, runs.root), RUN)
    assert math.isnan(row["pass@1"])
    assert explain_missing(row, "pass@1") == f"not evaluated: {reason}"


def test_missing_pass_at_k_and_values_that_are_not_finite_have_reasons(params, runs):
    runs.write_scores(RUN, [4])
    runs.write_summary(RUN, staleness=math.inf, runtime=None)
    row = select_row(collect_runs(params, runs.root), RUN)
    assert explain_missing(row, "pass@8") == "evaluation.json has no finite pass@8"
    for name in ("staleness", "runtime"):
        assert math.isnan(row[name])
        assert explain_missing(row, name) == f"summary.json has no finite {name}"


def test_evaluation_of_an_earlier_model_has_no_values(params, runs):
    """The training was started again and interrupted: it deleted its manifest first."""
    runs.write_scores(RUN, [4])
    runs.write_summary(RUN).with_name("manifest.json").unlink()
    row = select_row(collect_runs(params, runs.root), RUN)
    assert math.isnan(row["pass@1"]) and not row.scores
    reason = "not evaluated: the run's training is not finished"
    assert explain_missing(row, "pass@1") == reason


def test_summary_of_a_base_model_is_ignored(params, runs):
    runs.write_summary(BASE)
    assert math.isnan(select_row(collect_runs(params, runs.root), BASE).runtime)


def test_evaluation_must_match_the_prepared_problems_and_its_run(params, runs):
    """An unavailable evaluation has no counts to compare, but still needs the right run."""
    path = runs.write_scores(RUN, [4, 0])
    prepared = runs.root / "data/mbpp_plus"
    prepared.mkdir(parents=True)
    runs.add_to_manifest(prepared / "manifest.json", spec={"test": 2})
    collect_runs(params, runs.root)
    runs.add_to_manifest(prepared / "manifest.json", spec={"test": 3})
    with pytest.raises(BadFile, match="problems is 2, but the job's parameters say 3"):
        collect_runs(params, runs.root)
    runs.write_evaluation(RUN, status="unavailable", note="no Lean")
    assert (
        select_row(collect_runs(params, runs.root), RUN).no_evaluation_reason
        == "not evaluated: no Lean"
    )
    runs.edit(path, lambda document: document.update(seed=0))
    with pytest.raises(BadFile, match="seed is 0, but the job's parameters say 1"):
        collect_runs(params, runs.root)


def test_row_has_the_start_acceptance_and_sandbox_permissions_of_its_jobs(params, runs):
    permission = {"unsafe_lean": True}
    runs.add_to_manifest(
        runs.write_summary(RUN),
        spec={"training": {"start": "sft", "start_seed": 3}, "grading": permission},
    )
    runs.add_to_manifest(runs.write_scores(RUN, [4]), accepted=[{"by": "a person"}])
    runs.write_summary(PG)
    frame = collect_runs(params, runs.root)
    rows = [select_row(frame, run) for run in (RUN, PG, BASE)]
    assert [(row.start, row.accepted, row.sandbox_permissions) for row in rows] == [
        ("sft", True, {"unsafe_lean"}),
        ("base", False, set()),
        ("base", False, set()),
    ]
    assert [row.start_seed for row in rows[:2]] == pytest.approx([3, math.nan], nan_ok=True)


def test_demonstrations_newer_than_a_run_are_an_error(params, runs):
    demonstrations = runs.root / "distilled/mbpp_plus/completions.jsonl"
    demonstrations.parent.mkdir(parents=True)
    demonstrations.touch()
    name = runs.add_to_manifest(demonstrations).as_posix()
    path = runs.add_to_manifest(runs.write_summary(SFT), inputs=hash_files(demonstrations))
    collect_runs(params, runs.root)
    runs.add_to_manifest(path, inputs={name: "another digest"})
    with pytest.raises(BadFile, match=f"manifest.json: its job read another version of {name}"):
        collect_runs(params, runs.root)
