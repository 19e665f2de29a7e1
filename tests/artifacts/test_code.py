"""Digests of code: an edit changes the specs of exactly the jobs that depend on the edited file.

Tests edit a copy of the code. They say that an edit reaches a job if it changes the job's spec.
"""

import ast
import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rapid.artifacts import code
from rapid.config.jobs import list_jobs
from rapid.config.params import load
from tests.conftest import ROOT

REPORTS = {"reports", "reports/experiment"}
STAGES = ("distill", "train", "evaluate")


@pytest.fixture
def code_copy(tmp_path, monkeypatch) -> Iterator[Path]:
    """A copy of the code; digests are those of the copy."""
    for name in code.PACKAGES:
        left_out = shutil.ignore_patterns("__pycache__", "figures", "experiment", "studies")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=left_out)
    monkeypatch.setattr(code, "ROOT", tmp_path)
    clear_caches()
    yield tmp_path
    clear_caches()


def clear_caches() -> None:
    for cached in (code.hash_dependencies, code._list_folder_files, code._load_file):
        cached.cache_clear()


@pytest.fixture
def list_reached_jobs(code_copy, values) -> Callable:
    """Return a function that edits a file (`rewrite`) and returns the folders of jobs that it reaches."""

    def edit_file(path: str, *edit: str) -> set[str]:
        before = {job.folder: job.spec for job in list_jobs(load(values))}
        rewrite(code_copy / path, *edit)
        clear_caches()
        return {job.folder for job in list_jobs(load(values)) if job.spec != before[job.folder]}

    return edit_file


def rewrite(path: Path, old: str = "", new: str = "") -> None:
    """Replace the first `old` in a file by `new`; without arguments, append a line of code."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    text = text.replace(old, new, 1) if old else f"{text}\nMORE = 1\n"
    path.write_text(text, encoding="utf-8")


def list_dependent_jobs(values: dict, *parts: str, stages=STAGES) -> set[str]:
    """Return the folders of these stages' jobs that contain one of the names."""
    return {
        job.folder
        for job in list_jobs(load(values))
        if job.stage in stages and any(f"/{part}/" in f"{job.folder}/" for part in parts)
    }


@pytest.mark.parametrize("lesson", ["pretrain.txt.j2", "prompt.txt.j2"])
def test_an_edited_template_of_lessons_reaches_the_data_too(
    code_copy, values, monkeypatch, list_reached_jobs, lesson
):
    """A benchmark without a template of its own for lessons uses the one for prompts."""
    if lesson == "prompt.txt.j2":
        monkeypatch.setattr("rapid.benchmarks.base.PRETRAIN_PROMPT", "none.txt.j2")
    reached_jobs = list_reached_jobs(f"rapid/benchmarks/math/{lesson}", "Solution", "Answer")
    assert reached_jobs == list_dependent_jobs(values, "math") | {"data/math"} | REPORTS


def test_prose_and_code_that_decides_no_result_reach_no_job(code_copy, values):
    before = [job.spec for job in list_jobs(load(values))]
    rewrite(code_copy / "rapid/stages/train.py")
    # The digest is of the code that this process has read, so a later edit does not change it.
    assert [job.spec for job in list_jobs(load(values))] == before
    rewrite(code_copy / "rapid/stages/train.py", "\nMORE = 1\n")
    for path in [*code_copy.rglob("*.py"), *code_copy.rglob("*.txt.j2")]:
        add_prose(path)
    files_without_effect = "resources/leases cost/__init__ config/jobs artifacts/files cli __init__"
    for file in files_without_effect.split():
        rewrite(code_copy / f"rapid/{file}.py")
    clear_caches()
    assert [job.spec for job in list_jobs(load(values))] == before


def test_digest_is_the_same_in_all_python_versions():
    """Versions differ in the quotes and empty parts of f-strings, and add fields to syntax trees."""
    source = '''def f(a, b=1, *, c: int = 2):
    """Doc."""
    return f"{a['x']!r:>{b}} {a=} {'.' * 5}" "tail\\u0378" + u"x" + str(...)
'''
    digest = hashlib.sha256(code._dump_without_prose(ast.parse(source)).encode()).hexdigest()
    assert digest == "011a5eef81dfd85d5a98715dfbbd49561528548e75073e3812ec5795f53e1016"


def test_labels_and_descriptions_of_declarations_are_prose():
    for call in ('Field(None, description="words")', 'Metric(label="words", unit="words")'):
        assert "words" not in code._dump_without_prose(ast.parse(call))
    for call, is_hashed in (('Field(description="words")', False), ('Field(title="words")', True)):
        tree = ast.parse(call)
        assert ("words" in code._dump_without_prose(tree, for_reports=True)) == is_hashed
    assert "words" in code._dump_without_prose(ast.parse('ask(description="words")'))


def add_prose(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".j2":
        text = "{# Prose. #}\n" + text
    else:
        text = text.replace('"""', '"""Prose. ', 1).replace("\n\n\n", "\n\n# Prose.\n\n")
        text = text.replace('description="', 'description="Prose. ') + "\n# Prose.\n"
    path.write_text(text, encoding="utf-8")


def algorithm_file(name: str) -> str:
    return f"rapid/algorithms/{name}.py"


ALL_RAPID = ("rapid-H2", "rapid-H4", "rapid-H8", "rapid-H16")
SHARED = ("grpo", "naive-grpo", "pg", "dapo")
# An edit, the algorithms or benchmarks that it reaches, stages of their jobs, and other jobs.
EDITS = [
    (("rapid/benchmarks/math/prompt.txt.j2", "Solution", "Answer"), ("math",), STAGES, REPORTS),
    (("rapid/grading/lean/Checker.lean",), ("minif2f",), STAGES, set()),
    ((algorithm_file("dapo"),), ("dapo",), ("train",), REPORTS),
    ((algorithm_file("grpo"),), ("grpo", "naive-grpo"), ("train",), REPORTS),
    ((algorithm_file("rapid"),), ALL_RAPID, ("train",), REPORTS),
    ((algorithm_file("sft"),), ("sft",), ("train",), REPORTS),
    ((algorithm_file("ratios"),), SHARED, ("train",), set()),
    (("reports/plots/__init__.py",), (), (), REPORTS),
    ((algorithm_file("dapo"), 'label = "DAPO"', 'label = "Dapo"'), (), (), REPORTS),
    (
        (
            algorithm_file("dapo"),
            'plot_style = PlotStyle("#CC79A7"',
            'plot_style = PlotStyle("#000000"',
        ),
        (),
        (),
        REPORTS,
    ),
    (("rapid/benchmarks/math/__init__.py", 'label = "MATH"', 'label = "Math"'), (), (), REPORTS),
    ((algorithm_file("dapo"), 'title="clip below"', 'title="lower clip"'), (), (), REPORTS),
    (("rapid/artifacts/metrics.py", 'unit="share"', 'unit="percent"'), (), (), REPORTS),
    (("rapid/artifacts/metrics.py", 'label="Stale"', 'label="Age"'), (), (), REPORTS),
    (("rapid/artifacts/metrics.py", 'better="higher"', 'better="lower"'), (), (), REPORTS),
]


@pytest.mark.parametrize(("edit", "names", "stages", "other_jobs"), EDITS)
def test_edit_reaches_the_jobs_that_depend_on_it(
    list_reached_jobs, values, edit, names, stages, other_jobs
):
    assert (
        list_reached_jobs(*edit) == list_dependent_jobs(values, *names, stages=stages) | other_jobs
    )


@pytest.mark.parametrize("path", ["workflow/accelerate/zero2.yaml", "rapid/processes/launch.py"])
@pytest.mark.parametrize("processes", [1, 2])
def test_launcher_reaches_runs_with_several_processes(
    code_copy, list_reached_jobs, values, path, processes
):
    shutil.copytree(ROOT / "workflow", code_copy / "workflow")
    values["compute"]["processes"] = processes
    reached_jobs = list_reached_jobs(path)
    assert bool(reached_jobs) == (processes > 1)
    assert all(folder.startswith("runs/") for folder in reached_jobs)


def test_new_plug_in_reaches_no_job(code_copy, list_reached_jobs):
    (code_copy / "rapid/algorithms/rloo.py").write_text("class Rloo: ...\n")
    line = "from rapid.algorithms.rloo import Rloo\n"
    registry = "from rapid.algorithms.sft import Sft\n"
    assert not list_reached_jobs("rapid/algorithms/__init__.py", registry, registry + line)


@pytest.mark.parametrize("line", ["from .ratios import clipped", "from . import ratios"])
def test_relative_imports_are_followed(code_copy, line):
    rewrite(
        code_copy / "rapid/algorithms/pg.py",
        "from rapid.algorithms.ratios import completion_log_weights",
        line,
    )
    assert "rapid/algorithms/ratios.py" in code.hash_dependencies("rapid.algorithms.pg")


def test_all_files_in_the_folder_of_a_plug_in_are_hashed_except_caches_and_backups(code_copy):
    folder = code_copy / "rapid/benchmarks/math"
    (folder / "__pycache__").mkdir()
    for name in ("examples.json", "made.py~", ".made.py.swp", "__pycache__/made.cpython-311.pyc"):
        (folder / name).write_text("{}")
    (folder / ".#made.py").symlink_to("somebody@somewhere")  # as Emacs locks a file
    files = code.hash_dependencies("rapid.benchmarks.math")
    assert "rapid/benchmarks/math/examples.json" in files
    assert not any("~" in file or "/." in file or "pycache" in file for file in files)


def test_the_packages_that_jobs_hash_are_those_that_decide_results(values):
    """If a job imports another package, this test fails, so that someone decides whether to exclude it."""
    code_files = {file for job in list_jobs(load(values)) for file in job.spec.hash_code_files()}
    packages = {"/".join(file.split("/")[:2]) for file in code_files if file.startswith("rapid/")}
    deciding = {"algorithms", "artifacts", "benchmarks", "embedded_models", "grading", "stages"}
    deciding |= {"training", "sampling.py", "text.py"}
    assert packages == {f"rapid/{name}" for name in deciding}
