"""Lines of the console: the result and time of a job, and the time left for all other jobs."""

from types import SimpleNamespace

import pytest

from rapid.console.workflow import JobFormatter, WaitReporter


@pytest.fixture
def console(tmp_path, monkeypatch):
    """Return a formatter whose clock is `console.now`, after the start of a workflow of four jobs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")  # of the console
    console = JobFormatter(clock=lambda: console.now)
    console.now = 0.0
    stats = {"train": 3, "report": 1, "total": 4}
    console.filter(SimpleNamespace(event="run_info", msg="", stats=stats))
    return console


def send_record(console, event, **fields):
    record = SimpleNamespace(event=event, msg="", getMessage=lambda: fields.get("message", ""))
    vars(record).update(fields)
    return console.format(record) if console.filter(record) else ""


def start_job(console, number, rule="train"):
    files = {"output": [f"runs/{number}/manifest.json"], "log": [f"{number}.log"]}
    assert send_record(console, "job_info", jobid=number, rule_name=rule, **files) == ""


def test_the_time_left_is_estimated_from_jobs_of_the_same_rule(console, tmp_path):
    (tmp_path / "1.log").write_text("runs/1: reward 1%\nruns/1: reward 5%, 8 s of training\nbye\n")
    start_job(console, 1)
    start_job(console, 2)
    console.now = 10.0
    # No time left is shown, because some of the remaining jobs are of a rule that has not run yet.
    finished = send_record(console, "job_finished", job_id=1)
    assert finished == "[1/4] train runs/1: reward 5%, 8 s of training (10.0s)"
    start_job(console, 3)
    start_job(console, 4, "report")
    assert (
        send_record(console, "job_finished", job_id=4)
        == "[2/4] report runs/4 (0.0s, about 20.0s left)"
    )
    console.now = 20.0
    assert (
        send_record(console, "job_finished", job_id=2)
        == "[3/4] train runs/2 (20.0s, about 10.0s left)"
    )


def test_a_failed_job_that_succeeds_on_retry_is_not_reported_as_failed(console):
    start_job(console, 1)
    job = {"jobid": 1, "rule_name": "train", "output": ["runs/1/x"], "log": ["1.log"]}
    message = "Command 'x > 1.log 2>&1' returned non-zero exit status 3."
    assert send_record(console, "error", message=message) == ""
    assert send_record(console, "job_error", **job) == "FAILED train runs/1 (0.0s, exit status 3)"
    assert "1 job(s) failed:" in console.render_failures()
    start_job(console, 1)
    assert send_record(console, "job_finished", job_id=1).startswith("[1/4] train runs/1 (0.0s")
    assert console.render_failures() == ""


def test_waiting_jobs_are_reported_once_until_none_is_waiting(console, tmp_path):
    message = "waiting until other jobs leave 1 of 2 core(s) free"
    lines = []
    reporter = WaitReporter(console, lines.append)
    for number in (1, 2):
        (tmp_path / f"{number}.log").write_text(f"{message}\n")
        start_job(console, number)
    reporter.report_waiting_jobs()
    assert lines == []  # they have only just started
    console.now = 5.0
    for _ in range(2):
        reporter.report_waiting_jobs()
    assert lines == [f"train runs/1: {message} (and 1 more)"]
    (tmp_path / "1.log").write_text(f"{message}\nrunning on core(s) 0\n")
    send_record(console, "job_finished", job_id=2)
    reporter.report_waiting_jobs()
    start_job(console, 2)
    console.now = 10.0
    reporter.report_waiting_jobs()
    assert lines[1:] == [f"train runs/2: {message}"]


def test_long_lines_are_wrapped_between_words_and_paths_stay_whole(console, tmp_path):
    path = "/".join(["experiments"] * 12)
    (tmp_path / "1.log").write_text(f"runs/1: {'some words ' * 12}see {path} for it\n")
    start_job(console, 1)
    lines = send_record(console, "job_finished", job_id=1).splitlines()
    assert len(lines) == 3 and lines[0].startswith("[1/4] train runs/1: some words")
    assert [line for line in lines if path in line] and all(map(len, lines))
