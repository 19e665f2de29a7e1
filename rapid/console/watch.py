"""`rapid watch`: show the state of the workflow in this folder.

The state is read from files. The workflow's journal (`rapid.console.workflow.Journal`) says which
jobs have started and ended. The step of a training run comes from its progress.jsonl. For any other
job the last line of its log is shown.
"""

import json
import platform
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import psutil

from rapid.artifacts.files import BadInput
from rapid.artifacts.runs import read_progress
from rapid.console.workflow import JOURNAL_FOLDER, JOURNAL_SUFFIX, JobFormatter, RunningJob
from rapid.resources.leases import WAITING
from rapid.text import align_columns, format_duration, wrap_text

UPDATE_SECONDS = 1.0  # interval between updates of the display
# A log may seem this many seconds older than the start of the job that wrote it, because the file
# system has another clock.
MTIME_TOLERANCE = 1.0
QUEUED = "queued"  # state of a job that Snakemake has started and that does not run yet
# Seconds by which the creation time of a process may change: Linux computes it from the time of
# booting, which changes if the clock is corrected.
CLOCK_TOLERANCE = 60.0
DEFAULT_ENDED_LINES = 10  # ended jobs to show if the number of lines is not limited
# Escape sequences of terminals: switch to the alternate screen and back, move the cursor to the
# upper left, clear the rest of the line, clear all below.
ENTER_SCREEN, LEAVE_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
CURSOR_HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


class WorkflowView:
    """The state of a workflow at the last call of `read`, which reads its journal."""

    def __init__(self, journal: Path):
        self._stream = journal.open(encoding="utf-8")
        self._incomplete_line = ""  # the journal's last line, if it is only partly written
        self._first_row: dict = {}
        self._now = 0.0  # time of the row that `read` replays, or of the last call of `read`
        # Rows are replayed as log records: `filter` counts the jobs, `format` describes them.
        self._formatter = JobFormatter(clock=lambda: self._now)
        self._ended: list[str] = []  # a line for each job that ended

    def read(self) -> None:
        """Read what the workflow has written since the last call."""
        *lines, self._incomplete_line = (self._incomplete_line + self._stream.read()).split("\n")
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:  # the line was cut off because the disk was full
                continue
            self._first_row = self._first_row or row
            self._now = row["at"]
            record = SimpleNamespace(msg="", **row)
            # `filter` takes the numbers of jobs from the row `run_info`, which describes no job.
            if self._formatter.filter(record) and row["event"] != "run_info":
                self._ended += filter(None, [self._formatter.format(record)])
        self._now = time.time()

    def is_alive(self) -> bool:
        """Return whether the workflow's process is alive; True if it runs on another machine."""
        return self._first_row.get("host") != platform.node() or _is_alive(self._first_row)

    def has_succeeded(self) -> bool:
        """Return whether all jobs are done."""
        return bool(self._first_row) and not (
            self._formatter.jobs_left.total() or self._formatter.failed
        )

    def render_lines(self, height: int | None = None) -> list[str]:
        """Return the state as lines.

        Args:
            height: largest number of lines.
        """
        formatter = self._formatter
        started = [
            (job.name, format_duration(self._now - job.start_time), _describe_state(job))
            for job in formatter.running.values()
        ]
        total, failed = formatter.total, len(formatter.failed)
        jobs_left = formatter.jobs_left.total()
        running = sum(not state.startswith((QUEUED, WAITING)) for *_, state in started)
        summary = f"{total} jobs: {total - jobs_left - failed} done, {running} running, "
        summary += f"{jobs_left - running} waiting, {failed} failed"
        if started and (seconds := formatter.estimate_seconds_left()):
            summary += f"; about {format_duration(seconds)} left"
        if jobs_left and not self.is_alive():
            summary += "; the workflow has ended"
        # The second line says which problems are published and which are made.
        headings = [summary, *filter(None, [self._first_row.get("problem_sources")])]
        failures = formatter.render_failures().splitlines()
        parts = [headings, align_columns(started), failures]
        max_ended = DEFAULT_ENDED_LINES
        if height is not None:
            max_ended = height - sum(len(part) + 1 for part in parts if part)
        # Ended jobs come between the running and the failed ones.
        parts.insert(2, self._ended[-max_ended:] if max_ended > 0 else [])
        return "\n\n".join("\n".join(part) for part in parts if part).splitlines()[:height]


def _describe_state(job: RunningJob) -> str:
    """Return a training run's step, reward and time left; for other jobs the log's last line.

    The reward is the mean over the last tenth of the steps so far. A job truncates its log when it
    begins to run. So if the log is missing, or older than the time at which Snakemake started the
    job, the job is still queued, for example by SLURM.
    """
    if max(map(_read_mtime, job.log), default=job.start_time) < job.start_time - MTIME_TOLERANCE:
        return QUEUED
    last_line = job.last_line
    steps = read_progress(Path(job.folder))
    if not steps or last_line.startswith(WAITING):
        return last_line
    last_step = steps[-1]
    last_steps = steps[-max(1, len(steps) // 10) :]  # a tenth, at least one
    rewards = [step.reward for step in last_steps if step.reward is not None]
    reward = f", reward {fmean(rewards):.1%}" if rewards else ""
    seconds_left = last_step.seconds / last_step.step * (last_step.total_steps - last_step.step)
    progress_text = f"step {last_step.step} of {last_step.total_steps}"
    return f"{progress_text}{reward}, about {format_duration(seconds_left)} left"


def _read_mtime(file: str) -> float:
    """Return the time of a file's last change in seconds since 1970; 0 if there is no file."""
    with suppress(OSError):
        return Path(file).stat().st_mtime
    return 0.0


def watch_workflow(once: bool) -> int:
    """Show the workflow that runs in this folder; if none runs, the last one.

    The display is updated until the workflow ends, or until Ctrl-C.

    Args:
        once: print the present state only.

    Returns:
        The exit status: 0 if all jobs are done or with `once`, else 1.

    Raises:
        BadInput: no workflow has run here.
    """
    journals = sorted(
        JOURNAL_FOLDER.glob(f"*{JOURNAL_SUFFIX}"), key=lambda file: file.stat().st_mtime
    )
    if not journals:
        raise BadInput("no workflow was started in this folder; start one in another terminal")
    alive = [journal for journal in journals if _is_alive(_read_first_row(journal))]
    workflow = WorkflowView((alive or journals)[-1])
    workflow.read()
    if not once:
        _follow_workflow(workflow)
    print("\n".join(workflow.render_lines()))
    return 0 if once or workflow.has_succeeded() else 1


def _read_first_row(journal: Path) -> dict:
    """Return a journal's first row; {} if it has none yet."""
    with suppress(ValueError), journal.open(encoding="utf-8") as stream:
        return json.loads(stream.readline())
    return {}


def _is_alive(row: dict) -> bool:
    """Return whether the process that wrote a row of a journal is alive on this machine.

    A process that was created later is another process, which has got the same number.
    """
    with suppress(psutil.Error, KeyError):
        process = psutil.Process(row["pid"])
        is_same_process = process.create_time() < row["process_created"] + CLOCK_TOLERANCE
        is_same_host = row["host"] == platform.node()
        return is_same_host and is_same_process and process.status() != psutil.STATUS_ZOMBIE
    return False


def _follow_workflow(workflow: WorkflowView) -> None:
    """Show a workflow on the terminal's alternate screen until it ends, or until Ctrl-C."""
    print(ENTER_SCREEN, end="")
    try:
        while workflow.is_alive() and not workflow.has_succeeded():
            workflow.read()
            size = shutil.get_terminal_size()
            height, width = size.lines - 1, size.columns
            lines = [
                part[:width]
                for line in workflow.render_lines(height)
                for part in wrap_text(line, width) or [""]
            ][:height]
            cleared_lines = (f"{line}{CLEAR_LINE}\n" for line in lines)
            print(CURSOR_HOME, *cleared_lines, CLEAR_BELOW, sep="", end="")
            sys.stdout.flush()
            time.sleep(UPDATE_SECONDS)
    except KeyboardInterrupt:
        pass
    finally:
        print(LEAVE_SCREEN, end="")
    workflow.read()
