"""Results that were truncated, changed, swapped or deleted are not reported, and are made again."""

import itertools
import json
import math
import random
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rapid.artifacts.files import BadFile
from rapid.artifacts.manifests import MANIFEST, Manifest, verify_inputs
from rapid.config.jobs import build_plan
from rapid.config.params import load
from rapid.config.specs import PrepareSpec
from rapid.stages import maintenance
from rapid.stages.distill import distill
from rapid.stages.evaluate import evaluate
from rapid.stages.prepare import prepare
from rapid.stages.pretrain import make_tokenizer, pretrain
from rapid.stages.train import train
from reports import experiment
from reports.__main__ import main as make_report
from tests.faults.conftest import make_fault_cases
from tests.faults.finished_pipeline import (
    MODEL_FILES,
    flip_bit,
    forge_document,
    make_pipeline_values,
    truncate,
    write_pipeline,
)

PARAMS = [Path("params.yaml")]
TIMES = 20
RUN = "math/tiny-qwen2/rapid-H2,snapshots=1/seed1"


@pytest.fixture(scope="module")
def intact_pipeline(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("whole")
    write_pipeline(root)
    return root


@pytest.fixture
def enter_copy(intact_pipeline, tmp_path, monkeypatch) -> Callable[[], None]:
    """Return a function that makes a fresh copy of the pipeline the working directory."""
    numbers = itertools.count()

    def enter() -> None:
        folder = tmp_path / f"copy{next(numbers)}"
        shutil.copytree(intact_pipeline, folder)
        monkeypatch.chdir(folder)

    return enter


def report_arguments(*arguments: str) -> list[str]:
    return ["--config", json.dumps(make_pipeline_values()), *arguments]


def assert_refused(capsys, *paths: Path) -> None:
    """Check that no report is made, and that one line names one of these files."""
    capsys.readouterr()  # progress of earlier commands
    assert make_report(report_arguments("--output", "reports/tables.tex")) == 1, paths
    (message,) = capsys.readouterr().err.splitlines()
    assert any(str(path) in message for path in paths), (paths, message)
    assert not Path("reports").exists()


def assert_run_again(*paths: Path) -> None:
    """Check that `rapid reconcile` has the jobs of these files run again."""
    assert maintenance.reconcile(PARAMS) == 0
    assert not any(path.with_name(MANIFEST).exists() for path in paths)


def test_undamaged_results_are_reported(enter_copy):
    enter_copy()
    files = ["--output", "reports/tables.tex", "--html", "reports/report.html"]
    assert make_report(report_arguments(*files, "--figures", "reports/figures")) == 0
    assert experiment.main(report_arguments("--out", "reports/experiment")) == 0
    assert maintenance.verify(PARAMS) == 0


# Damage to one file, or to two files of one name. None stands for a deleted file.


def edit_digit(content: bytes, rng: random.Random) -> bytes:
    index = rng.choice([match.start() for match in re.finditer(rb"\d", content)])
    digit = rng.choice([digit for digit in b"0123456789" if digit != content[index]])
    return content[:index] + bytes([digit]) + content[index + 1 :]


def delete_content(content: bytes, rng: random.Random) -> None:
    return None


FILE_DAMAGES = {
    "results: bit flipped": flip_bit,
    "results: file truncated": truncate,
    "results: file edited": edit_digit,
    "results: file deleted": delete_content,
}
DAMAGED_MANIFESTS = [b"", b"[]", b"{}", b"null", b"{", b'"spec"', b"\xff\x00", b'{"spec": {}}']
DAMAGED_MANIFESTS += [b'{"spec": {}, "inputs": {}, "outputs": {"a/b": "", "/c": ""}}', b"DIRECTORY"]


def damage_file(path: Path, damage: Callable, rng: random.Random) -> None:
    content = damage(path.read_bytes(), rng)
    path.unlink() if content is None else path.write_bytes(content)


def list_results() -> list[Path]:
    """Return the files that the report reads, without manifests."""
    files = [path for folder in ("runs", "evaluations") for path in Path(folder).rglob("*.json*")]
    return sorted(
        path for path in files if path.name not in (MANIFEST, "curve.jsonl", *MODEL_FILES)
    )


def damage_result(damage: Callable, number: int) -> list[Path]:
    path = random.Random(0).sample(list_results(), TIMES)[number]
    damage_file(path, damage, random.Random(number))
    return [path]


def swap_paths(first: Path, second: Path) -> list[Path]:
    first.rename("aside")
    second.rename(first)
    Path("aside").rename(second)
    return [first, second]


def swap_results(number: int) -> list[Path]:
    rng = random.Random(number)
    name = rng.choice(["summary.json", "steps.jsonl", "evaluation.json"])
    return swap_paths(*rng.sample(sorted(Path().rglob(name)), 2))


def damage_manifest(number: int) -> list[Path]:
    content = DAMAGED_MANIFESTS[number % len(DAMAGED_MANIFESTS)]
    path = Path("runs" if number < len(DAMAGED_MANIFESTS) else "evaluations", RUN, MANIFEST)
    path.unlink()
    path.mkdir() if content == b"DIRECTORY" else path.write_bytes(content)
    return [path]


def swap_folders(number: int) -> list[Path]:
    """Swap two runs with their manifests, which agree with the files."""
    rng = random.Random(number)
    name = rng.choice(["summary.json", "evaluation.json"])
    return swap_paths(*rng.sample(sorted(path.parent for path in Path().rglob(name)), 2))


def add_file_of_another_run(number: int) -> list[Path]:
    """Put a file of another run in the place of a run's own file, or where it has none."""
    rng, runs = random.Random(number), sorted(path.parent for path in Path("runs").rglob(MANIFEST))
    name = ("token_weights.json", "summary.json", "steps.jsonl")[number % 3]
    source = rng.choice([run for run in runs if (run / name).exists()]) / name
    path = rng.choice([run for run in runs if run != source.parent]) / name
    path.write_bytes(source.read_bytes())
    return [path]


REPLACED = {name: partial(damage_result, damage) for name, damage in FILE_DAMAGES.items()}
REPLACED |= {
    "results: files of two runs swapped": swap_results,
    "results: manifest damaged": damage_manifest,
}
REFUSED = {
    "results: folders of two runs swapped": swap_folders,
    "results: file of another run added": add_file_of_another_run,
}


@pytest.mark.parametrize("damage", make_fault_cases(REPLACED, TIMES))
def test_a_damaged_result_is_not_reported_and_its_job_is_run_again(enter_copy, capsys, damage):
    for number in range(TIMES):
        enter_copy()
        paths = damage(number)
        assert_refused(capsys, *paths)
        assert maintenance.verify(PARAMS) == 1
        assert str(paths[0]) in capsys.readouterr().out
        assert_run_again(*paths)


@pytest.mark.parametrize("damage", make_fault_cases(REFUSED, TIMES))
def test_results_of_another_run_are_not_reported(enter_copy, capsys, damage):
    for number in range(TIMES):
        enter_copy()
        assert_refused(capsys, *damage(number))


# Results edited with their manifests ---------------------------------------------------------------


def edit_fields(document_name: str, **values) -> tuple:
    """Return a case that changes a field, or one within it: `a__b`."""

    def change(document: dict) -> None:
        for key, value in values.items():
            *outer, last = key.split("__")
            for part in outer:
                document = document[int(part) if part.isdigit() else part]
            document[int(last) if last.isdigit() else last] = value

    return pytest.param(
        document_name, change, id="-".join(f"{key}={value}" for key, value in values.items())
    )


def make_consistent(document: dict) -> None:
    """Make the sums of an evaluation fit its scores, as if each problem had 8 completions."""
    count, correct = len(document["scores"]), sum(s["correct"] for s in document["scores"])
    document["reasons"] = {"passed": correct, "wrong_answer": 8 * count - correct}
    document |= {"problems": count, "pass_at": {"1": correct / (8 * count)}}


def leave_out_a_problem(document: dict) -> None:
    document["scores"].pop()
    make_consistent(document)


def grade_more_than_sampled(document: dict) -> None:
    document["scores"][0] |= {"samples": 80, "correct": 0}
    make_consistent(document)


FORGERIES = [
    edit_fields("evaluation", pass_at__1=2.72),
    edit_fields("evaluation", pass_at__1=-0.1),
    edit_fields("evaluation", pass_at__1=math.nan),
    edit_fields("evaluation", pass_at__1=0.99),
    edit_fields("evaluation", pass_at__16=0.5),
    edit_fields("evaluation", scores=[]),
    edit_fields("evaluation", scores__0__id="p1"),
    edit_fields("evaluation", scores__0__correct=9),
    edit_fields("evaluation", scores__0__correct=-1),
    edit_fields("evaluation", scores__0__samples=80),
    edit_fields("evaluation", problems=5),
    edit_fields("evaluation", samples=4),
    edit_fields("evaluation", reasons={}),
    edit_fields("evaluation", reasons={"passed": 32}),
    edit_fields("evaluation", temperature=0.5),
    edit_fields("evaluation", seed=3),
    pytest.param("evaluation", leave_out_a_problem),
    pytest.param("evaluation", grade_more_than_sampled),
    edit_fields("summary", runtime__total=-1.0),
    edit_fields("summary", runtime__total=1e9),
    edit_fields("summary", runtime__total=math.nan),
    edit_fields("summary", runtime__sampling=-1.0),
    edit_fields("summary", reward_last=2.0),
    edit_fields("summary", clip_fraction=-0.5),
    edit_fields("summary", optimizer_steps=-1),
    edit_fields("summary", algorithm="pg"),
    pytest.param("summary", lambda document: document.pop("algorithm"), id="no algorithm"),
]
FORGED = pytest.mark.fault("results: file edited together with its manifest")


@FORGED
@pytest.mark.parametrize(("document_name", "change"), FORGERIES)
def test_an_inconsistent_result_is_not_reported(enter_copy, capsys, document_name, change):
    enter_copy()
    folder = "runs" if document_name == "summary" else "evaluations"
    path = Path(folder, RUN, f"{document_name}.json")
    forge_document(path, change)
    assert_refused(capsys, path)


@FORGED
def test_a_summary_that_differs_from_what_its_evaluation_read_is_not_reported(enter_copy, capsys):
    enter_copy()
    path = Path("runs", RUN, "summary.json")

    def double_runtime(document: dict) -> None:
        document["runtime"] = {name: 2 * value for name, value in document["runtime"].items()}

    forge_document(path, double_runtime, in_all_manifests=False)
    assert_refused(capsys, path)


# Inputs of jobs --------------------------------------------------------------------------------------


def list_jobs() -> list[tuple[list[Path], Callable]]:
    """Return jobs, each with the files that it reads and the function that runs it."""
    data, tokenizer, model, run = map(
        Path, ("data/math", "models/tokenizer", "models/tiny-qwen2", f"runs/{RUN}")
    )
    lessons, training, test = (data / f"{name}.jsonl" for name in ("pretrain", "train", "test"))
    plan, out = build_plan(load(make_pipeline_values())), Path("out")

    def make_job(function: Callable, folder: object, *inputs, reads: list[Path]):
        return reads, lambda: function(plan.get_job(str(folder)).spec, *inputs, out)

    def list_model_files(folder: Path) -> list[Path]:
        return [folder / name for name in MODEL_FILES]

    evaluation_inputs = [
        *list_model_files(run / "model"),
        run / "summary.json",
        run / "steps.jsonl",
    ]
    return [
        make_job(make_tokenizer, tokenizer, [data], reads=[lessons]),
        make_job(pretrain, model, [data], tokenizer, reads=[lessons, *list_model_files(tokenizer)]),
        make_job(
            distill, "distilled/math", model, training, reads=[training, *list_model_files(model)]
        ),
        make_job(train, run, model, training, reads=[training, *list_model_files(model)]),
        make_job(
            evaluate, f"evaluations/{RUN}", run / "model", test, reads=[test, *evaluation_inputs]
        ),
    ]


@pytest.mark.fault("workflow: input changed before its job", times=2 * TIMES)
def test_a_job_refuses_an_input_that_was_changed_after_it_was_written(enter_copy):
    for seed in range(2 * TIMES):
        enter_copy()
        rng = random.Random(seed)
        files, run_job = rng.choice(list_jobs())
        path = rng.choice(files)
        damage_file(path, rng.choice([*FILE_DAMAGES.values()]), rng)
        with pytest.raises(BadFile, match=rf"^{path}: .*Delete \S+{MANIFEST} and run snakemake"):
            run_job()
        assert not Path("out").exists()


@pytest.mark.fault("workflow: leftovers of an interrupted job", times=TIMES)
def test_leftovers_of_an_interrupted_job_are_removed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = PrepareSpec(benchmark="math", data_seed=0, train=4, test=4, demonstrations=4)
    names = ["train.jsonl", "test.jsonl", "pretrain.jsonl", MANIFEST]
    for seed in range(TIMES):
        rng, folder = random.Random(seed), Path(f"out{seed}")
        folder.mkdir()
        for name in rng.sample([*names, *(f".{name}.{rng.randrange(99999)}" for name in names)], 4):
            (folder / name).write_bytes(rng.randbytes(100))
        prepare(spec, folder)
        assert sorted(path.name for path in folder.iterdir()) == sorted(names)
        assert verify_inputs(folder) == Manifest.read(folder).outputs
