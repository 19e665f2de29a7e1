"""Folders, specs and commands of jobs, and the jobs that an experiment shares."""

import json
from pathlib import Path

import pytest
import yaml

from rapid.artifacts.layout import EXPERIMENT_REPORT, PHASES, STUDIES
from rapid.artifacts.manifests import hash_files
from rapid.config.jobs import Plan, build_plan, list_jobs
from rapid.config.params import BadParams, load, read
from rapid.config.specs import Run, list_source_files
from rapid.freshness import Job, list_differences
from tests.conftest import ROOT

NAME = "changed"
OWN_FOLDER = f"experiments/{NAME}/"
REPORTED = {"reports", "reports/experiment", "reports/studies"}


@pytest.fixture
def default(values) -> Plan:
    return Plan(load(values))


@pytest.fixture
def plan_overlay(values, tmp_path):
    """Return a function that plans params.yaml with a named overlay."""
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))

    def plan_overlay(**overlay) -> Plan:
        (tmp_path / "overlay.yaml").write_text(yaml.safe_dump({"name": NAME, **overlay}))
        return build_plan(load(read(tmp_path / "params.yaml", tmp_path / "overlay.yaml")), tmp_path)

    return plan_overlay


def list_folders(jobs: list[Job], stage: str = "") -> set[str]:
    return {job.folder for job in jobs if stage in (job.stage, "")}


def list_own_folders(plan: Plan) -> set[str]:
    """Return the folders of jobs that the experiment does not share, without its prefix."""
    return {
        name.removeprefix(OWN_FOLDER)
        for name in list_folders(plan.jobs)
        if name.startswith(OWN_FOLDER)
    }


def assert_inputs_come_first(plan: Plan) -> None:
    earlier = set()
    for job in plan.jobs:
        assert earlier.issuperset(job.inputs), job.folder
        earlier.add(job)


def use_only_pg(values: dict) -> dict:
    for table in ("main", "families"):
        values["tables"][table]["algorithms"] = ["pg"]
    return values


def test_jobs_are_ordered_by_stage_and_have_folders_of_their_own(default):
    order = [PHASES.index(job.stage) for job in default.jobs]
    assert order == sorted(order) and len({*order}) == len(PHASES)
    assert len(list_folders(default.jobs)) == len(default.jobs)
    assert_inputs_come_first(default)


def test_runs_begin_in_blocks_of_seeds_in_random_order(values):
    """Runs begin after their inputs, each with its evaluation; data_seed decides the order."""
    default = Plan(load(values))
    names = [job.folder for job in default.jobs if job.stage != "report"]
    order = sorted(names, key=default.get_priority, reverse=True)
    names = [name for name in order if name.startswith("runs/")]
    top_folders = {name.split("/")[0] for name in order[order.index(names[0]) :]}
    assert top_folders == {"runs", "evaluations"}
    for name in names:
        evaluation = name.replace("runs/", "evaluations/")
        assert default.get_priority(evaluation) == default.get_priority(name)

    runs = [default.get_job(name).spec.run for name in names]
    assert len({default.get_priority(name) for name in names}) == len(runs)
    seeds = [run.seed for run in runs]
    assert seeds == sorted(seeds)
    blocks = [
        tuple(run.algorithm for run in runs if (run.seed, run.benchmark) == (seed, "math"))
        for seed in dict.fromkeys(seeds)
    ]
    assert len({*blocks}) == len(blocks) > 1

    reseeded = Plan(load(values | {"data_seed": 1}))
    assert sorted(names, key=reseeded.get_priority, reverse=True) != names

    values["tables"]["main"]["seeds"] = [seeds[-1]]
    names_of_seed = [
        name for name, run in zip(names, runs, strict=True)
        if run.seed == seeds[-1] and run.model == values["tables"]["main"]["model"]
    ]  # fmt: skip
    only_seed = Plan(load(values))
    assert sorted(names_of_seed, key=only_seed.get_priority, reverse=True) == names_of_seed != []


def get_command(job: Job) -> str:
    """Return the subcommand of `rapid` that runs a job, with its options for the paths to read."""
    return " ".join([job.rule, *(f"--{key} {' '.join(job.options[key])}" for key in job.options)])


def test_command_names_files_of_the_inputs(default):
    for job in default.jobs:
        paths = [path for option_paths in job.options.values() for path in option_paths]
        inputs = {upstream.folder for upstream in job.inputs}
        for path in paths:
            assert {path, *map(str, Path(path).parents)} & inputs, job.folder
        assert job.stage == "report" or len(paths) == len(inputs)


TRAIN, DATA = "train --model models/tiny-qwen2", "--data data/math"


@pytest.mark.parametrize(
    ("folder", "command"),
    [
        ("models/tokenizer", "tokenizer --data data/mbpp_plus data/math data/minif2f"),
        ("models/tiny-llama", "pretrain --tokenizer models/tokenizer --data data/mbpp_plus"),
        ("distilled/math", f"distill --model models/teacher {DATA}/train.jsonl"),
        ("runs/math/tiny-qwen2/sft/seed1", f"{TRAIN} --data distilled/math/samples.jsonl"),
        ("runs/math/tiny-qwen2/pg/seed99", f"{TRAIN} {DATA}/train.jsonl"),  # in no table
        (
            "evaluations/math/tiny-qwen2/base/seed1",
            f"evaluate --model models/tiny-qwen2 {DATA}/test.jsonl",
        ),
        (
            "evaluations/math/tiny-qwen2/pg/seed1",
            f"evaluate --model runs/math/tiny-qwen2/pg/seed1/model {DATA}/test.jsonl",
        ),
    ],
)
def test_job_has_its_command(default, folder, command):
    job = default.get_job(folder)
    assert (job.folder, get_command(job)) == (folder, command)


@pytest.mark.parametrize("start", ["sft", "dppo"])
def test_run_starts_from_the_model_of_another_run(values, start):
    """The start is planned even if no table has it, and starts from the base model."""
    values["training"]["start"] = start
    planned = Plan(load(use_only_pg(values)))
    assert_inputs_come_first(planned)
    first, pg = (planned.get_job(f"runs/math/tiny-qwen2/{name}/seed1") for name in (start, "pg"))
    assert get_command(pg) == f"train --model {first.folder}/model {DATA}/train.jsonl"
    assert pg.spec.training.start == start and first in pg.inputs
    assert get_command(first).startswith(f"{TRAIN} ")
    assert first.spec.training is None or first.spec.training.start == "base"
    names = list_folders(planned.jobs)
    assert {first.folder, first.folder.replace("runs", "evaluations")} <= names
    assert (
        ("models/teacher" in names)
        == bool(list_folders(planned.jobs, "distill"))
        == (start == "sft")
    )


def test_demonstrations_for_a_study_alone_are_planned_as_optional(values):
    study = {"benchmark": "math", "algorithms": ["sft", "pg"]}
    values["studies"] = {"compared": {"imitation": study}}
    planned = Plan(load(use_only_pg(values)))
    assert not list_folders(planned.jobs, "distill")
    assert list_folders(planned.optional_jobs, "distill") == {"distilled/math"}


def test_generated_demonstrations_need_no_teacher(values):
    values["sft"] |= {"demonstrations": 8, "error_rate": 0.5}
    planned = Plan(load(values))
    assert "models/teacher" not in list_folders(planned.jobs)
    job = planned.get_job("distilled/math")
    assert get_command(job) == f"demonstrate {DATA}/train.jsonl"
    assert (job.spec.demonstrations, job.spec.error_rate) == (8, 0.5)


def test_specs_leave_out_default_start_and_error_rate(default):
    """Otherwise jobs from before these parameters existed would be stale."""
    for job in default.jobs:
        text = job.spec.model_dump_json()
        assert list_differences(json.loads(text), job.spec.model_dump(mode="json")) == []
        assert '"start"' not in text and '"error_rate":0.0' not in text, job.folder


def test_reporters_and_checkpoint_intervals_do_not_change_specs(values, default):
    values |= {"logging": {"report_to": "tensorboard"}, "checkpoint_seconds": 7}
    changed = Plan(load(values))
    assert changed.params.checkpoint_seconds == 7
    for jobs_of_plan in zip(changed.jobs, default.jobs, strict=True):
        specs = [job.spec for job in jobs_of_plan]
        assert specs[0] == specs[1]
        assert specs[0].model_dump_json() == specs[1].model_dump_json()


def test_unsafe_settings_change_the_specs_of_the_jobs_that_grade_with_them(values):
    def specs(values: dict) -> dict[str, object]:
        return {job.folder: job.spec for job in list_jobs(load(values))}

    before = specs(values)
    for setting, benchmark in (("unsafe_sandbox", "mbpp_plus"), ("unsafe_lean", "minif2f")):
        after = specs(values | {"grading": {setting: True}})
        reached = {folder for folder in before if after[folder] != before[folder]}
        assert reached - REPORTED == {
            folder
            for folder in before
            if f"/{benchmark}" in folder
            and not folder.startswith("data")
            and not (folder.startswith("runs") and "/sft/" in folder)
        }


def test_files_in_a_folder_of_problems_are_inputs(values, tmp_path):
    for name in ("data/test.parquet", "train.jsonl", ".cache/etag", "manifest.json", "a{1}"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    values["benchmarks"]["math"]["source"] = str(tmp_path)
    files = list_source_files(Plan(load(values)).get_job("data/math").spec)
    assert files == [f"{tmp_path}/data/test.parquet", f"{tmp_path}/train.jsonl"]


@pytest.mark.parametrize("source", ["./mine.jsonl", "mine//mine.jsonl"])
def test_a_file_of_problems_has_the_path_that_its_manifest_has(
    values, tmp_path, monkeypatch, source
):
    monkeypatch.chdir(tmp_path)
    Path(source).parent.mkdir(exist_ok=True)
    Path(source).touch()
    values["benchmarks"]["math"]["source"] = source
    files = list_source_files(Plan(load(values)).get_job("data/math").spec)
    assert files == list(hash_files(Path(source)))


# Experiments -----------------------------------------------------------------------------------------


def test_default_with_a_name_is_refused(values, tmp_path):
    named = values | {"name": "mine"}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(named))
    with pytest.raises(BadParams, match=r"params\.yaml: name: .*write the name in an overlay"):
        build_plan(load(named), tmp_path)


def test_unnamed_parameters_use_the_default_folders(values, default):
    values["rapid"]["eta"] = 3.0
    assert list_folders(list_jobs(load(values))) == list_folders(default.jobs)


def test_experiment_has_only_the_jobs_that_its_parameters_change(plan_overlay):
    changed = plan_overlay(rapid={"eta": 3.0})
    reached = {job.folder for job in changed.default.jobs if "/rapid-H" in job.folder}
    assert list_own_folders(changed) == {*reached, "reports"}
    unchanged = plan_overlay()
    assert list_own_folders(unchanged) == {"reports"}
    assert unchanged.get_folder(STUDIES) == f"{OWN_FOLDER}{STUDIES}"


def test_jobs_downstream_of_an_experiments_job_belong_to_the_experiment(plan_overlay):
    """The specs of the runs are equal, but they read different problems."""
    planned = plan_overlay(benchmarks={"math": {"test": 10}})
    run = planned.get_job("runs/math/tiny-qwen2/pg/seed1")
    assert run.spec == planned.default.get_job("runs/math/tiny-qwen2/pg/seed1").spec
    assert run.folder == f"{OWN_FOLDER}runs/math/tiny-qwen2/pg/seed1"
    paths = f"--model {OWN_FOLDER}models/tiny-qwen2 --data {OWN_FOLDER}data/math/train.jsonl"
    assert get_command(run) == f"train {paths}"
    assert planned.get_folder("data/mbpp_plus") == "data/mbpp_plus"
    command = f"tokenizer --data data/mbpp_plus {OWN_FOLDER}data/math data/minif2f"
    assert get_command(planned.get_job("models/tokenizer")) == command


def test_dvc_compares_only_runs_of_the_default(plan_overlay, values):
    """DVC does not version named experiments."""
    default = load(values | {"rapid": values["rapid"] | {"H": 3}})
    dvc_folders = {"runs/mbpp_plus/tiny-qwen2/rapid-H3/seed1", EXPERIMENT_REPORT}
    assert dvc_folders <= list_folders(list_jobs(default))
    assert not dvc_folders & list_own_folders(plan_overlay(rapid={"H": 3}))


def test_only_runs_planned_by_the_default_are_shared(plan_overlay, values, tmp_path):
    name = "rapid-H16,eta=4"  # from a study of the default
    planned = plan_overlay(tables={"main": {"algorithms": [name, "pg"], "seeds": [1, 7]}})
    run = Run(benchmark="math", model="tiny-qwen2", algorithm="pg", seed=1)
    study = run.model_copy(update={"algorithm": name})
    assert planned.get_folder(run.folder).startswith("runs/")
    assert planned.get_folder(study.folder).startswith("runs/")
    unplanned = run.model_copy(update={"seed": 7}).folder
    assert planned.get_folder(unplanned) == OWN_FOLDER + unplanned
    (tmp_path / "params.yaml").unlink()  # without a default nothing is shared
    without_default = build_plan(load(values | {"name": NAME}), tmp_path)
    assert all(folder.startswith(OWN_FOLDER) for folder in list_folders(without_default.jobs))


# Overlays that are applied after another one.
APPLIED_AFTER = {
    "arena-tuning": ["arena"],
    "arena-minif2f-tuning": ["arena-minif2f"],
    "arena-real-tuning": ["arena-real"],
    "arena-rivals-tuning": ["arena-rivals"],
    "arena-real-quick": ["arena-real"],
    "small-mbpp-seeds": ["small-mbpp"],
}


@pytest.mark.parametrize("overlay", sorted((ROOT / "experiments").glob("*.yaml")), ids=str)
def test_each_experiment_has_its_own_folder_and_keeps_default_results(overlay, monkeypatch):
    monkeypatch.chdir(ROOT)
    earlier = [overlay.with_name(f"{name}.yaml") for name in APPLIED_AFTER.get(overlay.stem, [])]
    planned = build_plan(load(read("params.yaml", *earlier, overlay)))
    assert planned.root == f"experiments/{overlay.stem}/"
    default_jobs = {job.folder: job for job in planned.default.jobs}
    for job in planned.jobs:
        if not job.folder.startswith(planned.root):
            assert job.spec == default_jobs[job.folder].spec
    assert list_folders(planned.jobs, "report") == {f"{planned.root}reports"}
