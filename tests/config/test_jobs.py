"""Where jobs lie, and which of them an experiment shares with the default."""

import json
from pathlib import Path

import pytest
import yaml

from rapid.artifacts.layout import EXPERIMENT_REPORT, PHASES, STUDIES
from rapid.config.jobs import Plan, jobs, plan
from rapid.config.params import load, read
from rapid.config.specs import Run, source_files
from rapid.freshness import Job, differences
from tests.conftest import ROOT

NAME = "changed"
OWN = f"experiments/{NAME}/"
REPORTED = {"reports", "reports/experiment", "reports/studies"}


@pytest.fixture
def default(values) -> Plan:
    return Plan(load(values))


@pytest.fixture
def placed(values, tmp_path):
    """Plan params.yaml with an overlay, which has a name, in a folder with params.yaml."""
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))

    def place(**overlay) -> Plan:
        (tmp_path / "overlay.yaml").write_text(yaml.safe_dump({"name": NAME, **overlay}))
        return plan(load(read(tmp_path / "params.yaml", tmp_path / "overlay.yaml")), tmp_path)

    return place


def folders(found: list[Job], stage: str = "") -> set[str]:
    return {job.folder for job in found if stage in (job.stage, "")}


def own(found: Plan) -> set[str]:
    """The folders of jobs that are the experiment's, in the default's layout."""
    return {each.removeprefix(OWN) for each in folders(found.jobs) if each.startswith(OWN)}


def test_each_stage_has_jobs_in_order_and_no_folder_has_two(default):
    order = [PHASES.index(job.stage) for job in default.jobs]
    assert order == sorted(order) and len({*order}) == len(PHASES)
    assert len(folders(default.jobs)) == len(default.jobs)


def test_a_job_comes_after_those_that_it_reads(default):
    seen = set()
    for job in default.jobs:
        assert seen.issuperset(job.inputs), job.folder
        seen.add(job)


def test_runs_begin_in_blocks_of_seeds_in_random_order(values):
    """After what they need, each with its evaluation; the data's seed decides the order."""
    default = Plan(load(values))
    names = [job.folder for job in default.jobs if job.stage != "report"]
    order = sorted(names, key=default.priority, reverse=True)
    names = [name for name in order if name.startswith("runs/")]
    begun = {name.split("/")[0] for name in order[order.index(names[0]) :]}
    assert begun == {"runs", "evaluations"}
    for name in names:
        evaluation = name.replace("runs/", "evaluations/")
        assert default.priority(evaluation) == default.priority(name)

    runs = [default.job(name).spec.run for name in names]
    assert len({default.priority(name) for name in names}) == len(runs)
    seeds = [run.seed for run in runs]
    assert seeds == sorted(seeds)
    blocks = [
        tuple(run.algorithm for run in runs if (run.seed, run.benchmark) == (seed, "math"))
        for seed in dict.fromkeys(seeds)
    ]
    assert len({*blocks}) == len(blocks) > 1

    other = Plan(load(values | {"data_seed": 1}))
    assert sorted(names, key=other.priority, reverse=True) != names


def only_pg(values) -> dict:
    for table in ("main", "families"):
        values["tables"][table]["algorithms"] = ["pg"]
    return values


def test_a_command_names_files_of_the_inputs(default):
    for job in default.jobs:
        paths = [part for part in job.command.split() if "/" in part]
        read = {each.folder for each in job.inputs}
        for path in paths:
            assert {path, *map(str, Path(path).parents)} & read, job.command
        assert job.stage == "report" or len(paths) == len(read)


@pytest.mark.parametrize(
    "name, command",
    [
        ("models/tokenizer", "tokenizer --data data/mbpp_plus data/math data/minif2f"),
        ("models/tiny-llama", "pretrain --tokenizer models/tokenizer --data data/mbpp_plus"),
        ("distilled/math", "distill --model models/teacher --data data/math/train.jsonl"),
        (
            "runs/math/tiny-qwen2/sft/seed1",
            "train --model models/tiny-qwen2 --data distilled/math/samples.jsonl",
        ),
        (
            "runs/math/tiny-qwen2/pg/seed99",  # in no table
            "train --model models/tiny-qwen2 --data data/math/train.jsonl",
        ),
        (
            "evaluations/math/tiny-qwen2/base/seed1",
            "evaluate --model models/tiny-qwen2 --data data/math/test.jsonl",
        ),
        (
            "evaluations/math/tiny-qwen2/pg/seed1",
            "evaluate --model runs/math/tiny-qwen2/pg/seed1/model --data data/math/test.jsonl",
        ),
    ],
)
def test_commands(default, name, command):
    assert default.job(name).command == command
    assert default.job(name).folder == name


@pytest.mark.parametrize("start", ["sft", "dppo"])
def test_a_run_starts_from_another_s_model(values, start):
    """The first is planned where no table has it, and starts from the model before training."""
    values["training"]["start"] = start
    found = Plan(load(only_pg(values)))
    test_a_job_comes_after_those_that_it_reads(found)
    first, pg = (found.job(f"runs/math/tiny-qwen2/{name}/seed1") for name in (start, "pg"))
    assert pg.command == f"train --model {first.folder}/model --data data/math/train.jsonl"
    assert pg.spec.training.start == start and first in pg.inputs
    assert first.command.startswith("train --model models/tiny-qwen2 ")
    assert first.spec.training is None or first.spec.training.start == "base"
    needed = folders(found.jobs)
    assert {first.folder, first.folder.replace("runs", "evaluations")} <= needed
    assert ("models/teacher" in needed) == bool(folders(found.jobs, "distill")) == (start == "sft")


def test_demonstrations_that_only_a_study_needs_are_planned(values):
    for table in ("main", "families"):
        values["tables"][table]["algorithms"] = ["pg"]
    study = {"benchmark": "math", "algorithms": ["sft", "pg"]}
    values["studies"] = {"compared": {"imitation": study}}
    found = Plan(load(values))
    assert not folders(found.jobs, "distill")
    assert folders(found.asked_for, "distill") == {"distilled/math"}


def test_made_demonstrations_need_no_teacher(values):
    values["sft"] |= {"demonstrations": 8, "error_rate": 0.5}
    found = Plan(load(values))
    assert "models/teacher" not in folders(found.jobs)
    job = found.job("distilled/math")
    assert job.command == "demonstrate --data data/math/train.jsonl"
    assert (job.spec.demonstrations, job.spec.error_rate) == (8, 0.5)


def test_a_spec_is_what_a_manifest_holds_but_for_the_usual_start_and_teacher(default):
    """Nor were they in it when there was no other: no job that was made then is stale."""
    for job in default.jobs:
        written = job.spec.model_dump_json()
        assert differences(json.loads(written), job.spec.model_dump(mode="json")) == []
        assert '"start"' not in written and '"error_rate":0.0' not in written, job.folder


def test_parameters_without_a_name_act_on_the_default_s_folders(values):
    values["rapid"]["eta"] = 3.0
    assert folders(jobs(load(values))) == folders(jobs(load(read(ROOT / "params.yaml"))))


def test_what_a_changed_parameter_reaches_is_the_experiment_s_and_no_more(placed):
    found = placed(rapid={"eta": 3.0})
    reached = {job.folder for job in found.default.jobs if "/rapid-H" in job.folder}
    assert own(found) == {*reached, "reports"}


def test_what_reads_a_job_of_the_experiment_is_the_experiment_s(placed):
    """The specs of the runs are equal; the problems that they read are not."""
    found = placed(benchmarks={"math": {"test": 10}})
    run = found.job("runs/math/tiny-qwen2/pg/seed1")
    assert run.spec == found.default.job("runs/math/tiny-qwen2/pg/seed1").spec
    assert run.folder == f"{OWN}runs/math/tiny-qwen2/pg/seed1"
    paths = f"--model {OWN}models/tiny-qwen2 --data {OWN}data/math/train.jsonl"
    assert run.command == f"train {paths}"
    assert found.folder("data/mbpp_plus") == "data/mbpp_plus"
    command = f"tokenizer --data data/mbpp_plus {OWN}data/math data/minif2f"
    assert found.job("models/tokenizer").command == command


def test_an_experiment_that_changes_nothing_has_only_reports(placed):
    found = placed()
    assert own(found) == {"reports"}
    assert found.folder(STUDIES) == f"{OWN}{STUDIES}"


def test_what_dvc_compares_is_made_of_the_default_alone(placed, values):
    """DVC has no versions of experiments with a name."""
    changed = load(values | {"rapid": values["rapid"] | {"H": 3}})
    compared = {"runs/mbpp_plus/tiny-qwen2/rapid-H3/seed1", EXPERIMENT_REPORT}
    assert compared <= folders(jobs(changed))
    assert not compared & own(placed(rapid={"H": 3}))


def test_a_run_of_the_default_s_studies_is_shared(placed):
    name = "rapid-H16,eta=4"
    found = placed(tables={"main": {"algorithms": [name]}})
    assert found.folder(f"runs/math/tiny-qwen2/{name}/seed1").startswith("runs/")


def test_a_run_that_the_default_has_not_planned_is_not_shared(placed):
    found = placed(tables={"main": {"seeds": [1, 7]}})
    run = Run(benchmark="math", model="tiny-qwen2", algorithm="pg", seed=7)
    assert found.folder(run.folder) == OWN + run.folder
    assert found.folder(run.model_copy(update={"seed": 1}).folder).startswith("runs/")


def test_without_a_default_nothing_is_shared(values, tmp_path):
    found = plan(load(values | {"name": NAME}), tmp_path)
    assert all(folder.startswith(OWN) for folder in folders(found.jobs))


@pytest.mark.parametrize("overlay", sorted((ROOT / "experiments").glob("*.yaml")), ids=str)
def test_experiments_name_themselves_and_leave_the_default_s_results(overlay, monkeypatch):
    monkeypatch.chdir(ROOT)
    found = plan(load(read("params.yaml", overlay)))
    assert found.root == f"experiments/{overlay.stem}/"
    theirs = {job.folder: job for job in found.default.jobs}
    for job in found.jobs:
        if not job.folder.startswith(found.root):
            assert job.spec == theirs[job.folder].spec
    assert folders(found.jobs, "report") == {f"{found.root}reports"}


def test_where_runs_report_to_and_how_often_they_save_is_no_part_of_a_job(values, default):
    values |= {"logging": {"report_to": "tensorboard"}, "checkpoint_seconds": 7}
    told = Plan(load(values))
    assert (told.params.logging.report_to, told.params.checkpoint_seconds) == ("tensorboard", 7)
    for one, other in zip(told.jobs, default.jobs, strict=True):
        assert one.spec == other.spec
        assert one.spec.model_dump_json() == other.spec.model_dump_json()


def planned(values: dict) -> dict[str, object]:
    return {job.folder: job.spec for job in jobs(load(values))}


def test_a_wall_that_is_waived_reaches_the_jobs_that_it_stands_around(values):
    before = planned(values)
    for wall, benchmark in (("unsafe_sandbox", "mbpp_plus"), ("unsafe_lean", "minif2f")):
        changed = planned(values | {"grading": {wall: True}})
        reached = {folder for folder in before if changed[folder] != before[folder]}
        graded = {folder for folder in before if f"/{benchmark}" in folder and "data" not in folder}
        assert reached - REPORTED == {one for one in graded if not one.startswith("runs")} | {
            one for one in graded if one.startswith("runs") and "/sft/" not in one
        }


def test_what_is_of_sampling_and_grading_reaches_no_imitation(values):
    before = planned(values)
    values["benchmarks"]["math"] |= {"n_step": 8, "timeout": 7.0}
    changed = planned(values)
    reached = {folder for folder in before if changed[folder] != before[folder]}
    runs = {folder for folder in before if folder.startswith("runs/math/")}
    assert {one for one in reached if one.startswith("runs/")} == {
        one for one in runs if "/sft/" not in one
    }


def test_files_of_a_folder_with_problems_are_inputs_each(values, tmp_path):
    for name in ("data/test.parquet", "train.jsonl", ".cache/etag", "manifest.json", "a{1}"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    values["benchmarks"]["math"]["source"] = str(tmp_path)
    found = source_files(planned(values)["data/math"])
    assert found == [f"{tmp_path}/data/test.parquet", f"{tmp_path}/train.jsonl"]
