"""Commands that check the files of jobs: `rapid verify`, `accept`, `reconcile` and `restore`.

`rapid` without a subcommand calls `advise`. Each function takes the parameter files and returns an
exit status. `rapid.freshness` defines when a job is up to date and when it is stale.
"""

import subprocess
import sys
from functools import partial
from pathlib import Path

import yaml
from tqdm import tqdm

from rapid import freshness
from rapid.artifacts.layout import (
    ARENA,
    EXPERIMENT_REPORT,
    REPORT,
    RESULT_FOLDERS,
    STUDIES,
    list_roots,
)
from rapid.artifacts.manifests import MANIFEST, remove_path
from rapid.config.jobs import build_plan
from rapid.config.params import load_config_files
from rapid.freshness import Findings, Job

NOTHING_TO_PULL = (
    "it is missing or lists no results to pull. On the machine that has results: dvc repro, commit "
    "dvc.lock, dvc push, git push"
)
FORCE_HINT = (
    "If local files are in the way, `rapid restore --force` replaces them, and deletes results "
    "that dvc.lock does not list, such as those of studies or other seeds: copy what you need first"
)
show_progress = partial(tqdm, desc="verifying", unit="job")


def advise(files: list[Path]) -> int:
    """Print the state of this folder, and what to do next."""
    if not all(map(Path.is_file, files)):
        print(f"There is no {files[0]} in this folder: change to the folder of your clone.")
        return 2
    pages = [page for root in list_roots() for page in root.glob(f"{REPORT}/report.html")]
    if pages:
        print("Results, to open in a browser:", *sorted(pages), sep="\n    ")
        print("`snakemake -n` lists stale jobs, and `rapid verify` lists changed files.")
    elif any(Path(folder).is_dir() for folder in RESULT_FOLDERS):
        print("Some jobs are done: `make tables` runs the others.")
    else:
        print("No results yet: run `make tables`. README.md says how long that takes.")
    print("`rapid --help` lists the commands, and README.md introduces them.")
    return 0


def verify(files: list[Path]) -> int:
    """Compare every file with the digests in the manifests, and print the differences.

    The status is 1 if files were changed or jobs are stale.
    """
    findings = _examine_jobs(files)
    return 1 if findings.changed or findings.stale else 0


def reconcile(files: list[Path]) -> int:
    """Compare every file as `verify` does, and make Snakemake repeat the stale jobs.

    The status is 0 even if there were stale jobs, so that a script can go on with Snakemake.
    """
    freshness.discard_stale_manifests(_examine_jobs(files))
    return 0


def accept(files: list[Path]) -> int:
    """Mark jobs as up to date that are stale only because code changed; print other stale jobs.

    The status is 1 if files were changed or other jobs are stale.
    """
    jobs = _plan_jobs(files)
    freshness.print_changed_code(jobs)
    accepted, findings = freshness.accept_code_changes(jobs, show_progress)
    for job in accepted:
        print(f"accepted: {job.folder}")
    plan = build_plan(load_config_files(files))
    if plan.default and any(not job.folder.startswith(plan.root) for job in accepted):
        # The default's reports also show these jobs.
        for report in (REPORT, EXPERIMENT_REPORT, STUDIES, ARENA):
            remove_path(Path(report, MANIFEST))
    print(findings.describe() + ("; snakemake will make the reports again" if accepted else ""))
    return 1 if findings.changed or findings.stale else 0


def restore(files: list[Path], force: bool = False) -> int:
    """Pull results that were pushed elsewhere, and check them.

    The status is 1 if nothing can be pulled, files were changed, or no job is up to date. Stale
    jobs are printed, but do not change the status.

    Args:
        force: replace or delete local files, so that the results are the pushed ones, even if the
            files are not in DVC's cache.
    """
    lock = Path("dvc.lock")
    if not lock.is_file() or not (yaml.safe_load(lock.read_text()) or {}).get("stages"):
        print(f"rapid restore: {lock}: {NOTHING_TO_PULL}", file=sys.stderr)
        return 1
    pull_command = [sys.executable, "-m", "dvc", "pull", *(["--force"] if force else [])]
    if subprocess.run(pull_command, check=False).returncode:
        hint = "" if force else f". {FORCE_HINT}"
        print(f"rapid restore: dvc pull failed; see above{hint}", file=sys.stderr)
        return 1
    findings = _examine_jobs(files)
    return 1 if findings.changed or not findings.current else 0


def _plan_jobs(files: list[Path]) -> list[Job]:
    """Return the jobs of the parameters.

    The jobs of the studies and the arena are included only if at least one of them has been run.
    The report that DVC compares is included only if it has been made.
    """
    plan = build_plan(load_config_files(files))
    # Jobs that a named experiment shares with the default do not count.
    optional = [job for job in plan.optional_jobs if job.folder.startswith(plan.root)]
    is_begun = any(Path(job.manifest).is_file() for job in optional)
    needed_jobs = [
        job for job in plan.jobs if job.folder != EXPERIMENT_REPORT or Path(job.manifest).is_file()
    ]
    return [*needed_jobs, *(plan.optional_jobs if is_begun else [])]


def _examine_jobs(files: list[Path]) -> Findings:
    """Compare every file of the jobs with the manifests, and print and return the findings."""
    findings = freshness.examine_jobs(_plan_jobs(files), progress=show_progress)
    print(findings.describe())
    return findings
