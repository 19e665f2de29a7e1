"""`rapid watch` shows the state of a workflow from the files that it writes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rapid.artifacts.files import BadInput
from rapid.artifacts.runs import Progress
from rapid.console import watch
from rapid.console import workflow as console

RUN = "runs/math/toy/pg/seed1"


@pytest.fixture
def add_event(tmp_path, monkeypatch):
    """Return a function that adds one of Snakemake's events to the journal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")  # of the console
    journal = console.Journal()

    def add_event(event: str, now: float, **fields) -> None:
        monkeypatch.setattr(console.time, "time", lambda: now)
        journal.emit(SimpleNamespace(event=event, **fields))

    add_event("run_info", 0.0, stats={"train": 2, "evaluate": 2, "total": 4})
    return add_event


def start_job(add_event, number: int, now: float, rule: str, folder: str) -> None:
    job = {"jobid": number, "rule_name": rule, "output": [f"{folder}/manifest.json"]}
    add_event("job_info", now, log=[f"{number}.log"], **job)


def read_lines(monkeypatch, capsys, now: float) -> list[str]:
    monkeypatch.setattr(console.time, "time", lambda: now)
    assert watch.watch_workflow(once=True) == 0
    return capsys.readouterr().out.splitlines()


def write_progress(*rewards: float | None) -> None:
    file = Path(RUN, "checkpoints/0123/progress.jsonl")
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        Progress(step=n, total_steps=40, seconds=0.5 * n, loss=0, gradient_norm=0, reward=reward)
        for n, reward in enumerate(rewards, 1)
    ]
    file.write_text("".join(row.model_dump_json() + "\n" for row in rows))


def test_a_note_about_generated_problems_is_shown_below_the_counts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    note = "Made problems in the format of MATH, not the published ones."
    journal = console.Journal(note)
    monkeypatch.setattr(console.time, "time", lambda: 0.0)
    journal.emit(SimpleNamespace(event="run_info", stats={"train": 2, "total": 2}))
    assert read_lines(monkeypatch, capsys, 1.0)[:2] == [
        "2 jobs: 0 done, 0 running, 2 waiting, 0 failed",
        note,
    ]


def test_the_state_is_read_from_the_files_of_the_jobs(add_event, monkeypatch, capsys):
    start_job(add_event, 1, 1.0, "train", RUN)
    start_job(add_event, 2, 1.0, "evaluate", "evaluations/base")
    Path("1.log").write_text("of an earlier attempt\n")
    os.utime("1.log", (-9.0, -9.0))
    Path("2.log").write_text("waiting until other jobs leave 1 of 2 core(s) free\n")
    assert read_lines(monkeypatch, capsys, 3.0) == [
        "4 jobs: 0 done, 0 running, 4 waiting, 0 failed",
        "",
        f"train {RUN}  2.0s  queued",
        "evaluate evaluations/base     2.0s  waiting until other jobs leave 1 of 2 core(s) free",
    ]

    write_progress(*[0.0] * 18, 0.25, 0.75)  # the reward is the mean of the last two
    Path("1.log").write_text("running on core(s) 0\n")
    with Path(RUN, "checkpoints/0123/progress.jsonl").open("a") as file:
        file.write('{"step": 21, "total"')  # a line that is being written
    state = "step 20 of 40, reward 50.0%, about 10.0s left"
    assert f"train {RUN}  12.0s  {state}" in read_lines(monkeypatch, capsys, 13.0)

    Path("2.log").write_text("running on core(s) 1\nevaluations/base: pass@1 12.5%\n")
    add_event("job_finished", 21.0, job_id=2)
    Path("1.log").write_text(f"{RUN}: reward 50.0%, 8.0 s of training\n")
    add_event("job_finished", 21.0, job_id=1)
    start_job(add_event, 3, 21.0, "train", "runs/other")
    Path("3.log").touch()
    lines = read_lines(monkeypatch, capsys, 22.0)
    assert lines[0] == "4 jobs: 2 done, 1 running, 1 waiting, 0 failed; about 21.0s left"
    assert lines[-2].startswith("[1/4] evaluate evaluations/base: pass@1 12.5% (20.0s")
    assert lines[-1].startswith(f"[2/4] train {RUN}: reward 50.0%, 8.0 s of training (20.0s")

    Path("3.log").write_text("no space left on the disk\n")
    add_event("job_error", 23.0, jobid=3, rule_name="train", output=["runs/other/x"], log=["3.log"])
    lines = read_lines(monkeypatch, capsys, 24.0)
    assert lines[0] == "4 jobs: 2 done, 0 running, 1 waiting, 1 failed"
    assert "  | no space left on the disk" in lines

    start_job(add_event, 3, 24.0, "train", "runs/other")  # a second attempt
    add_event("job_finished", 25.0, job_id=3)
    start_job(add_event, 4, 25.0, "evaluate", "evaluations/other")
    add_event("job_finished", 26.0, job_id=4)
    lines = read_lines(monkeypatch, capsys, 27.0)
    assert lines[0] == "4 jobs: 4 done, 0 running, 0 waiting, 0 failed"
    assert watch.watch_workflow(once=False) == 0  # returns without Ctrl-C


def test_a_small_terminal_gets_the_first_and_the_last_lines(add_event):
    for number in range(1, 5):
        start_job(add_event, number, 1.0, "train", f"runs/{number}")
        add_event("job_finished", 2.0, job_id=number)
    workflow = watch.WorkflowView(*Path(".snakemake/log").iterdir())
    workflow.read()
    assert [line[:5] for line in workflow.render_lines(4)] == ["4 job", "", "[3/4]", "[4/4]"]
    assert len(workflow.render_lines(1)) == 1


def test_a_killed_workflow_is_shown_as_ended(add_event, monkeypatch, capsys):
    start_job(add_event, 1, 1.0, "train", RUN)
    [journal] = Path(".snakemake/log").iterdir()
    ended_process = subprocess.Popen([sys.executable, "-c", ""])
    ended_process.wait()
    rows = [
        json.loads(row) | {"pid": ended_process.pid} for row in journal.read_text().splitlines()
    ]
    journal.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert watch.watch_workflow(once=False) == 1
    assert "; the workflow has ended" in capsys.readouterr().out
    # Another process has the same number.
    rows_with_reused_pid = [row | {"pid": os.getpid(), "process_created": 0.0} for row in rows]
    journal.write_text("".join(json.dumps(row) + "\n" for row in rows_with_reused_pid))
    assert watch.watch_workflow(once=False) == 1
    capsys.readouterr()
    rows_of_another_host = [row | {"host": "another"} for row in rows]
    journal.write_text("".join(json.dumps(row) + "\n" for row in rows_of_another_host))
    # It is unknown whether a process of another host runs.
    assert "ended" not in read_lines(monkeypatch, capsys, 3.0)[0]


def test_a_running_workflow_is_preferred_to_one_that_ended_later(add_event, monkeypatch, capsys):
    [journal] = Path(".snakemake/log").iterdir()
    row = json.loads(journal.read_text())
    earlier = row | {"process_created": 0.0, "stats": {"train": 1, "total": 1}}
    journal.with_name(f"1{console.JOURNAL_SUFFIX}").write_text(json.dumps(earlier) + "\n")
    with journal.open("a") as file:
        file.write('{"event": "job_in\n')  # a full disk cut the line
    os.utime(journal, (1, 1))
    assert read_lines(monkeypatch, capsys, 3.0)[0].startswith("4 jobs: ")


def test_a_folder_without_a_workflow_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match="no workflow was started in this folder"):
        watch.watch_workflow(once=True)


def test_a_journal_that_cannot_be_written_is_ignored(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(".snakemake").write_text("in the way")
    console.Journal().emit(SimpleNamespace(event="run_info", stats={"total": 1}))
    assert os.listdir() == [".snakemake"]
