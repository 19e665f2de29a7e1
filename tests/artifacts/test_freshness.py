"""Which jobs are up to date, by content and not by the times of files."""

import os
from pathlib import Path

import pytest

from rapid.artifacts.freshness import Findings, Job, differences, examine, reconcile
from rapid.artifacts.manifests import write_manifest
from rapid.config.specs import TokenizerSpec


def spec(vocabulary: int = 300) -> TokenizerSpec:
    return TokenizerSpec(benchmarks=["math"], vocabulary=vocabulary)


def make(job: Job, *inputs: str) -> None:
    folder = Path(job.folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "out").write_text(job.folder)
    write_manifest(folder, job.stage, job.spec, [Path(path) for path in inputs], [folder / "out"])


@pytest.fixture
def line(tmp_path, monkeypatch) -> list[Job]:
    """Three jobs, each of which reads what the one before it wrote; the first a file of the user's."""
    monkeypatch.chdir(tmp_path)
    Path("source").write_text("source")
    data = Job("data", "a", spec())
    model = Job("models", "b", spec(), inputs=(data,))
    made = [data, model, Job("train", "c/d", spec(), inputs=(model,))]
    for job, read in zip(made, ("source", "a/out", "b/out"), strict=True):
        make(job, read)
    return made


def folders(found: list[Job]) -> list[str]:
    return [job.folder for job in found]


def test_what_was_made_is_up_to_date(line):
    found = examine(line)
    assert folders(found.current) == ["a", "b", "c/d"]
    assert not found.stale and not found.changed and not found.missing
    assert found.describe() == "3 of 3 jobs are up to date"


def test_a_changed_byte_is_named_with_all_that_it_makes_stale(line):
    Path("a/out").write_text("A")
    found = examine(line)
    assert list(found.changed) == ["a/out"]
    assert folders(found.stale) == ["a", "b", "c/d"]
    assert "a/out is not what a wrote" in found.describe()
    assert "stale: c/d: what it read is not up to date: b/out" in found.describe()


def test_what_another_file_of_the_same_job_went_into_is_not_stale(line):
    Path("a/other").write_text("other")
    write_manifest(Path("a"), "data", spec(), [Path("source")], [Path("a/out"), Path("a/other")])
    Path("a/other").write_text("changed")
    found = examine(line)
    assert folders(found.stale) == ["a"]
    assert folders(found.current) == ["b", "c/d"]


def test_a_file_of_the_same_size_and_time_is_still_noticed(line):
    before = os.stat("b/out")
    Path("b/out").write_text("B")
    os.utime("b/out", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert list(examine(line).changed) == ["b/out"]


def test_what_no_job_wrote_is_compared_too(line):
    Path("source").write_text("other")
    found = examine(line, hashed=False)
    assert found.stale[line[0]] == "what it read has changed: source"


def test_another_parameter_makes_the_job_and_those_after_it_stale(line):
    changed = [line[0], Job("models", "b", spec(301)), line[2]]
    found = examine(changed)
    assert folders(found.stale) == ["b", "c/d"]
    assert found.stale[changed[1]] == "made with other parameters: vocabulary: 300 is now 301"


def test_a_job_that_was_made_again_makes_those_after_it_stale(line):
    Path("a/out").write_text("new")
    write_manifest(Path("a"), "data", spec(), [Path("source")], [Path("a/out")])
    found = examine(line)
    assert folders(found.current) == ["a"]
    assert found.stale[line[1]] == "what it read has changed: a/out"


@pytest.mark.parametrize("hashed", [True, False])
def test_a_file_that_is_gone_is_noticed_without_hashing(line, hashed):
    Path("b/out").unlink()
    assert folders(examine(line, hashed).stale) == ["b", "c/d"]


def test_a_job_without_a_manifest_is_not_made(line):
    Path("b/manifest.json").unlink()
    found = examine(line)
    assert folders(found.missing) == ["b"]
    assert folders(found.stale) == ["c/d"]


def test_a_manifest_that_was_cut_off_is_stale(line):
    Path("a/manifest.json").write_text('{"spec": ')
    assert line[0] in examine(line).stale


def test_reconciled_times_follow_the_order_of_the_jobs(line):
    for path in ("c/d/out", "c/d/manifest.json", "b/manifest.json", "a/manifest.json"):
        os.utime(path, (1e9, 1e9))  # as a checkout leaves them: in no order
    reconcile(examine(line))
    times = [os.path.getmtime(f"{folder}/manifest.json") for folder in ("a", "b", "c/d")]
    assert times == sorted(times) and len(set(times)) == 3


def test_reconciling_leaves_what_is_in_order(line):
    for number, folder in enumerate(("a", "b", "c/d")):
        for path in (f"{folder}/out", f"{folder}/manifest.json"):
            os.utime(path, (2e9 + number, 2e9 + number))
    before = {path: os.stat(path).st_mtime_ns for path in ("a/out", "b/out", "c/d/out")}
    reconcile(examine(line))
    assert before == {path: os.stat(path).st_mtime_ns for path in before}


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
    Path("c/d/later").write_text("later")
    outputs = [Path("c/d/out"), Path("c/d/later")]
    write_manifest(Path("c/d"), "train", spec(), [Path("b/out")], outputs)
    found = examine([*line, report])
    assert found.stale[report] == "what it read has changed: c/d/later"


@pytest.mark.parametrize("path", ["c/d/later", "notes"])
def test_what_was_made_without_a_file_is_stale_once_it_is_there(line, report, path):
    Path(path).write_text("somebody's")
    assert examine([*line, report]).stale[report] == f"what it read has changed: {path}"


def test_what_was_made_without_an_input_is_stale_while_its_job_is_not_up_to_date(line, report):
    Path("c/d/manifest.json").unlink()
    found = examine([*line, report])
    assert found.stale[report] == "what it read is not up to date: c/d/later"


def test_a_stage_without_jobs_has_its_folder(line):
    reconcile(examine(line))
    assert Path("distilled").is_dir()


def test_nothing_made_is_no_error():
    found = examine([Job("data", "nowhere", spec())])
    assert isinstance(found, Findings) and len(found.missing) == 1


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
