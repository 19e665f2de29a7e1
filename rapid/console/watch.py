"""`rapid watch`: what the workflow in this folder does, from files alone.

The workflow's journal says which jobs began and ended (`rapid.console.workflow`), a training run's
progress.jsonl how far it is, a job's log the rest.
"""

import json
import logging
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
from rapid.console.workflow import JOURNAL, JOURNALS, Console, Job
from rapid.resources.leases import WAITING
from rapid.text import columns, duration, wrap

SECONDS = 1.0  # from one look to the next
QUEUED = "queued"
CLOCK_SECONDS = 60.0  # by which the time of a process's creation may seem to move
ENDED_LINES = 10  # of jobs that ended last, where there is no terminal to fill
# A terminal's other screen, and back; its upper left; what clears the rest of a line, and below it.
OPEN, CLOSE, HOME, END_OF_LINE, BELOW = "\x1b[?1049h", "\x1b[?1049l", "\x1b[H", "\x1b[K", "\x1b[J"


class Workflow:
    """A workflow, as far as its journal has been read."""

    def __init__(self, journal: Path):
        self._stream = journal.open(encoding="utf-8")
        self._rest = ""  # of a line that is being written
        self._began: dict = {}  # the journal's first row
        self._now = 0.0
        self._jobs = Console(logging.Formatter(), clock=lambda: self._now)
        self._ended: list[str] = []  # a line for each job

    def read(self) -> None:
        """Take in what was written since the last call."""
        *lines, self._rest = (self._rest + self._stream.read()).split("\n")
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:  # the disk was full as it was written
                continue
            self._began = self._began or row
            self._now = row["at"]
            record = SimpleNamespace(msg="", **row)
            if self._jobs.filter(record) and row["event"] != "run_info":
                self._ended += filter(None, [self._jobs.format(record)])
        self._now = time.time()

    def is_alive(self) -> bool:
        """Return whether its process is; on another machine it is taken to be."""
        return self._began.get("host") != platform.node() or _lives(self._began)

    def succeeded(self) -> bool:
        """Return whether all jobs are done."""
        return bool(self._began) and not (self._jobs.left.total() or self._jobs.failed)

    def lines(self, height: int | None = None) -> list[str]:
        """Return what there is to say, in as many lines as a terminal has."""
        jobs = self._jobs
        begun = [
            (job.name, duration(self._now - job.began), _state(job))
            for job in jobs.running.values()
        ]
        total, failed = jobs.left.total(), len(jobs.failed)
        running = sum(not state.startswith((QUEUED, WAITING)) for *_, state in begun)
        head = f"{jobs.total} jobs: {jobs.total - total - failed} done, {running} running, "
        head += f"{total - running} waiting, {failed} failed"
        if begun and (seconds := jobs.seconds_left()):
            head += f"; about {duration(seconds)} left"
        if total and not self.is_alive():
            head += "; the workflow has ended"
        heads = [head, *filter(None, [self._began.get("problems")])]
        parts = [heads, columns(begun), jobs.failures().splitlines()]
        room = ENDED_LINES if height is None else height - sum(len(p) + 1 for p in parts if p)
        parts.insert(2, self._ended[-room:] if room > 0 else [])
        return "\n\n".join("\n".join(part) for part in parts if part).splitlines()[:height]


def _state(job: Job) -> str:
    """Return how far a job is: a run's step, reward and time left; of others the log's last line.

    The reward is the mean of the last tenth of the steps so far. A job writes its log anew when it
    starts: one that is only queued, by SLURM for example, has none or an earlier one's.
    """
    if max(map(_written, job.log), default=job.began) < job.began - SECONDS:
        return QUEUED
    said = next(reversed(job.said), "")
    steps = read_progress(Path(job.folder))
    if not steps or said.startswith(WAITING):
        return said
    last = steps[-1]
    rewards = [step.reward for step in steps[-max(1, len(steps) // 10) :]]
    known = [reward for reward in rewards if reward is not None]
    reward = f", reward {fmean(known):.1%}" if known else ""
    left = last.seconds / last.step * (last.of - last.step)
    return f"step {last.step} of {last.of}{reward}, about {duration(left)} left"


def _written(log: str) -> float:
    """Return when a file was last written; 0 where there is none."""
    with suppress(OSError):
        return Path(log).stat().st_mtime
    return 0.0


def watch(once: bool) -> int:
    """Show the workflow that lives in this folder, or ended last; return 0 if all jobs are done.

    In a terminal it is shown until it ends, or until Ctrl-C.

    Args:
        once: print it as it is now, and return 0.

    Raises:
        BadInput: there was none.
    """
    journals = sorted(JOURNALS.glob(f"*{JOURNAL}"), key=lambda file: file.stat().st_mtime)
    if not journals:
        raise BadInput("no workflow has begun in this folder: start one in another terminal")
    living = [file for file in journals if _lives(_first(file))]
    workflow = Workflow((living or journals)[-1])
    workflow.read()
    if not once:
        _follow(workflow)
    print("\n".join(workflow.lines()))
    return 0 if once or workflow.succeeded() else 1


def _first(journal: Path) -> dict:
    """Return a journal's first row; {} where there is none yet."""
    with suppress(ValueError), journal.open(encoding="utf-8") as stream:
        return json.loads(stream.readline())
    return {}


def _lives(began: dict) -> bool:
    """Return whether the process that wrote this row is alive on this machine.

    A process that was created later has its number only.
    """
    with suppress(psutil.Error, KeyError):
        process = psutil.Process(began["pid"])
        is_it = process.create_time() < began["since"] + CLOCK_SECONDS
        here = began["host"] == platform.node()
        return here and is_it and process.status() != psutil.STATUS_ZOMBIE
    return False


def _follow(workflow: Workflow) -> None:
    print(OPEN, end="")
    try:
        while workflow.is_alive() and not workflow.succeeded():
            workflow.read()
            size = shutil.get_terminal_size()
            said = workflow.lines(size.lines - 1)
            lines = [part for line in said for part in wrap(line, size.columns) or [""]]
            lines = [line[: size.columns] for line in lines[: size.lines - 1]]
            print(HOME, *(f"{line}{END_OF_LINE}\n" for line in lines), BELOW, sep="", end="")
            sys.stdout.flush()
            time.sleep(SECONDS)
    except KeyboardInterrupt:
        pass
    finally:
        print(CLOSE, end="")
    workflow.read()
