"""The content of files, and not their times, decides which jobs are up to date."""

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
    discard_unavailable_manifests,
    examine_jobs,
    list_differences,
    print_changed_code,
)


def build_spec(vocabulary: int = 300) -> TokenizerSpec:
    return TokenizerSpec(benchmarks=["math"], vocabulary=vocabulary)


def write_job(job: Job, *inputs: str, text: str = "", second_output: str = "out") -> None:
    """Write a job's file `out`, a second output if it has another name, and the manifest."""
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in dict.fromkeys(("out", second_output))]
    for path in paths:
        path.write_text(text or job.folder)
    input_digests = dict.fromkeys(inputs, "") | hash_files(*map(Path, inputs))
    write_manifest(folder, job.stage, job.spec, input_digests, paths)


@pytest.fixture
def jobs(tmp_path, monkeypatch) -> list[Job]:
    """Three jobs, each of which reads the output of the one before it, and a report.

    The first job reads a user's file. The report also reads two files that do not exist: one that
    the third job may write, and one that a user may add.
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
    """Change a byte of a file, and keep the file's size and time."""
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


OUTPUT_CHANGED, INPUT_CHANGED, INPUT_STALE = (
    "its output has changed: ", "its input has changed: ", "its input is not up to date: ",
)  # fmt: skip
STALE_AFTER_B = {"c/d": f"{INPUT_STALE}b/out", "reports": f"{INPUT_STALE}b/out"}
STALE_AFTER_A = {"b": f"{INPUT_STALE}a/out"} | STALE_AFTER_B
OTHER_PARAMETERS = "made with other parameters: vocabulary: 300 is now 301"
# A change, which may return other jobs; whether large files are compared; and the stale jobs with
# their reasons.
CHANGES = [
    (lambda jobs: None, True, {}),
    (change_a_byte, True, {"a": f"{OUTPUT_CHANGED}a/out"} | STALE_AFTER_A),
    (change_another_output, True, {"a": f"{OUTPUT_CHANGED}a/other"}),
    (write_file("source"), False, {"a": f"{INPUT_CHANGED}source"} | STALE_AFTER_A),
    (write_file("a/out", SMALL_FILE), False, {"a": f"{OUTPUT_CHANGED}a/out"} | STALE_AFTER_A),
    (write_file("a/out", SMALL_FILE + 1), False, {}),
    (lambda jobs: [jobs[0], Job("pretrain", "b", build_spec(301)), *jobs[2:]], True, {"b": OTHER_PARAMETERS} | STALE_AFTER_B),
    (lambda jobs: write_job(jobs[0], "source", text="new"), True, {"b": f"{INPUT_CHANGED}a/out"} | STALE_AFTER_B),
    (delete_file("b/out"), True, {"b": f"{OUTPUT_CHANGED}b/out"} | STALE_AFTER_B),
    (delete_file("b/out"), False, {}),  # users may delete models to free disk space
    (delete_a_declared_output, False, {"c/d": f"{OUTPUT_CHANGED}c/d/summary.json", "reports": f"{INPUT_STALE}c/d/later"}),
    (add_a_source, True, {"a": f"{INPUT_CHANGED}added"} | STALE_AFTER_A),
    (delete_file("b/manifest.json"), True, STALE_AFTER_B),
    (delete_file("c/d/manifest.json"), True, {"reports": f"{INPUT_STALE}c/d/later"}),
    (set_times(1e9), True, {}),
    (set_times(4e9), True, {}),
    (lambda jobs: write_job(jobs[2], "b/out", second_output="later"), True, {"reports": f"{INPUT_CHANGED}c/d/later"}),
    (write_file("c/d/later"), True, {"reports": f"{INPUT_CHANGED}c/d/later"}),
    (write_file("notes"), True, {"reports": f"{INPUT_CHANGED}notes"}),
]  # fmt: skip


@pytest.mark.parametrize(("change", "hash_all", "stale"), CHANGES)
def test_a_change_makes_its_job_and_the_jobs_after_it_stale(jobs, change, hash_all, stale):
    changed_jobs = change(jobs) or jobs
    findings = examine_jobs(changed_jobs, hash_all=hash_all)
    assert {job.folder: reason for job, reason in findings.stale.items()} == stale
    missing = {job.folder for job in jobs if not Path(job.manifest).exists()}
    assert {*list_folders(findings.missing)} == missing
    assert {*list_folders(findings.current)} == {*list_folders(jobs)} - missing - stale.keys()


def test_findings_are_described_in_lines(jobs):
    Path("a/out").write_text("A")
    findings = examine_jobs([*jobs[:3], Job("prepare", "nowhere", build_spec())])
    assert list(findings.changed) == ["a/out"]
    assert findings.describe().splitlines() == [
        "a/out is not what a wrote",
        f"stale: a: {OUTPUT_CHANGED}a/out",
        f"stale: b: {INPUT_STALE}a/out",
        f"stale: c/d: {INPUT_STALE}b/out",
        "not run: nowhere",
        "0 of 4 jobs are up to date",
    ]


def test_a_job_outside_a_plan_is_examined_after_those_that_it_reads(jobs):
    Path("a/out").write_text("A")
    examination = Examination(hash_all=False)
    assert examination.explain(jobs[2]) == f"{INPUT_STALE}b/out"
    assert list_folders(examination.findings.stale) == ["a", "b", "c/d"]


def replace_by_an_older_file(path: Path) -> None:
    """Put a file of the same size in the place of another, as `rsync -a` does."""
    other = path.with_name("other")
    other.write_bytes(path.read_bytes()[::-1])
    os.utime(other, (1e9, 1e9))
    other.replace(path)


def point_a_link_elsewhere(path: Path) -> None:
    """Let the path name another file, which existed before the job ran."""
    path.unlink()
    path.symlink_to("earlier")


@pytest.mark.parametrize("change", [replace_by_an_older_file, point_a_link_elsewhere])
def test_a_large_source_that_was_replaced_is_stale_however_old_the_new_file_is(jobs, change):
    large = b"x" * SMALL_FILE + b"y"
    Path("earlier").write_bytes(large[::-1])
    Path("source").write_bytes(large)
    write_job(jobs[0], "source")
    assert not examine_jobs(jobs[:1], hash_all=False).stale
    change(Path("source"))
    assert list_folders(examine_jobs(jobs[:1], hash_all=False).stale) == ["a"]


def test_a_large_source_is_not_hashed_again_while_nobody_touches_it(jobs, monkeypatch):
    Path("source").write_bytes(b"x" * (SMALL_FILE + 1))
    write_job(jobs[0], "source")
    hashed = []
    monkeypatch.setattr("rapid.freshness.sha256_file", lambda path: hashed.append(path) or "")
    examine_jobs(jobs[:1], hash_all=False)
    assert hashed == ["a/out"]


def test_reconciling_deletes_only_the_manifests_of_stale_jobs(jobs):
    Path("b/out").write_text("B")
    os.utime("a/out", (4e9, 4e9))
    discard_stale_manifests(examine_jobs(jobs))
    assert [Path(job.manifest).exists() for job in jobs] == [True, False, False, False]
    assert Path("b/out").exists() and os.stat("a/out").st_mtime == 4e9


def test_an_output_of_a_later_job_counts_like_a_file_of_the_user(jobs):
    """The source of a published model may be the model of a run."""
    fetched = Job("pretrain", "fetched", build_spec())
    write_job(fetched, "c/d/out")
    assert fetched in examine_jobs([fetched, *jobs]).current
    Path("c/d/out").write_text("another")
    assert examine_jobs([fetched, *jobs]).stale[fetched] == f"{INPUT_CHANGED}c/d/out"


def test_an_unavailable_job_is_planned_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = ["runs/a/b", "experiments/one/evaluations/c", "runs/done", "elsewhere/runs/d"]
    for folder in map(Path, folders):
        folder.mkdir(parents=True)
        (folder / "out").touch()
        reason = "" if folder.name == "done" else "no Lean"
        write_manifest(folder, "train", build_spec(), {}, [folder / "out"], unavailable=reason)
    assert sorted(discard_unavailable_manifests()) == sorted(folders[:2])
    assert [Path(folder, "manifest.json").exists() for folder in folders] == [
        False,
        False,
        True,
        True,
    ]


class TestCode:
    """The first two jobs depend on one file of code each. The third depends on no code."""

    @pytest.fixture
    def plan_jobs(self, jobs) -> Callable:
        """Return a function that plans the jobs, given the content of their files of code."""

        def plan(first: str = "1", **second: str) -> list[Job]:
            second_files = {f"{name}.py": text for name, text in second.items()}
            files = {"one.py": first}, {"two.py": "2"} | second_files
            specs = [
                SpecWithCode(
                    **build_spec().model_dump(), code_of_files=code_files
                ).with_code_digest()
                for code_files in files
            ]
            pairs = zip(jobs[:2], specs, strict=True)
            return [*(Job(job.rule, job.folder, spec) for job, spec in pairs), jobs[2]]

        for job, input_path in zip(plan()[:2], ("source", "a/out"), strict=True):
            write_job(job, input_path)
        return plan

    def test_changed_code_makes_its_jobs_and_those_after_them_stale(self, plan_jobs, capsys):
        jobs = plan_jobs(two="X", new="3")
        stale = {jobs[1]: "made with other code: new.py, two.py", jobs[2]: f"{INPUT_STALE}b/out"}
        assert examine_jobs(jobs).stale == stale
        print_changed_code(plan_jobs("X"))
        assert "one.py (used by 1 job" in capsys.readouterr().err

    def test_a_manifest_without_code_is_stale(self, plan_jobs):
        manifest = json.loads(Path("a/manifest.json").read_text())
        del manifest["spec"]["code"], manifest["code"]
        Path("a/manifest.json").write_text(json.dumps(manifest))
        jobs = plan_jobs()
        assert "other code: files that are not listed" in examine_jobs(jobs).stale[jobs[0]]

    def test_accepted_code_makes_jobs_current_and_is_recorded_with_its_time(self, plan_jobs):
        jobs = plan_jobs("X")
        accepted, findings = accept_code_changes(jobs)
        assert list_folders(accepted) == ["a", "b", "c/d"] == list_folders(findings.current)
        assert not examine_jobs(jobs).stale
        accept_code_changes(plan_jobs("Y"))
        first, second = json.loads(Path("a/manifest.json").read_text())["accepted"]
        assert first["was"] == {"one.py": "1"} and second["was"] == {"one.py": "X"}
        assert first["at"]
        assert "accepted" not in json.loads(Path("b/manifest.json").read_text())

    def test_reports_of_accepted_results_are_made_again(self, plan_jobs):
        jobs = plan_jobs("X")
        report = replace(jobs[-1], rule="report", folder="reports", inputs=(jobs[-1],))
        write_job(report, "c/d/out")
        _, findings = accept_code_changes([*jobs, report])
        assert list_folders(findings.current) == ["a", "b", "c/d"]
        assert not Path(report.manifest).exists()
        write_job(report, "c/d/out")
        assert accept_code_changes([*jobs, report])[0] == [] and Path(report.manifest).exists()

    def test_a_report_of_other_parameters_is_made_again(self, plan_jobs):
        jobs = plan_jobs()
        report = replace(jobs[-1], rule="report", folder="reports", inputs=(jobs[-1],))
        write_job(report, "c/d/out")
        spec = report.spec.model_copy(update={"vocabulary": 301})
        accepted, findings = accept_code_changes([*jobs, replace(report, spec=spec)])
        assert not accepted and not findings.stale
        assert list_folders(findings.missing) == ["reports"]
        assert not Path(report.manifest).exists()

    def test_a_current_job_is_not_accepted(self, plan_jobs):
        before = Path("a/manifest.json").read_bytes()
        accepted, findings = accept_code_changes(plan_jobs())
        assert accepted == [] and list_folders(findings.current) == ["a", "b", "c/d"]
        assert Path("a/manifest.json").read_bytes() == before

    def test_other_parameters_are_not_accepted(self, plan_jobs):
        jobs = plan_jobs("X")
        jobs[1] = Job("pretrain", "b", jobs[1].spec.model_copy(update={"vocabulary": 301}))
        accepted, findings = accept_code_changes(jobs)
        assert list_folders(accepted) == ["a"]
        assert list_folders(findings.stale) == ["b", "c/d"]

    def test_jobs_without_their_deleted_models_are_accepted(self, plan_jobs):
        Path("b/out").unlink()  # no rule declares it
        accepted, findings = accept_code_changes(plan_jobs("X"))
        assert list_folders(accepted) == ["a", "b", "c/d"] and not findings.stale

    def test_a_changed_file_is_not_accepted(self, plan_jobs):
        Path("a/out").write_text("A")
        accepted, findings = accept_code_changes(plan_jobs("X"))
        assert not accepted and list(findings.changed) == ["a/out"]


class SpecWithCode(TokenizerSpec):
    """A spec with the code that a test sets."""

    code_of_files: dict[str, str] = Field(exclude=True)

    def hash_code_files(self) -> dict[str, str]:
        return self.code_of_files


@pytest.mark.parametrize(
    "before, after, expected",
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ["a.b: 1 is now 2"]),
        ({"a": 1}, {}, ["a: 1 is now None"]),
        ({}, {"b": [1]}, ["b: None is now [1]"]),
        ("unreadable", {"a": 1}, [": 'unreadable' is now {'a': 1}"]),
    ],
)
def test_differences_of_parameters_are_listed_by_key(before, after, expected):
    assert list_differences(before, after) == expected


def test_only_checkpoints_of_ended_runs_are_deleted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runs = [
        Path(f"{root}runs/math/m/pg/seed{seed}")
        for root in ("", "experiments/a/")
        for seed in (1, 2)
    ]
    for run in runs:
        (run / "checkpoints/checkpoint-5").mkdir(parents=True)
    for ended_run in runs[::2]:
        (ended_run / "manifest.json").touch()
    discard_checkpoints_of_ended_runs()
    assert [(run / "checkpoints").exists() for run in runs] == [False, True, False, True]
