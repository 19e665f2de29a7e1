"""Runs that start from the model of another run: their weights, and when they become stale."""

from pathlib import Path
from shutil import copytree

import pytest

from rapid.artifacts.demonstrations import Demonstration
from rapid.artifacts.files import read_jsonl, sha256_file, write_json, write_jsonl
from rapid.artifacts.runs import RunSummary
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import draw_exercises as make_exercises
from rapid.benchmarks.prompts import render_prompt
from rapid.config import specs
from rapid.config.jobs import Plan
from rapid.config.params import load
from rapid.freshness import examine_jobs
from rapid.stages.demonstrate import demonstrate
from rapid.stages.prepare import prepare
from rapid.stages.train import train

RUNS = "runs/math/tiny-qwen2"
WEIGHTS = "model/model.safetensors"


@pytest.fixture
def values(values) -> dict:
    """Smallest parameters: SFT on made demonstrations, then PG with a negligible learning rate."""
    values["benchmarks"]["math"] |= {"train": 2, "test": 2, "max_completion_length": 8}
    values["models"]["tiny-qwen2"]["benchmarks"] = ["math"]
    values["models"]["tiny-qwen2"]["error_rate"] = 0.5
    values["sft"] |= {"demonstrations": 4, "error_rate": 0.5, "epochs": 1, "batch": 2}
    values["training"] |= {"start": "sft", "learning_rate": 1e-30}
    tables = {"algorithms": ["pg"], "seeds": [1]}
    values["tables"]["main"] |= tables
    values["tables"]["families"] |= tables | {"benchmark": "math", "models": []}
    values["tables"]["staleness"]["H"] = [1]
    values["experiment"]["benchmark"] = "math"
    return values | {"benchmarks": {"math": values["benchmarks"]["math"]}, "studies": None}


def make_plan(values: dict) -> Plan:
    values["rapid"]["H"] = 1
    return Plan(load(values))


def run_training_job(planned: Plan, name: str) -> None:
    """Run a training job with the paths of its options."""
    job = planned.get_job(name)
    (model,), (data,) = job.options["model"], job.options["data"]
    train(job.spec, Path(model), Path(data), Path(job.folder))


@pytest.fixture
def finished_plan(values, toy_model, tmp_path, monkeypatch) -> Plan:
    """The plan, in a folder where problems, demonstrations, SFT and PG are finished."""
    monkeypatch.chdir(tmp_path)
    copytree(toy_model, "models/tiny-qwen2")
    planned = make_plan(values)
    prepare(planned.get_job("data/math").spec, Path("data/math"))
    job = planned.get_job("distilled/math")
    demonstrate(job.spec, Path("data/math/train.jsonl"), Path(job.folder))
    for name in ("sft", "pg"):
        run_training_job(planned, f"{RUNS}/{name}/seed1")
    return planned


def list_chain(planned: Plan) -> list:
    """Return the jobs that the run of PG depends on, and that run."""
    names = ("data/math", "distilled/math", f"{RUNS}/sft/seed1", f"{RUNS}/pg/seed1")
    return [planned.get_job(name) for name in names]


def test_rl_starts_from_the_weights_of_sft_and_becomes_stale_with_it(finished_plan, values):
    base = sha256_file(Path("models/tiny-qwen2/model.safetensors"))
    sft, pg = (sha256_file(Path(RUNS, name, "seed1", WEIGHTS)) for name in ("sft", "pg"))
    assert base != sft == pg

    assert examine_jobs(list_chain(finished_plan)).current == list_chain(finished_plan)
    values["sft"]["epochs"] = 2
    stale = {job.folder for job in examine_jobs(list_chain(make_plan(values))).stale}
    assert stale == {f"{RUNS}/sft/seed1", f"{RUNS}/pg/seed1"}
    values["training"]["start"] = "base"
    values["sft"]["epochs"] = 1
    (reason,) = examine_jobs(list_chain(make_plan(values))).stale.values()
    assert "training.start: 'sft' is now None" in reason


def test_run_with_an_untrained_start_gives_the_reason(values, tmp_path):
    run = specs.Run(benchmark="math", model="tiny-qwen2", algorithm="sft", seed=1)
    note = "the teacher solved none of the training problems"
    summary = RunSummary(**run.model_dump(), status="unavailable", note=note)
    write_json(tmp_path / "sft/summary.json", summary)
    (tmp_path / "train.jsonl").touch()
    job = make_plan(values).get_job(f"{RUNS}/pg/seed1")
    folder = tmp_path / "pg"
    trained = train(job.spec, tmp_path / "sft/model", tmp_path / "train.jsonl", folder)
    assert (trained.status, trained.note) == ("unavailable", note)


def make_demonstrations(folder: Path, name: str, **fields) -> list[Demonstration]:
    """Make demonstrations beside the problems of a folder."""
    spec = {"benchmark": name, "data_seed": 0, "reserved": 0, "error_rate": 0.0} | fields
    demonstrate(specs.DemonstrateSpec(**spec), folder / "train.jsonl", folder / "made")
    return list(read_jsonl(folder / "made/samples.jsonl", Demonstration))


@pytest.mark.parametrize("rate", [0.0, 1.0])
@pytest.mark.parametrize("name", [name for name, benchmark in BENCHMARKS.items() if benchmark.draw])
def test_demonstrations_are_of_other_problems_with_the_given_error_rate(name, rate, tmp_path):
    task = BENCHMARKS[name]
    exercises = make_exercises(task, 0, {"demonstrations": 17})["demonstrations"]
    write_jsonl(tmp_path / "train.jsonl", [exercise.problem for exercise in exercises[:4]])
    write_jsonl(tmp_path / "test.jsonl", [exercises[4].problem])
    rows = make_demonstrations(tmp_path, name, demonstrations=12, error_rate=rate)
    for row, exercise in zip(rows, exercises[5:], strict=True):
        assert row.prompt == render_prompt(name, exercise.problem)
        assert row.message == render_prompt(name, exercise.problem, chat=True)
        assert row.completion in (exercise.mistakes if rate else [exercise.correct])


def test_demonstrations_are_of_no_reserved_test_problem(tmp_path):
    for part in ("train", "test"):
        write_jsonl(tmp_path / f"{part}.jsonl", [])
    rows = make_demonstrations(tmp_path, "math", reserved=300, demonstrations=300)
    tested = make_exercises(BENCHMARKS["math"], 0, {"test": 300})["test"]
    assert not {row.prompt for row in rows} & {
        render_prompt("math", exercise.problem) for exercise in tested
    }
