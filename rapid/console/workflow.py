"""Prints one line for each job that ends, in place of Snakemake's messages.

    [ 37/251] evaluate evaluations/math/tiny-qwen2/pg/seed1: pass@1 12.5% (8.4s, about 12.7m left)

At the workflow's end, up to ten lines are printed about each failed job. The result in a job's line
("pass@1 12.5%") comes from the last line of the job's log that begins with the job's folder.
Snakemake's own messages, with all paths that a job reads and writes, are in Snakemake's log file in
.snakemake/log. With --verbose they are printed instead of these lines.
"""

import json
import logging
import os
import platform
import re
import shutil
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import psutil

from rapid.errors.shortages import describe_shortage
from rapid.processes.lifetimes import describe_kill
from rapid.resources.leases import WAITING
from rapid.text import format_duration, wrap_text

SNAKEMAKE_HANDLER = "DefaultStreamHandler"  # name of the log handler that prints to the console
# A workflow's journal for `rapid watch` is JOURNAL_FOLDER/{process id}{JOURNAL_SUFFIX}.
JOURNAL_FOLDER = Path(".snakemake/log")
JOURNAL_SUFFIX = ".jobs.jsonl"
# Fields of Snakemake's log records that the journal keeps, by event.
JOURNAL_FIELDS = {
    "run_info": ["stats"],
    "job_info": ["jobid", "rule_name", "output", "log"],
    "job_finished": ["job_id"],
    "job_error": ["jobid", "rule_name", "output", "log"],
}
# The exit status, or the signal, in Snakemake's message about a command that failed.
EXIT_PATTERN = re.compile(r"exit status (\d+)|died with <Signals\.(\w+)")
# The end of a job's command, with the path of its log. Snakemake's error messages quote it, so that
# the path identifies the job.
LOG_REDIRECTION = "> {} 2>&1"
# Messages with this path are not printed. They are about Snakemake's records of earlier executions,
# which the pipeline does not use (`rapid.freshness`).
METADATA_PATH = "provenance/metadata"
# Snakemake's reason for planning a job whose parameters changed. The group is kept, and the list of
# all parameters after it is cut off.
PARAMETERS_PATTERN = re.compile(r"(Params have changed since last execution).*")
FAILURE_LINES = 10  # largest number of lines about a failed job
TAIL_BYTES = 1 << 14  # number of bytes that are read from the end of a log
DEFAULT_WIDTH = 160  # characters of a line, if the console is not a terminal
MAX_LINE_LENGTH = 1000  # characters; a job may print the whole content of a file in one line
WAIT_SECONDS = 5.0  # interval between checks for waiting jobs; shorter waits are not reported
# The time left is not estimated if more than this share of the jobs left belongs to rules without
# an ended job, because the times of such jobs are unknown.
MAX_UNKNOWN_SHARE = 0.25


@dataclass(frozen=True)
class RunningJob:
    """A job that Snakemake has started.

    Args:
        log: paths of the job's logs.
        start_time: seconds on the clock of the `JobFormatter`.
    """

    rule: str
    folder: str
    log: list[str]
    start_time: float

    @property
    def name(self) -> str:
        return f"{self.rule} {self.folder}".rstrip()

    @property
    def last_line(self) -> str:
        """Return the last line of the job's log; "" if the log is empty."""
        return next(reversed(_read_last_lines(self.log)), "")

    @property
    def result(self) -> str:
        """Return ": RESULT" from the log's last line that begins with the job's folder; or ""."""
        lines = [line for line in _read_last_lines(self.log) if line.startswith(f"{self.folder}: ")]
        return lines[-1].removeprefix(self.folder) if lines else ""


class JobFormatter(logging.Formatter):
    """Formats Snakemake's log records of jobs, and keeps track of the jobs.

    Attributes:
        jobs_left: number of jobs that have not ended, by rule.
        total: number of all jobs.
        running: jobs that have started and not ended, by the number that Snakemake gave them.
        failed: lines about each job that failed, by the job's name.
        default_formatter: formats all other records; `install_console` sets it to Snakemake's.
        reasons: why jobs are stale, by the paths of their manifests (`rapid.freshness`). The
            workflow's rules fill it. For other jobs Snakemake's own reason is shown.

    Args:
        is_dry_run: whether jobs are only planned.
        clock: returns the time in seconds.
    """

    def __init__(self, is_dry_run: bool = False, clock: Callable[[], float] = time.monotonic):
        super().__init__()
        self.default_formatter = logging.Formatter()
        self._is_dry_run, self._clock = is_dry_run, clock
        self._start_time: float | None = None  # when the first job started
        self.jobs_left: Counter[str] = Counter()
        self.total = 0
        self.running: dict[int, RunningJob] = {}
        self._seconds: dict[str, list[float]] = defaultdict(list)  # of ended jobs, by rule
        self._error_messages: list[str] = []  # Snakemake's messages on commands that failed
        self.failed: dict[str, list[str]] = {}
        self.reasons: dict[str, str] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to print a record; count jobs, and keep messages about failed commands."""
        event = getattr(record, "event", None)
        if event == "job_info" and not self._is_dry_run:
            now = self._clock()
            self._start_time = now if self._start_time is None else self._start_time
            job = RunningJob(record.rule_name, _get_output_folder(record), record.log, now)
            self.running[record.jobid] = job
            is_retry = self.failed.pop(job.name, None) is not None
            self.jobs_left[job.rule] += is_retry
            return False
        if event == "error" and EXIT_PATTERN.search(record.getMessage()):
            self._error_messages.append(record.getMessage())
            return False
        if event == "run_info":
            self.jobs_left = Counter(record.stats)
            self.total = self.jobs_left.pop("total", 0)
        is_progress = (
            event in ("job_started", "progress") or record.msg == "Select jobs to execute..."
        )
        return not (is_progress or METADATA_PATH in str(record.msg))

    def format(self, record: logging.LogRecord) -> str:
        """Return a line about a job that is planned, has ended or failed."""
        match getattr(record, "event", None):
            case "job_info":
                reasons = [self.reasons[path] for path in record.output if path in self.reasons]
                reason = _to_short_line(reasons[0]) if reasons else _shorten_reason(record.reason)
                return _wrap_line(
                    f"rule {record.rule_name}: {_get_output_folder(record)} ({reason})"
                )
            case "job_finished":
                return self._format_finished_job(record.job_id)
            case "job_error":
                return self._format_failed_job(record)
            case "error":  # an error of Snakemake itself; the last line of its traceback suffices
                message = record.getMessage().strip().rpartition("\n")[2]
                if shortage := describe_shortage(RuntimeError(message)):
                    return f"Snakemake: {shortage}"
        return self.default_formatter.format(record)

    def render_failures(self) -> str:
        """Return at most ten lines on each failed job, and advice; "" if no job failed."""
        blocks = ["\n".join(lines) for lines in self.failed.values()]
        if not blocks:
            return ""
        advice = "Fix the causes and run the same command again: it runs only the jobs left."
        return "\n\n".join([f"{len(blocks)} job(s) failed:", *blocks, advice])

    def describe_waiting_jobs(self) -> list[str]:
        """Return a line for each job that has waited for cores or GPUs for WAIT_SECONDS."""
        latest_start = self._clock() - WAIT_SECONDS
        jobs = [job for job in list(self.running.values()) if job.start_time <= latest_start]
        last_lines = [(job.name, job.last_line) for job in jobs]
        return [f"{name}: {line}" for name, line in last_lines if line.startswith(WAITING)]

    def estimate_seconds_left(self) -> float | None:
        """Estimate the seconds until all jobs have ended, from the mean of each rule's ended jobs.

        A job whose rule has no ended job is assumed to take the mean time of all ended jobs. The
        sum is divided by the mean number of jobs that ran at a time so far.

        Returns:
            None if too many jobs belong to rules without an ended job (MAX_UNKNOWN_SHARE).
        """
        unknown = sum(count for rule, count in self.jobs_left.items() if rule not in self._seconds)
        if unknown > MAX_UNKNOWN_SHARE * self.jobs_left.total():
            return None
        all_seconds = [seconds for times in self._seconds.values() for seconds in times]
        elapsed = max(self._clock() - self._start_time, 1e-9)
        jobs_at_a_time = max(1.0, sum(all_seconds) / elapsed)
        means = {rule: fmean(self._seconds.get(rule, all_seconds)) for rule in self.jobs_left}
        return sum(count * means[rule] for rule, count in self.jobs_left.items()) / jobs_at_a_time

    def _format_finished_job(self, number: int) -> str:
        """Return the line of a job that has ended; "" if the job has no files."""
        job = self.running.pop(number, None)
        if job is None:
            return ""
        self.jobs_left[job.rule] -= 1
        if not job.folder:  # a target without files
            return ""
        seconds = self._clock() - job.start_time
        self._seconds[job.rule].append(seconds)
        seconds_left = self.estimate_seconds_left()
        time_left = f", about {format_duration(seconds_left)} left" if seconds_left else ""
        width = len(str(self.total))
        count = f"[{self.total - self.jobs_left.total():{width}}/{self.total}]"
        return _wrap_line(f"{count} {job.name}{job.result} ({format_duration(seconds)}{time_left})")

    def _format_failed_job(self, record: logging.LogRecord) -> str:
        """Return the line of a job that failed, and keep the end of its log in `failed`."""
        job = self.running.pop(record.jobid, None)
        job = job or RunningJob(
            record.rule_name, _get_output_folder(record), record.log, self._clock()
        )
        self.jobs_left[job.rule] -= 1
        seconds = format_duration(self._clock() - job.start_time)
        heading = f"FAILED {job.name} ({seconds}{self._describe_exit(job.log)})"
        tail = [
            part
            for line in _read_last_lines(job.log)
            for part in _wrap_line(line, "  | ").split("\n")
        ][2 - FAILURE_LINES :]  # the heading and the log's path take two lines
        log = ", ".join(job.log)
        log_state = f"end of {log}:" if tail else f"{log or 'its log'} is empty{_note_full_disk()}"
        self.failed[job.name] = [heading, f"  {log_state}", *tail]
        return heading

    def _describe_exit(self, log: list[str]) -> str:
        """Return ", exit status N" or ", killed by SIGNAL" for the job with this log; or ""."""
        for message in reversed(self._error_messages):
            if any(LOG_REDIRECTION.format(path) in message for path in log):
                status, signal = EXIT_PATTERN.search(message).groups()
                return f", {describe_kill(signal) if signal else f'exit status {status}'}"
        return ""


class WaitReporter(threading.Thread):
    """A thread that prints a line when jobs begin to wait for cores or GPUs.

    It prints another line if jobs wait again after a time without waiting jobs.

    Args:
        print_line: writes a line to the console.
    """

    def __init__(self, formatter: JobFormatter, print_line: Callable[[str], None]):
        super().__init__(daemon=True)
        self._formatter, self._print_line = formatter, print_line
        self._was_waiting = False

    def run(self) -> None:
        while True:
            time.sleep(WAIT_SECONDS)
            self.report_waiting_jobs()

    def report_waiting_jobs(self) -> None:
        """Print a line if jobs wait now and no job waited at the last call."""
        lines = self._formatter.describe_waiting_jobs()
        if lines and not self._was_waiting:
            count = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
            self._print_line(f"{lines[0]}{count}")
        self._was_waiting = bool(lines)


class Journal(logging.Handler):
    """Writes a JSON line on each job that starts, ends or fails to a file, for `rapid watch`.

    Args:
        problem_sources: a sentence that says which benchmark problems the workflow uses.
    """

    def __init__(self, problem_sources: str = ""):
        super().__init__()
        self._problem_sources = problem_sources
        self._file = JOURNAL_FOLDER.absolute() / f"{os.getpid()}{JOURNAL_SUFFIX}"
        created = psutil.Process().create_time()
        self._process = {"pid": os.getpid(), "host": platform.node(), "process_created": created}

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", None)
        if event not in JOURNAL_FIELDS:
            return
        row = {"event": event, "at": time.time(), **self._process}
        row |= {name: getattr(record, name) for name in JOURNAL_FIELDS[event]}
        row |= {"problem_sources": self._problem_sources} if event == "run_info" else {}
        with suppress(OSError):  # a workflow does not fail because its journal cannot be written
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("w" if event == "run_info" else "a") as file:
                file.write(json.dumps(row) + "\n")


def install_console(logger: logging.Logger, settings, problem_sources: str = "") -> JobFormatter:
    """Make Snakemake print one line for each job.

    Args:
        settings: Snakemake's output settings. With --verbose the console is not changed.
        problem_sources: a sentence that says which benchmark problems the workflow uses.

    Returns:
        The formatter, which renders the failures at the end.
    """
    logging.raiseExceptions = False  # a log file that cannot be written (disk full) is no error
    formatter = JobFormatter(settings.dryrun)
    if not settings.dryrun and "--touch" not in sys.argv:  # --touch runs no job
        logger.addHandler(Journal(problem_sources))
        WaitReporter(formatter, logger.info).start()
    for handler in logger.handlers:
        if handler.name == SNAKEMAKE_HANDLER and not settings.verbose:
            formatter.default_formatter = handler.formatter
            handler.setFormatter(formatter)
            handler.addFilter(formatter)
    return formatter


def _get_output_folder(record: logging.LogRecord) -> str:
    """Return the folder of a job's first output; "" if it has no output."""
    return os.path.dirname(record.output[0]) if record.output else ""


def _shorten_reason(reason: str) -> str:
    """Return Snakemake's reason for planning a job, with numbers of files in place of names."""
    clauses = []
    for clause in PARAMETERS_PATTERN.sub(r"\1", reason).split("; "):
        cause, _, files = clause.partition(": ")
        count = files.count(", ") + 1
        clauses.append(clause if count == 1 else f"{cause}: {count}")
    return _to_short_line("; ".join(clauses))


def _read_last_lines(paths: list[str]) -> list[str]:
    """Return the last lines of the first of these files that is not empty, without empty lines."""
    for path in paths:
        try:
            with Path(path).open("rb") as stream:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - TAIL_BYTES))
                text = stream.read().decode(errors="replace")
        except OSError:
            continue
        # A progress bar rewrites its line after each carriage return.
        lines = [_to_short_line(line.rstrip().rpartition("\r")[2]) for line in text.split("\n")]
        if lines := [line for line in lines if line.strip()]:
            return lines
    return []


def _to_short_line(text: str) -> str:
    """Return a text as one printable line, cut after a word if it is too long."""
    line = "".join(char if char.isprintable() else " " for char in text)
    if len(line) <= MAX_LINE_LENGTH:
        return line
    start = line[:MAX_LINE_LENGTH]
    return f"{start.rpartition(' ')[0] or start}..."


def _wrap_line(line: str, margin: str = "") -> str:
    """Wrap a line to the width of the console."""
    width = shutil.get_terminal_size((DEFAULT_WIDTH, 0)).columns - len(margin)
    return "\n".join(f"{margin}{part}" for part in wrap_text(line, width))


def _note_full_disk() -> str:
    """Return ": the disk is full" if it is full, which explains an empty log; else ""."""
    status = os.statvfs(".")
    return ": the disk is full" if status.f_bavail * status.f_frsize < TAIL_BYTES else ""
