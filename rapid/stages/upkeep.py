"""`rapid verify`, `accept`, `reconcile` and `restore`: which jobs are up to date, by content.

And `rapid` alone: what to do next. Each takes the files of parameters and returns an exit status.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tqdm import tqdm

from rapid.artifacts import freshness
from rapid.artifacts.freshness import Findings, Job
from rapid.config.jobs import plan
from rapid.config.params import load_files


def advise(files: list[Path]) -> int:
    """Say what there is in this folder, and what to do next."""
    if not all(map(Path.is_file, files)):
        print(f"There is no {files[0]} here: go to the folder that you cloned.")
        return 2
    if pages := [*Path().glob("reports/report.html"), *Path().glob("experiments/*/reports/*.html")]:
        print("Results, to open in a browser:", *sorted(pages), sep="\n    ")
        print("`snakemake -n` says what is out of date, `rapid verify` which files were changed.")
    elif Path("runs").is_dir():
        print("Some jobs are done: `make tables` goes on with the others.")
    else:
        print("No results yet: `make tables` makes them; README.md says how long that takes.")
    print("`rapid --help` lists the commands, README.md says what there is.")
    return 0


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
    planned, progress = _jobs(files)
    freshness.say_changed_code(planned)
    accepted, found = freshness.accept(planned, progress)
    for job in accepted:
        print(f"accepted: {job.folder}")
    print(found.describe() + ("; reports are to be made again" if accepted else ""))
    # What is not accepted keeps its manifest, but for reports.
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
    """Return the jobs of the parameters, and what shows how many of them were looked at.

    Nobody has to make the studies or the arena: their jobs are among them once one is made.
    """
    progress = partial(tqdm, desc="verifying", unit="job", disable=not hashed)
    whole = plan(load_files(*files))
    own = [job for job in whole.asked_for if job.folder.startswith(whole.root)]
    is_begun = any(Path(job.manifest).is_file() for job in own)
    return [*whole.jobs, *(whole.asked_for if is_begun else [])], progress


def _examine(files: list[Path], hashed: bool) -> Findings:
    planned, progress = _jobs(files, hashed)
    found = freshness.examine(planned, hashed, progress)
    print(found.describe())
    return found


def _record(files: list[Path], found: Findings) -> int:
    """Have Snakemake take for current what is, and return the exit status of its command.

    It also plans what it has no record of having run with the present parameters. Recording makes
    files younger than what else was made from them, such as another experiment's: they get their
    times back.
    """
    freshness.reconcile(found)
    # Nothing is computed: there is nothing to look at beforehand, and no process to keep warm.
    touch = ["snakemake", "--touch", "--forceall", "--no-hooks", "--cores", "1", "--quiet", "all"]
    targets = [job.manifest for job in found.current]
    written = [path for job in found.current for path in freshness.written(job)]
    times = {path: os.stat(path).st_mtime_ns for path in written}
    status = subprocess.run(
        [sys.executable, "-m", *touch, "--configfile", *map(str, files), "--", *targets],
        check=False,
    ).returncode
    for path, time in times.items():
        os.utime(path, ns=(time, time))
    return status
