"""Packing the blocks of an experiment, and continuing from the archives elsewhere."""

import shutil
import tarfile
from pathlib import Path

import pytest
import yaml

from rapid.artifacts.files import write_text
from rapid.artifacts.layout import ARENA, STUDIES
from rapid.artifacts.manifests import hash_files, write_manifest
from rapid.config.jobs import build_plan
from rapid.config.params import load_files
from rapid.freshness import Examination
from reports.record import main

NAME = "real"
ARCHIVES = f"experiments/{NAME}"
FIELD = {"seeds": 2, "problems": 16, "snapshots": 1, "rates": {"pg": 1e-4, "rapid-H4": 1e-4}}
OUTPUTS = {
    "prepare": ["train.jsonl", "test.jsonl"],
    "demonstrate": ["samples.jsonl"],
    "tokenizer": ["tokenizer.json"],
    "pretrain": ["config.json", "model.safetensors"],
    "evaluate": ["evaluation.json"],
    "train": ["summary.json", "steps.jsonl", "model/config.json", "model/model.safetensors",
              "snapshots/step8/model.safetensors"],
}  # fmt: skip


@pytest.fixture
def plan(values, tmp_path, monkeypatch):
    """The plan of a named arena all of whose runs start from one run."""
    monkeypatch.chdir(tmp_path)
    values["benchmarks"]["math"] = values["benchmarks"]["math"] | {"train": 64}
    values["sft"] = values["sft"] | {"demonstrations": 4}
    values["models"] = {
        name: model | {"benchmarks": ["math"], "error_rate": 0.5}
        for name, model in values["models"].items()
    }
    Path("params.yaml").write_text(yaml.safe_dump(values))
    training = {"start": "sft", "start_seed": 1}
    overlay = {"name": NAME, "data_seed": 5, "training": training}
    overlay["arena"] = {"fields": {"math": FIELD}}
    Path("real.yaml").write_text(yaml.safe_dump(overlay))
    return build_plan(load_files("params.yaml", "real.yaml"))


def run_jobs(plan, unfinished: str = "", report: str = ARENA) -> None:
    """Write the files of all jobs that a report needs, except of those whose folder has a text."""
    for job in plan.list_with_inputs(report)[:-1]:
        if unfinished and unfinished in job.folder:
            continue
        files = [Path(job.folder, name) for name in OUTPUTS[job.rule]]
        for file in files:
            write_text(file, f"{file}\n")
        inputs = hash_files(*(Path(source.folder) for source in job.inputs))
        write_manifest(Path(job.folder), job.stage, job.spec, inputs, files)


def run_command(*options: str) -> int:
    files = ["--configfile", "params.yaml", "real.yaml", "--archives", ARCHIVES]
    return main([*files, *options])


def list_names(archive: str) -> list[str]:
    with tarfile.open(f"{ARCHIVES}-{archive}") as files:
        return files.getnames()


def explain_jobs(plan) -> set[str]:
    """Return why jobs of the arena would run; "" stands for those that are up to date."""
    examination = Examination(hash_all=False)
    return {examination.explain(job) for job in plan.list_with_inputs(ARENA)[:-1]}


def test_archive_of_a_seed_has_its_runs_without_models(plan):
    run_jobs(plan)
    assert run_command("--pack", "2") == 0
    names = list_names("seed2.tar.xz")
    assert all("/seed2/" in name for name in names)
    assert {Path(name).name for name in names} == {
        "manifest.json", "summary.json", "steps.jsonl", "evaluation.json",
    }  # fmt: skip
    # Two runs and their evaluations. The base is evaluated with the seed of the start alone.
    assert len(names) == 2 * 3 + 2 * 2
    start = list_names("start.tar.xz")
    assert not any("seed2" in name or "safetensors" in name for name in start)
    assert {"train.jsonl", "samples.jsonl", "summary.json"} <= {Path(name).name for name in start}
    models = list_names("models.tar")
    assert {name.split("/")[-2] for name in models} == {"tokenizer", "tiny_qwen", "model", "step8"}
    assert all("/models/" in name or "/sft/seed1/" in name for name in models)


def test_same_files_make_the_same_archive(plan):
    run_jobs(plan)
    assert run_command("--pack", "1") == 0
    before = Path(f"{ARCHIVES}-seed1.tar.xz").read_bytes()
    for path in Path("experiments", NAME).rglob("*"):
        path.touch()
    assert run_command("--pack", "1") == 0
    assert Path(f"{ARCHIVES}-seed1.tar.xz").read_bytes() == before


def test_pruned_run_is_up_to_date_and_keeps_the_start(plan):
    run_jobs(plan)
    assert run_command("--pack", "1") == 0
    weights = {path.parents[1].as_posix() for path in Path(".").rglob("model/*.safetensors")}
    folder = f"experiments/{NAME}/runs/math/tiny_qwen"
    assert f"{folder}/sft/seed1" in weights
    assert not any("seed1" in path for path in weights if "sft" not in path)
    assert any("seed2" in path for path in weights)
    assert explain_jobs(plan) == {""}


def test_other_machine_continues_from_the_archives(plan):
    run_jobs(plan, unfinished="seed2")
    assert run_command("--pack", "1") == 0
    shutil.rmtree(f"experiments/{NAME}")
    assert run_command("--unpack") == 0
    assert Path(
        f"experiments/{NAME}/runs/math/tiny_qwen/sft/seed1/model/model.safetensors"
    ).exists()
    examination = Examination(hash_all=False)
    stale = [job.folder for job in plan.list_with_inputs(ARENA)[:-1] if examination.explain(job)]
    assert stale and all("seed2" in folder for folder in stale)


def test_existing_files_are_kept(plan):
    run_jobs(plan)
    assert run_command("--pack", "1") == 0
    kept = next(Path("experiments", NAME, "evaluations").rglob("seed1/evaluation.json"))
    kept.write_text("changed")
    assert run_command("--unpack") == 0
    assert kept.read_text() == "changed"


def test_interrupted_unpacking_leaves_no_incomplete_file(plan, monkeypatch):
    run_jobs(plan)
    assert run_command("--pack", "1") == 0
    shutil.rmtree(f"experiments/{NAME}")

    def extract_in_part(archive, folder, members, **_):
        file = Path(folder, members[0].name)
        file.parent.mkdir(parents=True)
        file.write_text("incomplete")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(tarfile.TarFile, "extractall", extract_in_part)
        run_command("--unpack")
    assert not [path for path in Path().rglob("*") if ".unpack" in str(path)]
    assert run_command("--unpack") == 0
    examination = Examination(hash_all=False)
    stale = [job.folder for job in plan.list_with_inputs(ARENA)[:-1] if examination.explain(job)]
    assert stale and all("seed2" in folder for folder in stale)


@pytest.mark.parametrize(
    ("unfinished", "seed", "message"),
    [("seed2", "2", "is not finished"), ("", "9", "no run has")],
)
def test_unfinished_block_is_not_packed(plan, capsys, unfinished, seed, message):
    run_jobs(plan, unfinished)
    assert run_command("--pack", seed) == 1
    assert message in capsys.readouterr().err
    assert not list(Path("experiments").glob("*.tar*"))


def add_tuning(rates: list[float]) -> None:
    """Turn the arena's parameters into those of a tuning."""
    overlay = yaml.safe_load(Path("real.yaml").read_text())
    overlay["arena"]["tuning"] = {"seeds": [101, 102], "rates": {"math": rates}}
    Path("real.yaml").write_text(yaml.safe_dump(overlay))


def list_blocks(capsys, *seeds: str) -> list[tuple[str, dict]]:
    """Return the printed blocks, with their parameters as a dictionary."""
    assert run_command("--list-blocks", *seeds) == 0
    blocks = []
    for line in capsys.readouterr().out.splitlines():
        seed, parameters = line.split(" ", 1)
        section, values = parameters.split("=", 1)
        blocks.append((seed, {section: yaml.safe_load(values)}))
    return blocks


def list_folders_of_runs(*overlays: dict) -> set[str]:
    """Return the folders of the arena's training runs, with these parameters changed."""
    files = []
    for number, overlay in enumerate(overlays):
        files.append(f"overlay{number}.yaml")
        Path(files[-1]).write_text(yaml.safe_dump(overlay))
    plan = build_plan(load_files("params.yaml", "real.yaml", *files))
    return {job.folder for job in plan.list_with_inputs(ARENA)[:-1] if job.rule == "train"}


@pytest.mark.parametrize("rates", [None, [1e-4, 2e-4, 5e-6]])
def test_blocks_together_are_the_experiment(plan, capsys, rates):
    if rates:
        add_tuning(rates)
    blocks = list_blocks(capsys)
    seeds = ["101"] * 3 + ["102"] * 3 if rates else ["1", "2"]
    assert [seed for seed, _ in blocks] == seeds
    folders_of_blocks = [list_folders_of_runs(parameters) for _, parameters in blocks]
    start = f"experiments/{NAME}/runs/math/tiny_qwen/sft/seed1"
    assert all(len(folders) == 1 + 2 and start in folders for folders in folders_of_blocks)
    assert set.union(*folders_of_blocks) == list_folders_of_runs()
    assert sum(len(folders) - 1 for folders in folders_of_blocks) == len(list_folders_of_runs()) - 1
    assert list_blocks(capsys, seeds[-1]) == [block for block in blocks if block[0] == seeds[-1]]


def test_blocks_of_an_unknown_seed_are_refused(plan, capsys):
    assert run_command("--list-blocks", "2", "9") == 1
    assert capsys.readouterr().err.endswith("no runs with seed 9; its seeds are 1 and 2\n")


def test_archive_of_a_tuning_grows_with_its_finished_runs(plan):
    add_tuning([1e-4, 2e-4])
    tuning = build_plan(load_files("params.yaml", "real.yaml"))
    run_jobs(tuning, unfinished="learning_rate=0.0002")
    assert run_command("--pack", "101") == 0
    runs = {name.split("/")[-3] for name in list_names("seed101.tar.xz") if "/runs/" in name}
    assert len(runs) == 2 and all("learning_rate=0.0001" in run for run in runs)
    run_jobs(tuning)
    assert run_command("--pack", "101") == 0
    runs = {name.split("/")[-3] for name in list_names("seed101.tar.xz") if "/runs/" in name}
    assert len(runs) == 4


def test_blocks_of_a_tuning_are_left_until_each_has_run(plan, capsys):
    add_tuning([1e-4, 2e-4])
    tuning = build_plan(load_files("params.yaml", "real.yaml"))
    run_jobs(tuning, unfinished="learning_rate=0.0002")
    assert run_command("--pack", "101", "--unrecorded") == 0
    assert capsys.readouterr().out == "3 of 4 blocks are left; their seeds: 101 and 102\n"
    run_jobs(tuning)
    assert run_command("--pack", "101", "--unrecorded") == 0
    assert capsys.readouterr().out == "2 of 4 blocks are left; their seeds: 102\n"
    assert run_command("--pack", "102", "--unrecorded") == 0
    assert capsys.readouterr().out == ""


def test_other_machine_has_all_results_of_a_recorded_tuning(plan, capsys):
    """Also the evaluations of the model that all runs start from, and of that before training."""
    add_tuning([1e-4, 2e-4])
    run_jobs(build_plan(load_files("params.yaml", "real.yaml")))
    assert run_command("--pack", "101") == run_command("--pack", "102") == 0
    shutil.rmtree(f"experiments/{NAME}")
    assert run_command("--unpack", "--unrecorded") == 0
    assert capsys.readouterr().out == ""


def test_block_is_packed_in_a_clone_without_the_models_of_the_start(plan):
    """Git has the archives of results, and not that of models."""
    run_jobs(plan)
    assert run_command("--pack", "1") == 0
    shutil.rmtree(f"experiments/{NAME}")
    Path(f"{ARCHIVES}-models.tar").unlink()
    assert run_command("--unpack") == 0
    before = Path(f"{ARCHIVES}-seed1.tar.xz").read_bytes()
    assert run_command("--pack", "1") == 0
    assert Path(f"{ARCHIVES}-seed1.tar.xz").read_bytes() == before
    assert not Path(f"{ARCHIVES}-models.tar").exists()


def test_seed_that_is_not_recorded_needs_the_models_of_the_start(plan, capsys):
    run_jobs(plan, unfinished="seed2")
    assert run_command("--pack", "1", "--list-blocks") == 0
    model = Path("experiments", NAME, "models/tiny_qwen")
    Path(model, "model.safetensors").unlink()
    assert run_command("--list-blocks", "1") == 0
    capsys.readouterr()
    assert run_command("--list-blocks") == 1
    printed = capsys.readouterr()
    assert printed.out == "" and f"{model}/model.safetensors is missing" in printed.err
    Path(model, "manifest.json").unlink()  # as the message says
    assert run_command("--list-blocks") == 0


def test_seed_of_a_tuning_without_a_finished_run_is_not_packed(plan, capsys):
    add_tuning([1e-4, 2e-4])
    run_jobs(build_plan(load_files("params.yaml", "real.yaml")), unfinished="seed102")
    assert run_command("--pack", "102") == 1
    assert "is not finished" in capsys.readouterr().err


def test_studies_are_packed_in_an_experiment_without_an_arena(plan, capsys):
    overlay = yaml.safe_load(Path("real.yaml").read_text()) | {"arena": None, "training": {}}
    compared = {"clip": {"benchmark": "math", "algorithms": ["rapid-H4", "rapid-H4,clip=both"]}}
    overlay["studies"] = {"seeds": [1, 2], "compared": compared}
    Path("real.yaml").write_text(yaml.safe_dump(overlay))
    run_jobs(build_plan(load_files("params.yaml", "real.yaml")), report=STUDIES)
    assert [seed for seed, _ in list_blocks(capsys)] == ["1", "2"]
    assert list_blocks(capsys, "2") == [("2", {"studies": {"seeds": [2]}})]
    assert run_command("--pack", "2", "--unrecorded") == 0
    assert capsys.readouterr().out == "1 of 2 blocks are left; their seeds: 1\n"
    names = list_names("seed2.tar.xz")
    assert all("/seed2/" in name for name in names)
    variants = {name.split("/")[-3] for name in names if "/runs/" in name}
    assert variants > {"rapid-H4", "rapid-H4,clip=both"}
    assert run_command("--pack", "1", "--unrecorded") == 0
    assert capsys.readouterr().out == ""
