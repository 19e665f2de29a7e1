"""What Snakemake's console says of jobs: a line for each, and failures in ten lines at the end.

    [ 37/251] evaluate evaluations/math/tiny-qwen2/pg/seed1: pass@1 12.5% (8.4s, about 12.7m left)

Snakemake's own words, with every path that a job reads and writes, are in its log file in
.snakemake/log, and on the console with --verbose. A job's result is the last line of its log that
begins with the job's folder.
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
from rapid.processes.lifetimes import KILLED_HINT
from rapid.resources.leases import WAITING
from rapid.text import format_duration, wrap_text

SNAKEMAKE_HANDLER = "DefaultStreamHandler"  # Snakemake's name of what prints
JOURNAL_FOLDER, JOURNAL_SUFFIX = (
    Path(".snakemake/log"),
    ".jobs.jsonl",
)  # a workflow's begins with its number
# What a journal has of records of Snakemake's.
JOURNAL_FIELDS = {
    "run_info": ["stats"],
    "job_info": ["jobid", "rule_name", "output", "log"],
    "job_finished": ["job_id"],
    "job_error": ["jobid", "rule_name", "output", "log"],
}
EXIT_PATTERN = re.compile(r"exit status (\d+)|died with <Signals\.(\w+)")
LOG_REDIRECTION = (
    "> {} 2>&1"  # how a job's command, which is in the message of its end, names its log
)
METADATA_RECORDS = (
    "provenance/metadata"  # of Snakemake, which nothing is decided by: manifests are there
)
PARAMETERS_PATTERN = re.compile(
    r"(Params have changed since last execution).*"
)  # all of them, both times
FAILURE_LINES, TAIL_BYTES = 10, 1 << 14
DEFAULT_WIDTH = 160  # of the console, where it is no terminal
MAX_LINE_LENGTH = 1000  # of what is said of a job, which may be a file's whole content
WAIT_SECONDS = 5.0  # from one look for jobs that wait to the next; shorter waits go unsaid
MAX_UNKNOWN_SHARE = 0.25  # of the jobs that are left, of whose rules none may have ended yet


@dataclass(frozen=True)
class RunningJob:
    """A job that Snakemake started. `began` is on the console's clock."""

    rule: str
    folder: str
    log: list[str]
    began: float

    @property
    def name(self) -> str:
        return f"{self.rule} {self.folder}".rstrip()

    @property
    def said(self) -> list[str]:
        """Return the last lines of the job's log."""
        return _read_last_lines(self.log)

    @property
    def is_waiting(self) -> bool:
        """Return whether the job waits for cores or GPUs."""
        return self.said[-1:] != [] and self.said[-1].startswith(WAITING)

    @property
    def result(self) -> str:
        """Return what the job's log says last of its folder."""
        said = [line for line in self.said if line.startswith(f"{self.folder}: ")]
        return said[-1].removeprefix(self.folder) if said else ""


class JobFormatter(logging.Formatter):
    """Formats Snakemake's records of jobs, and leaves the others to the formatter before it.

    `running` are the jobs that began, by number, `left` how many of each rule have not ended,
    `failed` the lines of each that failed, and `reasons` why jobs are planned, by their manifests,
    where Snakemake is not who knows.

    Args:
        ordinary: formats all other records.
        is_dry_run: whether jobs are only planned.
        clock: seconds.
    """

    def __init__(
        self,
        ordinary: logging.Formatter,
        is_dry_run: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__()
        self.ordinary = ordinary
        self._is_dry_run = is_dry_run
        self._clock = clock
        self._began: float | None = None
        self.left: Counter[str] = Counter()  # by rule
        self.total = 0
        self.running: dict[int, RunningJob] = {}
        self._seconds: dict[str, list[float]] = defaultdict(list)  # by rule
        self._ends: list[str] = []  # what Snakemake said of commands that failed
        self.failed: dict[str, list[str]] = {}
        self.reasons: dict[str, str] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is printed; remember what is said of jobs that start."""
        event = getattr(record, "event", None)
        if event == "job_info" and not self._is_dry_run:
            now = self._clock()
            self._began = now if self._began is None else self._began
            job = RunningJob(record.rule_name, _output_folder(record), record.log, now)
            self.running[record.jobid] = job
            self.left[job.rule] += bool(self.failed.pop(job.name, None))  # it is tried again
            return False
        if event == "error" and EXIT_PATTERN.search(record.getMessage()):
            self._ends.append(record.getMessage())
            return False
        if event == "run_info":
            self.left = Counter(record.stats)
            self.total = self.left.pop("total", 0)
        silent = event in ("job_started", "progress") or record.msg == "Select jobs to execute..."
        return not (silent or METADATA_RECORDS in str(record.msg))

    def format(self, record: logging.LogRecord) -> str:
        """Return a line for a job that is planned, has ended or failed."""
        match getattr(record, "event", None):
            case "job_info":
                reasons = [self.reasons[path] for path in record.output if path in self.reasons]
                why = _to_printable_line(reasons[0]) if reasons else _shorten_reason(record.reason)
                return _wrap_line(f"rule {record.rule_name}: {_output_folder(record)} ({why})")
            case "job_finished":
                return self._finished(record.job_id)
            case "job_error":
                return self._failed(record)
            case "error":  # Snakemake's own; of a traceback the last line
                said = record.getMessage().strip().rpartition("\n")[2]
                if lacking := describe_shortage(RuntimeError(said)):
                    return f"Snakemake: {lacking}"
        return self.ordinary.format(record)

    def failures(self) -> str:
        """Return what failed, each in ten lines at most, and what to do."""
        blocks = ["\n".join(lines) for lines in self.failed.values()]
        if not blocks:
            return ""
        todo = "The same command takes up what is left, once the causes are mended."
        return "\n\n".join([f"{len(blocks)} failed:", *blocks, todo])

    def waiting(self) -> list[str]:
        """Return which jobs wait for cores or GPUs for a while already, and what each says."""
        began_before = self._clock() - WAIT_SECONDS
        jobs = [job for job in list(self.running.values()) if job.began <= began_before]
        return [f"{job.name}: {job.said[-1]}" for job in jobs if job.is_waiting]

    def _finished(self, number: int) -> str:
        job = self.running.pop(number, None)
        if job is None:
            return ""
        self.left[job.rule] -= 1
        if not job.folder:  # a target
            return ""
        seconds = self._clock() - job.began
        self._seconds[job.rule].append(seconds)
        left = self.seconds_left()
        about = f", about {format_duration(left)} left" if left else ""
        width = len(str(self.total))
        count = f"[{self.total - self.left.total():{width}}/{self.total}]"
        return _wrap_line(f"{count} {job.name}{job.result} ({format_duration(seconds)}{about})")

    def seconds_left(self) -> float | None:
        """Return how long the jobs that are left take, as those of their rules took so far.

        Those of which none has ended take as long as all did; None while these are too many.
        """
        unknown = sum(count for rule, count in self.left.items() if rule not in self._seconds)
        if unknown > MAX_UNKNOWN_SHARE * self.left.total():
            return None
        every = [seconds for times in self._seconds.values() for seconds in times]
        at_a_time = max(1.0, sum(every) / max(self._clock() - self._began, 1e-9))
        means = {rule: fmean(self._seconds.get(rule, every)) for rule in self.left}
        return sum(count * means[rule] for rule, count in self.left.items()) / at_a_time

    def _failed(self, record: logging.LogRecord) -> str:
        job = self.running.pop(record.jobid, None)
        job = job or RunningJob(record.rule_name, _output_folder(record), record.log, self._clock())
        self.left[job.rule] -= 1
        seconds = format_duration(self._clock() - job.began)
        head = f"FAILED {job.name} ({seconds}{self._how_it_ended(job.log)})"
        tail = [
            part
            for line in _read_last_lines(job.log)
            for part in _wrap_line(line, "  | ").split("\n")
        ]
        tail = tail[2 - FAILURE_LINES :]
        log = ", ".join(job.log)
        about = f"{log} ends:" if tail else f"{log or 'its log'} says nothing{_note_full_disk()}"
        self.failed[job.name] = [head, f"  {about}", *tail]
        return head

    def _how_it_ended(self, log: list[str]) -> str:
        for said in reversed(self._ends):
            if any(LOG_REDIRECTION.format(path) in said for path in log):
                status, signal = EXIT_PATTERN.search(said).groups()
                return f", killed by {signal}{KILLED_HINT}" if signal else f", exit status {status}"
        return ""


class WaitReporter(threading.Thread):
    """Says on the console that jobs wait for cores or GPUs: once, until none of them does.

    Args:
        say: writes a text to the console.
    """

    def __init__(self, console: JobFormatter, say: Callable[[str], None]):
        super().__init__(daemon=True)
        self._console, self._say = console, say
        self._is_said = False

    def run(self) -> None:
        while True:
            time.sleep(WAIT_SECONDS)
            self.look()

    def look(self) -> None:
        """Look at the jobs that run, and say it if some of them wait."""
        waiting = self._console.waiting()
        if waiting and not self._is_said:
            others = f" (and {len(waiting) - 1} more)" if len(waiting) > 1 else ""
            self._say(f"{waiting[0]}{others}")
        self._is_said = bool(waiting)


class Journal(logging.Handler):
    """Writes what becomes of jobs to a file in this folder, for `rapid watch`: a line for each.

    Args:
        problems: what the problems are, a sentence.
    """

    def __init__(self, folder: Path = JOURNAL_FOLDER, problems: str = ""):
        super().__init__()
        self._problems = problems
        self._file = folder.absolute() / f"{os.getpid()}{JOURNAL_SUFFIX}"
        since = psutil.Process().create_time()
        self._writer = {"pid": os.getpid(), "host": platform.node(), "since": since}

    def emit(self, record: logging.LogRecord) -> None:
        event = getattr(record, "event", None)
        if event not in JOURNAL_FIELDS:
            return
        row = {"event": event, "at": time.time(), **self._writer}
        row |= {name: getattr(record, name) for name in JOURNAL_FIELDS[event]}
        row |= {"problems": self._problems} if event == "run_info" else {}
        with suppress(OSError):  # no workflow fails for want of it
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("w" if event == "run_info" else "a") as file:
                file.write(json.dumps(row) + "\n")


def install_console(logger: logging.Logger, settings, problems: str = "") -> JobFormatter:
    """Have Snakemake's console say a line a job, and return what knows of the failures.

    Args:
        settings: Snakemake's, of its output. With --verbose the console stays as it is.
        problems: what the problems are, a sentence for `rapid watch`.
    """
    logging.raiseExceptions = False  # where its log file has no room, the console goes on
    console = JobFormatter(logging.Formatter(), settings.dryrun)
    if not settings.dryrun and "--touch" not in sys.argv:  # which runs no job
        logger.addHandler(Journal(problems=problems))
        WaitReporter(console, logger.info).start()
    for handler in logger.handlers:
        if handler.name == SNAKEMAKE_HANDLER and not settings.verbose:
            console.ordinary = handler.formatter
            handler.setFormatter(console)
            handler.addFilter(console)
    return console


def _output_folder(record: logging.LogRecord) -> str:
    return os.path.dirname(record.output[0]) if record.output else ""


def _shorten_reason(reason: str) -> str:
    """Return why Snakemake plans a job, with the number of files in place of several."""
    found = []
    for clause in PARAMETERS_PATTERN.sub(r"\1", reason).split("; "):
        what, _, files = clause.partition(": ")
        count = files.count(", ") + 1
        found.append(clause if count == 1 else f"{what}: {count}")
    return _to_printable_line("; ".join(found))


def _read_last_lines(paths: list[str]) -> list[str]:
    """Return the last lines of the first of these files that says something."""
    for path in paths:
        try:
            with Path(path).open("rb") as stream:
                stream.seek(max(0, stream.seek(0, os.SEEK_END) - TAIL_BYTES))
                text = stream.read().decode(errors="replace")
        except OSError:
            continue
        # A progress bar writes its line again and again.
        lines = [_to_printable_line(line.rstrip().rpartition("\r")[2]) for line in text.split("\n")]
        if lines := [line for line in lines if line.strip()]:
            return lines
    return []


def _to_printable_line(text: str) -> str:
    """Return one printable line, cut after a word where it is too long."""
    line = "".join(char if char.isprintable() else " " for char in text)
    if len(line) <= MAX_LINE_LENGTH:
        return line
    return f"{line[:MAX_LINE_LENGTH].rpartition(' ')[0] or line[:MAX_LINE_LENGTH]}..."


def _wrap_line(line: str, margin: str = "") -> str:
    """Return a line as the console has it: in several lines where it is long."""
    width = shutil.get_terminal_size((DEFAULT_WIDTH, 0)).columns - len(margin)
    return "\n".join(f"{margin}{piece}" for piece in wrap_text(line, width))


def _note_full_disk() -> str:
    found = os.statvfs(".")
    return ": the disk is full" if found.f_bavail * found.f_frsize < TAIL_BYTES else ""
