"""Which jobs are up to date, by content: their manifests against specs, files and each other.

Snakemake decides by the times of files, which say nothing after a clone, a checkout or a pull. A
job is up to date if its manifest was written with the present parameters and the present code,
every file that it read is the one that the job before it wrote (or, if no job wrote it, is
unchanged), and every file that it wrote is there. `reconcile` makes the times say the same;
`accept` takes for current what is stale by its code alone.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from rapid.artifacts.code import Spec
from rapid.artifacts.files import BadFile, sha256_file, write_json
from rapid.artifacts.manifests import MANIFEST, Manifest, discard

FOLDERS = ("data", "models", "distilled", "runs", "evaluations")  # each the output of a DVC stage
MEASURED = ("benchmarks/**/*.tsv", "experiments/*/benchmarks/**/*.tsv")  # by Snakemake
STEP = 1e-3  # seconds between what was read and what was made of it
SMALL = 1 << 20  # bytes of a file that is always compared, which takes no time
UNNAMED = "code that its manifest does not name"


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
    spec: Spec
    command: str = ""
    inputs: tuple["Job", ...] = ()

    @property
    def manifest(self) -> str:
        return f"{self.folder}/{MANIFEST}"


@dataclass
class Findings:
    """Jobs by what was found of them, with why they are stale, and files that were changed."""

    current: list[Job] = field(default_factory=list)
    stale: dict[Job, str] = field(default_factory=dict)
    missing: list[Job] = field(default_factory=list)
    changed: dict[str, Job] = field(default_factory=dict)  # file: the job that wrote another one

    def describe(self) -> str:
        """Return an account of it for a person."""
        lines = [f"{path} is not what {job.folder} wrote" for path, job in self.changed.items()]
        lines += [f"stale: {job.folder}: {why}" for job, why in self.stale.items()]
        lines += [f"not made: {job.folder}" for job in self.missing]
        total = len(self.current) + len(self.stale) + len(self.missing)
        return "\n".join([*lines, f"{len(self.current)} of {total} jobs are up to date"])


def examine(
    jobs: list[Job],
    hashed: bool = True,
    progress: Callable = lambda jobs: jobs,
    any_code: bool = False,
) -> Findings:
    """Look at every job's manifest.

    Args:
        jobs: each after those whose files it reads (`rapid.config.jobs`).
        hashed: compare the digest of every file with its manifest; else large ones need only be
            there.
        progress: wraps the jobs, as tqdm does.
        any_code: take what was made with other code for current.
    """
    found = Findings()
    written: dict[str, str] = {}  # what can be relied on: file: digest
    folders: set[str] = set()  # of the jobs so far
    digest = cache(sha256_file)
    for job in progress(jobs):
        folders.add(job.folder)
        try:
            manifest = Manifest.read(job.folder)
        except BadFile as error:
            found.stale[job] = str(error)
            continue
        if manifest is None:
            found.missing.append(job)
            continue
        changed = [
            path
            for path, expected in manifest.outputs.items()
            if not os.path.isfile(path)
            or ((hashed or os.path.getsize(path) <= SMALL) and digest(path) != expected)
        ]
        found.changed |= dict.fromkeys(changed, job)
        why = _made_otherwise(job, manifest, any_code)
        why = why or _read_otherwise(manifest, written, folders, found, digest)
        if not why:  # of what it wrote, what is unchanged can be relied on
            written |= {p: d for p, d in manifest.outputs.items() if p not in changed}
        if why or changed:
            found.stale[job] = why or f"what it wrote has changed: {changed[0]}"
        else:
            found.current.append(job)
    return found


def _made_otherwise(job: Job, manifest: Manifest, any_code: bool) -> str:
    """Return why a job was made with another spec than it would be now."""
    keys = differences(manifest.spec, job.spec.model_dump(mode="json"))
    if keys := [key for key in keys if not key.startswith("code: ")]:
        return f"made with other parameters: {_some(keys)}"
    files = [] if any_code else changed_code(job, manifest)
    return f"made with other code: {_some(files)}" if files else ""


def _read_otherwise(
    manifest: Manifest,
    written: dict[str, str],
    folders: set[str],
    found: Findings,
    digest: Callable,
) -> str:
    """Return why what a job was made from is not what there is."""
    complete = {each.folder for each in found.current}
    for path, expected in manifest.inputs.items():
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
    """Return the keys at which two values made of dicts differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = [*one, *(name for name in other if name not in one)]
        return [
            found
            for name in names
            for found in differences(one.get(name), other.get(name), f"{key}.{name}".lstrip("."))
        ]
    return [] if one == other else [f"{key}: {one!r} is now {other!r}"]


def _some(items: list[str]) -> str:
    return f"{', '.join(items[:3])}{', ...' * (len(items) > 3)}"


def changed_code(job: Job, manifest: Manifest) -> list[str]:
    """Return the files of code that are not as they were when the job was made."""
    if manifest.spec.get("code") == job.spec.code:
        return []
    was, now = manifest.code, job.spec.files()
    changed = sorted(file for file in was | now if was.get(file) != now.get(file))
    return changed if was else [UNNAMED]


def say_changed_code(jobs: list[Job]) -> None:
    """Print the files of code that changed since jobs were made, and how many jobs that reaches."""
    reached: Counter[str] = Counter()
    for job in jobs:
        with suppress(BadFile):  # said where it is read
            if manifest := Manifest.read(job.folder):
                reached.update(changed_code(job, manifest))
    for file, count in sorted(reached.items()):
        print(f"made with other code: {file} (own code of {count} jobs)", file=sys.stderr)


def accept(jobs: list[Job], progress: Callable = lambda jobs: jobs) -> tuple[list[Job], Findings]:
    """Take for current what is stale only by its code, or by the code of what it read.

    The manifest of a job whose own code changed gets the present digests and a note of the old
    ones. No digest of another job changes by that. A manifest keeps its time: what was made from
    the job is not older than it. Reports say what was accepted: their manifests are deleted, so
    that they are made again.

    Returns: the jobs that were accepted, and what is up to date with them.
    """
    stale = examine(jobs, hashed=False).stale
    found = examine(jobs, progress=progress, any_code=True)
    reports = [job for job in found.current if job.stage == "report"]
    accepted = [job for job in found.current if job in stale and job not in reports]
    if accepted:
        found.current = [job for job in found.current if job not in reports]
        for job in reports:
            discard(job.manifest)
    for job in accepted:
        manifest = _ended(job)
        if files := changed_code(job, manifest):
            was = manifest.code
            note = {
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "was": {file: was.get(file, "") for file in files if was},
            }
            update = {
                "spec": manifest.spec | {"code": job.spec.code},
                "code": job.spec.files(),
                "accepted": [*manifest.accepted, note],
            }
            time = os.stat(job.manifest).st_mtime_ns
            write_json(job.manifest, manifest.model_copy(update=update))
            os.utime(job.manifest, ns=(time, time))
    return accepted, found


def reconcile(found: Findings) -> None:
    """Make the times of files say what was found, for Snakemake.

    The manifests of stale jobs are deleted, so that the jobs are planned. Where files of the others
    are older than what they were made from, they become a little younger. What is in order is left
    as it is: other experiments may have read it. Snakemake's own measurements of jobs count as
    files that these wrote: they become younger than all.
    """
    for folder in FOLDERS:  # DVC wants it to be there, also where nobody needs a job of that stage
        Path(folder).mkdir(exist_ok=True)
    for job in found.stale:
        discard(job.manifest)
    newest = 0.0
    for job in found.current:
        read = [*_ended(job).inputs, *(each.manifest for each in job.inputs)]
        latest = max((os.path.getmtime(path) for path in read if os.path.exists(path)), default=0)
        newest = max(newest, latest)
        if latest >= min(map(os.path.getmtime, written(job))):
            _make_younger(written(job), latest)
    measured = [path for pattern in MEASURED for path in Path().glob(pattern)]
    _make_younger([path for path in measured if path.stat().st_mtime <= newest], newest)


def discard_unavailable() -> list[str]:
    """Delete the manifests of jobs that could do nothing, to be planned; return their folders."""
    found = []
    for root in (Path(), *Path("experiments").glob("*/")):
        for path in (each for name in FOLDERS for each in (root / name).rglob(MANIFEST)):
            with suppress(BadFile):  # said where it is read
                manifest = Manifest.read(path.parent)
                if manifest and manifest.unavailable:
                    discard(path)
                    found.append(path.parent.as_posix())
    return found


def _make_younger(paths: Iterable[Path | str], than: float) -> None:
    for path in paths:
        os.utime(path, (than + STEP, than + STEP))


def written(job: Job) -> list[str]:
    """Return the files that a job wrote, by its manifest, and the manifest."""
    return [*_ended(job).outputs, job.manifest]


def _ended(job: Job) -> Manifest:
    """Return the manifest of a job that has ended."""
    if (manifest := Manifest.read(job.folder)) is None:
        raise BadFile(f"{job.manifest} was deleted meanwhile: give the command again")
    return manifest
