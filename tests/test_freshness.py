"""Which jobs are up to date, by content and not by the times of files."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import Field

from rapid.artifacts.manifests import digests, write_manifest
from rapid.config.specs import TokenizerSpec
from rapid.freshness import (
    SMALL,
    Examination,
    Job,
    accept,
    differences,
    discard_checkpoints_of_ended_runs,
    discard_unavailable,
    examine,
    reconcile,
    say_changed_code,
)


def spec(vocabulary: int = 300) -> TokenizerSpec:
    return TokenizerSpec(benchmarks=["math"], vocabulary=vocabulary)


def make(job: Job, *inputs: str, text: str = "", more: str = "out") -> None:
    """Write a job's file `out`, and maybe another one, and its manifest."""
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / name for name in dict.fromkeys(("out", more))]
    for path in written:
        path.write_text(text or job.folder)
    read = dict.fromkeys(inputs, "") | digests(*map(Path, inputs))
    write_manifest(folder, job.stage, job.spec, read, written)


@pytest.fixture
def line(tmp_path, monkeypatch) -> list[Job]:
    """Three jobs: each reads what the one before it wrote, the first a file of the user's."""
    monkeypatch.chdir(tmp_path)
    Path("source").write_text("source")
    data = Job("prepare", "a", spec())
    model = Job("pretrain", "b", spec(), inputs=(data,))
    made = [data, model, Job("train", "c/d", spec(), inputs=(model,))]
    for job, read in zip(made, ("source", "a/out", "b/out"), strict=True):
        make(job, read)
    return made


def folders(found: list[Job]) -> list[str]:
    return [job.folder for job in found]


def test_what_was_made_is_up_to_date_and_what_was_not_is_no_error(line):
    found = examine([*line, nowhere := Job("prepare", "nowhere", spec())])
    assert folders(found.current) == ["a", "b", "c/d"]
    assert not found.stale and not found.changed and found.missing == [nowhere]
    assert found.describe() == "not made: nowhere\n3 of 4 jobs are up to date"


def test_a_changed_byte_is_named_with_all_that_it_makes_stale(line):
    """Though the file has the same size and time."""
    before = os.stat("a/out")
    Path("a/out").write_text("A")
    os.utime("a/out", ns=(before.st_atime_ns, before.st_mtime_ns))
    found = examine(line)
    assert list(found.changed) == ["a/out"]
    assert folders(found.stale) == ["a", "b", "c/d"]
    assert "a/out is not what a wrote" in found.describe()
    assert "stale: c/d: what it read is not up to date: b/out" in found.describe()


def test_what_another_file_of_the_same_job_went_into_is_not_stale(line):
    make(line[0], "source", more="other")
    Path("a/other").write_text("changed")
    found = examine(line)
    assert folders(found.stale) == ["a"]
    assert folders(found.current) == ["b", "c/d"]


def test_what_no_job_wrote_is_compared_too(line):
    Path("source").write_text("other")
    found = examine(line, hashed=False)
    assert found.stale[line[0]] == "what it read has changed: source"


def test_another_parameter_makes_the_job_and_those_after_it_stale(line):
    changed = [line[0], Job("pretrain", "b", spec(301)), line[2]]
    found = examine(changed)
    assert folders(found.stale) == ["b", "c/d"]
    assert found.stale[changed[1]] == "made with other parameters: vocabulary: 300 is now 301"


def test_a_job_that_was_made_again_makes_those_after_it_stale(line):
    make(line[0], "source", text="new")
    found = examine(line)
    assert folders(found.current) == ["a"]
    assert found.stale[line[1]] == "what it read has changed: a/out"


def test_a_file_that_is_gone_is_noticed(line):
    Path("b/out").unlink()
    assert folders(examine(line).stale) == ["b", "c/d"]


def test_a_model_that_was_deleted_to_make_room_makes_nothing_stale_before_it_is_read(line):
    Path("b/out").unlink()
    assert folders(examine(line, hashed=False).current) == ["a", "b", "c/d"]


def test_a_file_that_reports_read_has_to_be_there(line):
    make(line[2], "b/out", more="summary.json")
    assert not examine(line, hashed=False).stale
    Path("c/d/summary.json").unlink()
    why = examine(line, hashed=False).stale[line[2]]
    assert why == "what it wrote has changed: c/d/summary.json"


def test_a_job_outside_a_plan_is_examined_after_those_that_it_reads(line):
    Path("a/out").write_text("A")
    examination = Examination(hashed=False)
    assert examination.explain(line[2]) == "what it read is not up to date: b/out"
    assert folders(examination.findings.stale) == ["a", "b", "c/d"]


def test_a_file_that_was_put_into_a_source_makes_its_job_stale(line):
    Path("added").write_text("added")
    job = replace(line[0], sources=["source", "added"])
    assert examine([job]).stale[job] == "what it read has changed: added"


@pytest.mark.parametrize(("hours", "is_noticed"), [(-1, False), (1, True)])
def test_a_large_source_is_read_where_it_is_later_than_the_manifest(line, hours, is_noticed):
    large = b"x" * (SMALL + 1)
    Path("source").write_bytes(large)
    make(line[0], "source")
    Path("source").write_bytes(large[::-1] + b"y")
    time = os.path.getmtime("a/manifest.json") + 3600 * hours
    os.utime("source", (time, time))
    assert bool(examine(line[:1], hashed=False).stale) is is_noticed
    assert examine(line[:1]).stale


def test_a_job_without_a_manifest_is_not_made(line):
    Path("b/manifest.json").unlink()
    found = examine(line)
    assert folders(found.missing) == ["b"]
    assert folders(found.stale) == ["c/d"]


@pytest.mark.parametrize("seconds", [1e9, 4e9])
def test_the_times_of_files_say_nothing_and_stay(line, seconds):
    for path in Path().rglob("*"):
        os.utime(path, (seconds, seconds))
    assert not examine(line).stale
    reconcile(examine(line))
    assert {path.stat().st_mtime for path in Path().rglob("*")} == {seconds}


@pytest.mark.parametrize(("size", "found"), [(SMALL, ["a/out"]), (SMALL + 1, [])])
def test_small_files_are_always_compared(line, size, found):
    Path("a/out").write_bytes(b"x" * size)
    assert list(examine(line, hashed=False).changed) == found


def test_reconciling_deletes_the_manifests_of_stale_jobs_and_nothing_else(line):
    Path("b/out").write_text("B")
    reconcile(examine(line))
    assert Path("a/manifest.json").exists() and Path("b/out").exists()
    assert not Path("b/manifest.json").exists() and not Path("c/d/manifest.json").exists()


@pytest.fixture
def report(line) -> Job:
    """A report that also reads what a job may write, and what a user may, when neither did."""
    report = Job("report", "reports", spec())
    make(report, "b/out", "c/d/later", "notes")
    return report


def test_what_a_finished_job_never_writes_makes_nothing_stale(line, report):
    assert report in examine([*line, report]).current


def test_what_was_made_without_an_input_is_stale_once_its_job_wrote_it(line, report):
    make(line[2], "b/out", more="later")
    found = examine([*line, report])
    assert found.stale[report] == "what it read has changed: c/d/later"


@pytest.mark.parametrize("path", ["c/d/later", "notes"])
def test_what_was_made_without_a_file_is_stale_once_it_is_there(line, report, path):
    Path(path).write_text("somebody's")
    assert examine([*line, report]).stale[report] == f"what it read has changed: {path}"


def test_what_a_later_job_wrote_is_as_good_as_a_users_file(line):
    """A published model's source may be the model of a run."""
    fetched = Job("pretrain", "fetched", spec())
    make(fetched, "c/d/out")
    assert fetched in examine([fetched, *line]).current
    Path("c/d/out").write_text("another")
    assert examine([fetched, *line]).stale[fetched] == "what it read has changed: c/d/out"


def test_what_could_not_be_done_is_planned_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = ["runs/a/b", "experiments/one/evaluations/c", "runs/done", "elsewhere/runs/d"]
    for folder in map(Path, folders):
        folder.mkdir(parents=True)
        (folder / "out").touch()
        why = "" if folder.name == "done" else "no Lean"
        write_manifest(folder, "train", spec(), {}, [folder / "out"], unavailable=why)
    assert sorted(discard_unavailable()) == sorted(folders[:2])
    assert [Path(one, "manifest.json").exists() for one in folders] == [False, False, True, True]


def test_what_was_made_without_an_input_is_stale_while_its_job_is_not_up_to_date(line, report):
    Path("c/d/manifest.json").unlink()
    found = examine([*line, report])
    assert found.stale[report] == "what it read is not up to date: c/d/later"


class TestCode:
    """The first two jobs depend on one file of code each, the third on none."""

    @pytest.fixture
    def planned(self, line) -> Callable:
        """Return a function of the jobs' files of code; at first they are 1 and 2."""

        def plan(one: str = "1", **two: str) -> list[Job]:
            files = {"one.py": one}, {"two.py": "2"} | {f"{n}.py": text for n, text in two.items()}
            specs = [Coded(**spec().model_dump(), present=each).with_code() for each in files]
            pairs = zip(line[:2], specs, strict=True)
            return [*(Job(job.rule, job.folder, spec) for job, spec in pairs), line[2]]

        for job, read in zip(plan()[:2], ("source", "a/out"), strict=True):
            make(job, read)
        return plan

    def test_changed_code_is_named_and_reaches_what_read_its_results(self, planned):
        jobs = planned(two="X", new="3")
        found = examine(jobs)
        assert found.stale == {
            jobs[1]: "made with other code: new.py, two.py",
            jobs[2]: "what it read is not up to date: b/out",
        }

    def test_changed_code_is_said_with_the_number_of_its_jobs(self, planned, capsys):
        say_changed_code(planned("X"))
        assert "one.py (own code of 1 job" in capsys.readouterr().err

    def test_a_manifest_from_before_code_was_noted_is_stale(self, planned):
        manifest = json.loads(Path("a/manifest.json").read_text())
        del manifest["spec"]["code"], manifest["code"]
        Path("a/manifest.json").write_text(json.dumps(manifest))
        jobs = planned()
        assert "other code: code that its manifest" in examine(jobs).stale[jobs[0]]

    def test_accepted_code_is_current_and_the_manifest_says_since_when(self, planned):
        jobs = planned("X")
        accepted, found = accept(jobs)
        assert folders(accepted) == ["a", "b", "c/d"] == folders(found.current)
        assert not examine(jobs).stale
        accept(planned("Y"))
        first, second = json.loads(Path("a/manifest.json").read_text())["accepted"]
        assert first["was"] == {"one.py": "1"} and second["was"] == {"one.py": "X"}
        assert first["at"]
        assert "accepted" not in json.loads(Path("b/manifest.json").read_text())

    def test_reports_of_accepted_results_are_made_again(self, planned):
        jobs = planned("X")
        report = replace(jobs[-1], rule="report", folder="reports", inputs=(jobs[-1],))
        make(report, "c/d/out")
        _, found = accept([*jobs, report])
        assert folders(found.current) == ["a", "b", "c/d"]
        assert not Path(report.manifest).exists()
        make(report, "c/d/out")
        assert accept([*jobs, report])[0] == [] and Path(report.manifest).exists()

    def test_what_is_up_to_date_is_not_accepted(self, planned):
        before = Path("a/manifest.json").read_bytes()
        accepted, found = accept(planned())
        assert accepted == [] and folders(found.current) == ["a", "b", "c/d"]
        assert Path("a/manifest.json").read_bytes() == before

    def test_other_parameters_are_not_accepted(self, planned):
        jobs = planned("X")
        jobs[1] = Job("pretrain", "b", jobs[1].spec.model_copy(update={"vocabulary": 301}))
        accepted, found = accept(jobs)
        assert folders(accepted) == ["a"]
        assert folders(found.stale) == ["b", "c/d"]

    def test_a_changed_file_is_not_accepted(self, planned):
        Path("a/out").write_text("A")
        accepted, found = accept(planned("X"))
        assert not accepted and list(found.changed) == ["a/out"]


class Coded(TokenizerSpec):
    """A spec whose code is what the test says."""

    present: dict[str, str] = Field(exclude=True)

    def files(self) -> dict[str, str]:
        return self.present


@pytest.mark.parametrize(
    "one, other, expected",
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ["a.b: 1 is now 2"]),
        ({"a": 1}, {}, ["a: 1 is now None"]),
        ({}, {"b": [1]}, ["b: None is now [1]"]),
        ("unreadable", {"a": 1}, [": 'unreadable' is now {'a': 1}"]),
    ],
)
def test_differences(one, other, expected):
    assert differences(one, other) == expected


def test_checkpoints_of_ended_runs_are_deleted_and_no_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [
        Path(f"{root}runs/math/m/pg/seed{seed}")
        for root in ("", "experiments/a/")
        for seed in (1, 2)
    ]
    for run in runs:
        (run / "checkpoints/checkpoint-5").mkdir(parents=True)
    for ended in runs[::2]:
        (ended / "manifest.json").touch()
    discard_checkpoints_of_ended_runs()
    assert [(run / "checkpoints").exists() for run in runs] == [False, True, False, True]
