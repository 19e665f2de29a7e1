"""Commands that check jobs by content: `rapid verify`, `accept`, `reconcile` and `restore`.

`advise` is `rapid` without a command. Each takes the parameter files and returns an exit status.
"""

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import yaml
from tqdm import tqdm

from rapid import freshness
from rapid.artifacts.layout import EXPERIMENT_REPORT, REPORT, RESULT_FOLDERS, list_roots
from rapid.config.jobs import build_plan
from rapid.config.params import load_files
from rapid.freshness import Findings, Job

NO_RESULTS = (
    "it lists no results to pull. On the machine that has them: dvc repro, commit "
    "dvc.lock, dvc push, git push"
)
IN_THE_WAY = "If local files are in the way, `rapid restore --force` replaces them"


def advise(files: list[Path]) -> int:
    """Print the state of this folder, and what to do next."""
    if not all(map(Path.is_file, files)):
        print(f"There is no {files[0]} in this folder: change to the folder of your clone.")
        return 2
    pages = [page for root in list_roots() for page in root.glob(f"{REPORT}/report.html")]
    if pages:
        print("Results, to open in a browser:", *sorted(pages), sep="\n    ")
        print("`snakemake -n` says what is out of date, `rapid verify` which files were changed.")
    elif any(Path(room).is_dir() for room in RESULT_FOLDERS):
        print("Some jobs are done: `make tables` runs the others.")
    else:
        print("No results yet: `make tables` makes them. README.md says how long that takes.")
    print("`rapid --help` lists the commands, README.md introduces them.")
    return 0


def verify(files: list[Path]) -> int:
    """Compare every file with the digests in the manifests, and print the differences."""
    findings = _examine_jobs(files)
    return 1 if findings.changed or findings.stale else 0


def reconcile(files: list[Path]) -> int:
    """Compare every file as `verify` does, and have Snakemake repeat the jobs that are stale."""
    freshness.discard_stale_manifests(_examine_jobs(files))
    return 0


def accept(files: list[Path]) -> int:
    """Accept jobs that are stale by a change of code alone, and print the other stale jobs."""
    planned, progress = _plan_jobs(files)
    freshness.print_changed_code(planned)
    accepted, findings = freshness.accept_code_changes(planned, progress)
    for job in accepted:
        print(f"accepted: {job.folder}")
    print(findings.describe() + ("; snakemake will make the reports again" if accepted else ""))
    return 1 if findings.changed or findings.stale else 0


def restore(files: list[Path], force: bool = False) -> int:
    """Pull results that were pushed elsewhere, and check them.

    Args:
        force: replace local files that differ from the pushed ones and are not in DVC's cache.
    """
    lock = Path("dvc.lock")
    if not lock.is_file() or not (yaml.safe_load(lock.read_text()) or {}).get("stages"):
        print(f"rapid restore: {lock}: {NO_RESULTS}", file=sys.stderr)
        return 1
    pull = [sys.executable, "-m", "dvc", "pull", *(["--force"] if force else [])]
    if subprocess.run(pull, check=False).returncode:
        hint = "" if force else f". {IN_THE_WAY}"
        print(f"rapid restore: dvc pull failed; see above{hint}", file=sys.stderr)
        return 1
    findings = _examine_jobs(files)
    return 1 if findings.changed or not findings.current else 0


def _plan_jobs(files: list[Path]) -> tuple[list[Job], Callable]:
    """Return the jobs of the parameters, and a progress bar for them.

    The jobs of the studies and the arena are optional: they are included once one of them is made.
    So is the report that DVC compares.
    """
    progress = partial(tqdm, desc="verifying", unit="job")
    planned = build_plan(load_files(*files))
    optional = [job for job in planned.optional_jobs if job.folder.startswith(planned.root)]
    is_begun = any(Path(job.manifest).is_file() for job in optional)
    needed = [
        job
        for job in planned.jobs
        if job.folder != EXPERIMENT_REPORT or Path(job.manifest).is_file()
    ]
    return [*needed, *(planned.optional_jobs if is_begun else [])], progress


def _examine_jobs(files: list[Path]) -> Findings:
    planned, progress = _plan_jobs(files)
    findings = freshness.examine_jobs(planned, progress=progress)
    print(findings.describe())
    return findings
