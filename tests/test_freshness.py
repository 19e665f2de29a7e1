"""Jobs are up to date by content, and not by the times of files."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import Field

from rapid.artifacts.manifests import hash_files, write_manifest
from rapid.config.specs import TokenizerSpec
from rapid.freshness import (
    SMALL_FILE,
    Examination,
    Job,
    accept_code_changes,
    discard_checkpoints_of_ended_runs,
    discard_stale_manifests,
    discard_unavailable,
    examine_jobs,
    list_differences,
    print_changed_code,
)


def build_spec(vocabulary: int = 300) -> TokenizerSpec:
    return TokenizerSpec(benchmarks=["math"], vocabulary=vocabulary)


def write_job(job: Job, *inputs: str, text: str = "", second_output: str = "out") -> None:
    """Write a job's file `out`, and maybe another one, and its manifest."""
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / name for name in dict.fromkeys(("out", second_output))]
    for path in written:
        path.write_text(text or job.folder)
    read = dict.fromkeys(inputs, "") | hash_files(*map(Path, inputs))
    write_manifest(folder, job.stage, job.spec, read, written)


@pytest.fixture
def jobs(tmp_path, monkeypatch) -> list[Job]:
    """Three jobs, each of which reads the output of the one before it, and a report.

    The first job reads a file of the user's. The report also reads a file that the third job may
    write and one that a user may add; neither is there.
    """
    monkeypatch.chdir(tmp_path)
    Path("source").write_text("source")
    data = Job("prepare", "a", build_spec())
    model = Job("pretrain", "b", build_spec(), inputs=(data,))
    run, report = (
        Job("train", "c/d", build_spec(), inputs=(model,)),
        Job("report", "reports", build_spec()),
    )
    write_job(data, "source")
    write_job(model, "a/out")
    write_job(run, "b/out")
    write_job(report, "b/out", "c/d/later", "notes")
    return [data, model, run, report]


def list_folders(jobs: list[Job]) -> list[str]:
    return [job.folder for job in jobs]


def write_file(name: str, size: int = 0):
    return lambda jobs: Path(name).write_bytes(b"x" * size or b"other") and None


def delete_file(name: str):
    return lambda jobs: Path(name).unlink()


def set_times(seconds: float):
    return lambda jobs: [os.utime(path, (seconds, seconds)) for path in Path().rglob("*")] and None


def change_a_byte(jobs):
    """The file has the same size and time."""
    before = os.stat("a/out")
    Path("a/out").write_text("A")
    os.utime("a/out", ns=(before.st_atime_ns, before.st_mtime_ns))


def change_another_output(jobs):
    write_job(jobs[0], "source", second_output="other")
    Path("a/other").write_text("changed")


def delete_a_declared_output(jobs):
    write_job(jobs[2], "b/out", second_output="summary.json")
    Path("c/d/summary.json").unlink()


def add_a_source(jobs):
    Path("added").write_text("added")
    return [replace(jobs[0], sources=["source", "added"]), *jobs[1:]]


WROTE, READ, DEPENDS = (
    "its output has changed: ", "its input has changed: ", "its input is not up to date: ",
)  # fmt: skip
AFTER_B = {"c/d": f"{DEPENDS}b/out", "reports": f"{DEPENDS}b/out"}
AFTER_A = {"b": f"{DEPENDS}a/out"} | AFTER_B
OTHER_PARAMETERS = "made with other parameters: vocabulary: 300 is now 301"
# A change, which may return other jobs; whether large files are compared; which jobs are stale.
CHANGES = [
    (lambda jobs: None, True, {}),
    (change_a_byte, True, {"a": f"{WROTE}a/out"} | AFTER_A),
    (change_another_output, True, {"a": f"{WROTE}a/other"}),
    (write_file("source"), False, {"a": f"{READ}source"} | AFTER_A),
    (write_file("a/out", SMALL_FILE), False, {"a": f"{WROTE}a/out"} | AFTER_A),
    (write_file("a/out", SMALL_FILE + 1), False, {}),
    (lambda jobs: [jobs[0], Job("pretrain", "b", build_spec(301)), *jobs[2:]], True, {"b": OTHER_PARAMETERS} | AFTER_B),
    (lambda jobs: write_job(jobs[0], "source", text="new"), True, {"b": f"{READ}a/out"} | AFTER_B),
    (delete_file("b/out"), True, {"b": f"{WROTE}b/out"} | AFTER_B),
    (delete_file("b/out"), False, {}),  # models are deleted to make room
    (delete_a_declared_output, False, {"c/d": f"{WROTE}c/d/summary.json", "reports": f"{DEPENDS}c/d/later"}),
    (add_a_source, True, {"a": f"{READ}added"} | AFTER_A),
    (delete_file("b/manifest.json"), True, AFTER_B),
    (delete_file("c/d/manifest.json"), True, {"reports": f"{DEPENDS}c/d/later"}),
    (set_times(1e9), True, {}),
    (set_times(4e9), True, {}),
    (lambda jobs: write_job(jobs[2], "b/out", second_output="later"), True, {"reports": f"{READ}c/d/later"}),
    (write_file("c/d/later"), True, {"reports": f"{READ}c/d/later"}),
    (write_file("notes"), True, {"reports": f"{READ}notes"}),
]  # fmt: skip


@pytest.mark.parametrize(("change", "hashed", "stale"), CHANGES)
def test_a_change_makes_its_job_and_those_after_it_stale(jobs, change, hashed, stale):
    changed_jobs = change(jobs) or jobs
    findings = examine_jobs(changed_jobs, hashed=hashed)
    assert {job.folder: reason for job, reason in findings.stale.items()} == stale
    missing = {job.folder for job in jobs if not Path(job.manifest).exists()}
    assert {*list_folders(findings.missing)} == missing
    assert {*list_folders(findings.current)} == {*list_folders(jobs)} - missing - stale.keys()


def test_findings_are_described(jobs):
    Path("a/out").write_text("A")
    findings = examine_jobs([*jobs[:3], Job("prepare", "nowhere", build_spec())])
    assert list(findings.changed) == ["a/out"]
    assert findings.describe().splitlines() == [
        "a/out is not what a wrote",
        f"stale: a: {WROTE}a/out",
        f"stale: b: {DEPENDS}a/out",
        f"stale: c/d: {DEPENDS}b/out",
        "not made: nowhere",
        "0 of 4 jobs are up to date",
    ]


def test_a_job_outside_a_plan_is_examined_after_those_that_it_reads(jobs):
    Path("a/out").write_text("A")
    examination = Examination(hashed=False)
    assert examination.explain(jobs[2]) == f"{DEPENDS}b/out"
    assert list_folders(examination.findings.stale) == ["a", "b", "c/d"]


@pytest.mark.parametrize(("hours", "is_stale"), [(-1, False), (1, True)])
def test_a_large_source_is_read_if_it_is_later_than_the_manifest(jobs, hours, is_stale):
    large = b"x" * (SMALL_FILE + 1)
    Path("source").write_bytes(large)
    write_job(jobs[0], "source")
    Path("source").write_bytes(large[::-1] + b"y")
    time = os.path.getmtime("a/manifest.json") + 3600 * hours
    os.utime("source", (time, time))
    assert bool(examine_jobs(jobs[:1], hashed=False).stale) is is_stale
    assert examine_jobs(jobs[:1]).stale


def test_reconciling_deletes_the_manifests_of_stale_jobs_and_nothing_else(jobs):
    Path("b/out").write_text("B")
    os.utime("a/out", (4e9, 4e9))
    discard_stale_manifests(examine_jobs(jobs))
    assert [Path(job.manifest).exists() for job in jobs] == [True, False, False, False]
    assert Path("b/out").exists() and os.stat("a/out").st_mtime == 4e9


def test_an_output_of_a_later_job_counts_like_a_users_file(jobs):
    """A published model's source may be the model of a run."""
    fetched = Job("pretrain", "fetched", build_spec())
    write_job(fetched, "c/d/out")
    assert fetched in examine_jobs([fetched, *jobs]).current
    Path("c/d/out").write_text("another")
    assert examine_jobs([fetched, *jobs]).stale[fetched] == f"{READ}c/d/out"


def test_an_unavailable_job_is_planned_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = ["runs/a/b", "experiments/one/evaluations/c", "runs/done", "elsewhere/runs/d"]
    for folder in map(Path, folders):
        folder.mkdir(parents=True)
        (folder / "out").touch()
        why = "" if folder.name == "done" else "no Lean"
        write_manifest(folder, "train", build_spec(), {}, [folder / "out"], unavailable=why)
    assert sorted(discard_unavailable()) == sorted(folders[:2])
    assert [Path(folder, "manifest.json").exists() for folder in folders] == [
        False,
        False,
        True,
        True,
    ]


class TestCode:
    """The first two jobs depend on one file of code each, the third on none."""

    @pytest.fixture
    def planned(self, jobs) -> Callable:
        """Return a function that plans the jobs with given texts of code; by default 1 and 2."""

        def plan(first: str = "1", **second: str) -> list[Job]:
            second_files = {f"{name}.py": text for name, text in second.items()}
            files = {"one.py": first}, {"two.py": "2"} | second_files
            specs = [
                SpecWithCode(**build_spec().model_dump(), present=f).with_code() for f in files
            ]
            pairs = zip(jobs[:2], specs, strict=True)
            return [*(Job(job.rule, job.folder, spec) for job, spec in pairs), jobs[2]]

        for job, read in zip(plan()[:2], ("source", "a/out"), strict=True):
            write_job(job, read)
        return plan

    def test_changed_code_is_named_and_reaches_what_read_its_results(self, planned, capsys):
        jobs = planned(two="X", new="3")
        stale = {jobs[1]: "made with other code: new.py, two.py", jobs[2]: f"{DEPENDS}b/out"}
        assert examine_jobs(jobs).stale == stale
        print_changed_code(planned("X"))
        assert "one.py (used by 1 job" in capsys.readouterr().err

    def test_a_manifest_without_code_is_stale(self, planned):
        manifest = json.loads(Path("a/manifest.json").read_text())
        del manifest["spec"]["code"], manifest["code"]
        Path("a/manifest.json").write_text(json.dumps(manifest))
        jobs = planned()
        assert "other code: files that its manifest" in examine_jobs(jobs).stale[jobs[0]]

    def test_accepted_code_is_current_and_the_manifest_says_since_when(self, planned):
        jobs = planned("X")
        accepted, findings = accept_code_changes(jobs)
        assert list_folders(accepted) == ["a", "b", "c/d"] == list_folders(findings.current)
        assert not examine_jobs(jobs).stale
        accept_code_changes(planned("Y"))
        first, second = json.loads(Path("a/manifest.json").read_text())["accepted"]
        assert first["was"] == {"one.py": "1"} and second["was"] == {"one.py": "X"}
        assert first["at"]
        assert "accepted" not in json.loads(Path("b/manifest.json").read_text())

    def test_reports_of_accepted_results_are_made_again(self, planned):
        jobs = planned("X")
        report = replace(jobs[-1], rule="report", folder="reports", inputs=(jobs[-1],))
        write_job(report, "c/d/out")
        _, findings = accept_code_changes([*jobs, report])
        assert list_folders(findings.current) == ["a", "b", "c/d"]
        assert not Path(report.manifest).exists()
        write_job(report, "c/d/out")
        assert accept_code_changes([*jobs, report])[0] == [] and Path(report.manifest).exists()

    def test_a_current_job_is_not_accepted(self, planned):
        before = Path("a/manifest.json").read_bytes()
        accepted, findings = accept_code_changes(planned())
        assert accepted == [] and list_folders(findings.current) == ["a", "b", "c/d"]
        assert Path("a/manifest.json").read_bytes() == before

    def test_other_parameters_are_not_accepted(self, planned):
        jobs = planned("X")
        jobs[1] = Job("pretrain", "b", jobs[1].spec.model_copy(update={"vocabulary": 301}))
        accepted, findings = accept_code_changes(jobs)
        assert list_folders(accepted) == ["a"]
        assert list_folders(findings.stale) == ["b", "c/d"]

    def test_a_changed_file_is_not_accepted(self, planned):
        Path("a/out").write_text("A")
        accepted, findings = accept_code_changes(planned("X"))
        assert not accepted and list(findings.changed) == ["a/out"]


class SpecWithCode(TokenizerSpec):
    """A spec with the code that a test sets."""

    present: dict[str, str] = Field(exclude=True)

    def hash_code_files(self) -> dict[str, str]:
        return self.present


@pytest.mark.parametrize(
    "before, now, expected",
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ["a.b: 1 is now 2"]),
        ({"a": 1}, {}, ["a: 1 is now None"]),
        ({}, {"b": [1]}, ["b: None is now [1]"]),
        ("unreadable", {"a": 1}, [": 'unreadable' is now {'a': 1}"]),
    ],
)
def test_differences(before, now, expected):
    assert list_differences(before, now) == expected


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
