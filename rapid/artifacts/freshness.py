"""Which jobs are up to date, by content: their manifests against specs, files and each other.

Snakemake decides by the times of files, which say nothing after a clone, a checkout or a pull. A job is
up to date if its manifest was written with the present parameters, every file that it read is the one
that the job before it wrote (or, if no job wrote it, is unchanged), and every file that it wrote is there.
`reconcile` makes the times say the same.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pydantic import BaseModel

from rapid.artifacts.files import sha256_file
from rapid.artifacts.manifests import MANIFEST

FOLDERS = ("data", "models", "distilled", "runs", "evaluations")  # each the output of a DVC stage
STEP = 1e-3  # seconds between what was read and what was made of it


@dataclass(frozen=True, eq=False)
class Job:
    """One job.

    Args:
        stage: of the pipeline; one of `rapid.config.jobs.STAGES`.
        folder: where it writes its files, its manifest among them.
        spec: what decides its result.
        command: what does it: a subcommand of `rapid`, with the options for what it reads.
        inputs: the jobs whose files it reads.
    """

    stage: str
    folder: str
    spec: BaseModel
    command: str = ""
    inputs: tuple["Job", ...] = ()

    @property
    def manifest(self) -> str:
        return f"{self.folder}/{MANIFEST}"


@dataclass
class Findings:
    """What was found of jobs: why those that are not up to date are not, and files that were changed."""

    current: list[Job] = field(default_factory=list)
    stale: dict[Job, str] = field(default_factory=dict)
    missing: list[Job] = field(default_factory=list)
    changed: dict[str, Job] = field(default_factory=dict)  # file: the job that wrote another one

    def describe(self) -> str:
        """A person's account of it."""
        lines = [f"{path} is not what {job.folder} wrote" for path, job in self.changed.items()]
        lines += [f"stale: {job.folder}: {why}" for job, why in self.stale.items()]
        lines += [f"not made: {job.folder}" for job in self.missing]
        total = len(self.current) + len(self.stale) + len(self.missing)
        return "\n".join([*lines, f"{len(self.current)} of {total} jobs are up to date"])


def examine(
    jobs: list[Job], hashed: bool = True, progress: Callable = lambda jobs: jobs
) -> Findings:
    """Look at every job's manifest.

    Args:
        jobs: each after those whose files it reads (`rapid.config.jobs`).
        hashed: compare the digest of every file with its manifest; otherwise a file need only be there.
        progress: wraps the jobs, as tqdm does.
    """
    found = Findings()
    written: dict[str, str] = {}  # what can be relied on: file: digest
    folders = {job.folder for job in jobs}
    digest = cache(sha256_file)
    for job in progress(jobs):
        manifest = _read(job)
        if manifest is None:
            found.missing.append(job)
            continue
        changed = [
            path
            for path, expected in manifest["outputs"].items()
            if not os.path.isfile(path) or (hashed and digest(path) != expected)
        ]
        found.changed |= dict.fromkeys(changed, job)
        why = _why_stale(job, manifest, written, folders, found, digest)
        if not why:  # of what it wrote, what is unchanged can be relied on
            written |= {p: d for p, d in manifest["outputs"].items() if p not in changed}
        if why or changed:
            found.stale[job] = why or f"what it wrote has changed: {changed[0]}"
        else:
            found.current.append(job)
    return found


def _read(job: Job) -> dict | None:
    try:
        return json.loads(Path(job.manifest).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):  # cut off while it was written, or not text
        return {"spec": "unreadable", "inputs": {}, "outputs": {}}


def _why_stale(
    job: Job,
    manifest: dict,
    written: dict[str, str],
    folders: set[str],
    found: Findings,
    digest: Callable,
) -> str:
    """Why what it was made from is not what there is."""
    if keys := differences(manifest["spec"], job.spec.model_dump(mode="json")):
        return f"made with other parameters: {', '.join(keys[:3])}{', ...' * (len(keys) > 3)}"
    complete = {each.folder for each in found.current}
    for path, expected in manifest["inputs"].items():
        owners = {str(folder) for folder in Path(path).parents} & folders
        if path in written:
            same = written[path] == expected
        elif owners and (expected or not owners <= complete):
            return f"what it read is not up to date: {path}"
        else:  # a file of the user's, or one that a finished job may write and did not
            same = (digest(path) if os.path.isfile(path) else "") == expected
        if not same:
            return f"what it read has changed: {path}"
    return ""


def differences(one: object, other: object, key: str = "") -> list[str]:
    """The keys at which two values made of dicts differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = [*one, *(name for name in other if name not in one)]
        return [
            found
            for name in names
            for found in differences(one.get(name), other.get(name), f"{key}.{name}".lstrip("."))
        ]
    return [] if one == other else [f"{key}: {one!r} is now {other!r}"]


def reconcile(found: Findings) -> None:
    """Make the times of files say what was found, for Snakemake.

    The manifests of stale jobs are deleted, so that the jobs are planned. Where files of the others
    are older than what they were made from, they become a little younger. What is in order is left
    as it is: other experiments may have read it.
    """
    for folder in FOLDERS:  # DVC wants it to be there, also where nobody needs a job of that stage
        Path(folder).mkdir(exist_ok=True)
    for job in found.stale:
        Path(job.manifest).unlink()
    for job in found.current:
        manifest = _read(job)
        written = [*manifest["outputs"], job.manifest]
        read = [*manifest["inputs"], *(each.manifest for each in job.inputs)]
        latest = max((os.path.getmtime(path) for path in read if os.path.exists(path)), default=0)
        if latest >= min(map(os.path.getmtime, written)):
            for path in written:
                os.utime(path, (latest + STEP, latest + STEP))
