"""Files of runs become rows; what is missing says why; what is wrong is an error."""

import math

import pytest

from rapid.artifacts.files import BadFile
from rapid.artifacts.manifests import hash_files
from rapid.artifacts.runs import Runtime
from rapid.config import specs
from rapid.config.specs import Run
from reports.collect import collect, why_missing

RUN = Run(benchmark="mbpp_plus", model="tiny_qwen", algorithm="rapid-H4", seed=1)
BASE = RUN.model_copy(update={"algorithm": "base"})
OTHER = RUN.model_copy(update={"algorithm": "pg"})
SFT = RUN.model_copy(update={"algorithm": "sft"})


def row_of(frame, run):
    same = (frame[list(run.model_dump())] == list(run.model_dump().values())).all(axis=1)
    (row,) = (row for _, row in frame[same].iterrows())
    return row


def test_a_row_for_every_evaluation_that_the_tables_need(params, runs):
    frame = collect(params, runs.root)
    assert len(frame) == len(specs.add_base_runs(specs.table_runs(params)))
    assert frame[["pass@1", "pass@8", "runtime", "staleness"]].isna().all(axis=None)
    assert (frame.H.notna() == frame.algorithm.str.startswith("rapid")).all()
    row = row_of(frame, RUN)
    assert why_missing(row, "pass@1") == "not evaluated: no evaluation.json of a finished job"
    assert why_missing(row, "runtime") == "not trained: no summary.json of a finished job"


def test_figures_are_those_of_the_files(params, runs):
    runs.scored(RUN, [4, 0], ks=(1, 8))
    runtime = Runtime(total=90, sampling=60, backpropagation=30, startup=5)
    runs.summary(RUN, runtime=runtime, staleness=0.07, clip_fraction=0.4)
    row = row_of(collect(params, runs.root), RUN)
    assert (row["pass@1"], row["pass@8"], row.problems, row.samples) == (0.25, 0.5, 2, 8)
    assert (row.runtime, row["runtime.sampling"], row["runtime.startup"]) == (90, 60, 5)
    assert (row.staleness, row.clip_fraction, row.H) == (0.07, 0.4, 4)
    assert row.no_evaluation == row.no_summary == ""


def test_a_training_job_that_could_not_run_has_no_figures(params, runs):
    runs.summary(RUN, status="unavailable", note="no Lean here.", runtime=None)
    row = row_of(collect(params, runs.root), RUN)
    assert math.isnan(row.runtime)
    assert (row.hardware, row.commit) == ("", "")
    assert why_missing(row, "runtime") == "not trained: no Lean here"


@pytest.mark.parametrize(
    ("note", "reason"), [("no Lean here", "no Lean here"), ("", "evaluation.json gives no reason")]
)
def test_an_unavailable_evaluation_has_no_figures(params, runs, note, reason):
    runs.evaluation(RUN, status="unavailable", note=note, pass_at={1: 0.0})
    row = row_of(collect(params, runs.root), RUN)
    assert math.isnan(row["pass@1"])
    assert why_missing(row, "pass@1") == f"not evaluated: {reason}"


def test_a_k_that_was_not_estimated_and_figures_that_are_not_finite(params, runs):
    runs.scored(RUN, [4])
    runs.summary(RUN, staleness=math.inf, runtime=None)
    row = row_of(collect(params, runs.root), RUN)
    assert why_missing(row, "pass@8") == "evaluation.json has no finite pass@8"
    for name in ("staleness", "runtime"):
        assert math.isnan(row[name])
        assert why_missing(row, name) == f"summary.json has no finite {name}"


def test_a_summary_of_a_base_model_is_not_looked_for(params, runs):
    runs.summary(BASE)
    assert math.isnan(row_of(collect(params, runs.root), BASE).runtime)


def test_an_evaluation_is_of_as_many_problems_as_were_prepared(params, runs):
    """One that could not be done has no settings to compare, but it is of its run."""
    path = runs.scored(RUN, [4, 0])
    data = runs.root / "data/mbpp_plus"
    data.mkdir(parents=True)
    runs.seal(data / "manifest.json", spec={"test": 2})
    collect(params, runs.root)
    runs.seal(data / "manifest.json", spec={"test": 3})
    with pytest.raises(BadFile, match="problems: 2 is not what its job was asked for, 3"):
        collect(params, runs.root)
    runs.evaluation(RUN, status="unavailable", note="no Lean")
    assert row_of(collect(params, runs.root), RUN).no_evaluation == "not evaluated: no Lean"
    runs.edit(path, lambda document: document.update(seed=0))
    with pytest.raises(BadFile, match="seed: 0 is not what its job was asked for, 1"):
        collect(params, runs.root)


def test_a_row_says_what_the_jobs_of_its_run_were_allowed(params, runs):
    waived = {"unsafe_lean": True}
    runs.seal(runs.summary(RUN), spec={"training": {"start": "sft"}, "grading": waived})
    runs.seal(runs.scored(RUN, [4]), accepted=[{"by": "a person"}])
    runs.summary(OTHER)
    frame = collect(params, runs.root)
    rows = [row_of(frame, run) for run in (RUN, OTHER, BASE)]
    assert [(row.start, row.accepted, row.unwalled) for row in rows] == [
        ("sft", True, {"unsafe_lean"}),
        ("base", False, set()),
        ("base", False, set()),
    ]


def test_demonstrations_that_were_made_anew_after_a_run_are_an_error(params, runs):
    demonstrations = runs.root / "distilled/mbpp_plus/completions.jsonl"
    demonstrations.parent.mkdir(parents=True)
    demonstrations.touch()
    name = runs.seal(demonstrations).as_posix()
    path = runs.seal(runs.summary(SFT), inputs=hash_files(demonstrations))
    collect(params, runs.root)
    runs.seal(path, inputs={name: "of others"})
    with pytest.raises(BadFile, match=f"manifest.json: its job read another version of {name}"):
        collect(params, runs.root)
