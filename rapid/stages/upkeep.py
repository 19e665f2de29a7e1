"""`rapid verify`, `accept`, `reconcile` and `restore`: which jobs are up to date, by content.

Each takes the files of parameters and returns an exit status.
"""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tqdm import tqdm

from rapid.artifacts import freshness
from rapid.artifacts.freshness import Findings, Job
from rapid.config.jobs import jobs
from rapid.config.params import load, read


def verify(files: list[Path]) -> int:
    """Compare every file with the digests in the manifests, and say what differs."""
    found = _examine(files, hashed=True)
    return 1 if found.changed or found.stale else 0


def reconcile(files: list[Path]) -> int:
    """Let Snakemake plan what is not up to date by content, and no more."""
    freshness.reconcile(_examine(files, hashed=False))
    return 0


def accept(files: list[Path]) -> int:
    """Take for current what is stale by a change of code alone, and say what is not."""
    accepted, found = freshness.accept(*_jobs(files))
    for job in accepted:
        print(f"accepted: {job.folder}")
    print(found.describe())
    # What is not accepted keeps its manifest.
    failed = _record(files, Findings(current=found.current)) if accepted else 0
    return 1 if found.changed or found.stale else failed


def restore(files: list[Path]) -> int:
    """Pull what was pushed elsewhere, and make it usable here."""
    if subprocess.run([sys.executable, "-m", "dvc", "pull"], check=False).returncode:
        print("rapid restore: dvc pull failed; see above", file=sys.stderr)
        return 1
    found = _examine(files, hashed=True)
    if found.changed or not found.current:
        return 1
    return _record(files, found)


def _jobs(files: list[Path], hashed: bool = True) -> tuple[list[Job], Callable]:
    """Return the jobs of the parameters, and what shows how many of them were looked at."""
    progress = partial(tqdm, desc="verifying", unit="job", disable=not hashed)
    return jobs(load(read(*files))), progress


def _examine(files: list[Path], hashed: bool) -> Findings:
    planned, progress = _jobs(files, hashed)
    found = freshness.examine(planned, hashed, progress)
    print(found.describe())
    return found


def _record(files: list[Path], found: Findings) -> int:
    """Have Snakemake take for current what is, and return the exit status of its command.

    It also plans what it has no record of having run with the present parameters.
    """
    freshness.reconcile(found)
    touch = ["snakemake", "--touch", "--forceall", "--cores", "1", "--quiet", "all", "--configfile"]
    targets = [job.manifest for job in found.current]
    return subprocess.run(
        [sys.executable, "-m", *touch, *map(str, files), "--", *targets], check=False
    ).returncode
