"""Decides which jobs are up to date, by comparing their manifests with specs, files and each other.

The manifest.json of a job has its spec, and the digests of the files that it read and wrote.
Times of files and Snakemake's records are not used, because `git clone`, `git checkout` and `dvc
pull` lose them. A job is up to date if
1. its manifest was written with the present spec: the parameters and the code that decide the job's
   result (`rapid.config.specs`),
2. each file that it read has not changed since, and the job that wrote the file (if it is not the
   user's) is up to date too,
3. the files that it wrote exist and are unchanged.
Snakemake plans all other jobs (workflow/rules/common.smk). The workflow reads only manifests, small
files, and large files of the user that were replaced since to find these jobs, whereas `rapid
verify` and `rapid reconcile` read every file. `rapid accept` marks jobs as up to date that are
stale only because the code changed.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from rapid.artifacts.code import Spec
from rapid.artifacts.files import BadFile, read_json, sha256_file, write_json
from rapid.artifacts.layout import RESULT_FOLDERS, STAGES, list_roots, list_runs
from rapid.artifacts.manifests import MANIFEST, SMALL_FILE, Manifest, remove_path
from rapid.artifacts.runs import CHECKPOINTS

# Named in messages in place of the changed files, if a manifest lists no files of code.
UNLISTED_CODE = "files that are not listed in manifest.json"


@dataclass(frozen=True, eq=False)
class Job:
    """A job of the pipeline.

    Args:
        rule: Snakemake's rule for the job, a key of `rapid.artifacts.layout.STAGES`.
        folder: the folder of the job's files, including the manifest.
        spec: the parameters and the code that decide the job's result.
        options: options of the job's subcommand, each with the paths to read.
        inputs: the jobs whose files the job reads.
        sources: the user's files that the job reads.
    """

    rule: str
    folder: str
    spec: Spec
    options: Mapping[str, Sequence[str]] = field(default_factory=dict)
    inputs: tuple["Job", ...] = ()
    sources: Sequence[str] = ()

    @property
    def stage(self) -> str:
        """The stage of dvc.yaml that runs the job, such as "train"."""
        return STAGES[self.rule].phase

    @property
    def manifest(self) -> str:
        return f"{self.folder}/{MANIFEST}"

    @property
    def declared_outputs(self) -> list[str]:
        """The output files that Snakemake's rules declare: the manifest and small results."""
        return [f"{self.folder}/{name}" for name in (MANIFEST, *STAGES[self.rule].results)]

    def get_inputs(self, option: str) -> list["Job"]:
        """Return the jobs that wrote the files which an option of the subcommand names."""
        return [
            job
            for job in self.inputs
            if any(Path(path).is_relative_to(job.folder) for path in self.options[option])
        ]


@dataclass
class Findings:
    """The state of each job, and the output files that were changed after their jobs ended."""

    current: list[Job] = field(default_factory=list)  # up to date
    stale: dict[Job, str] = field(default_factory=dict)  # job -> why it is stale
    missing: list[Job] = field(default_factory=list)  # no manifest: not run, or not finished
    changed: dict[str, Job] = field(default_factory=dict)  # path of a file -> the job that wrote it

    def describe(self) -> str:
        """Return the findings as lines of text."""
        lines = [f"{path} is not what {job.folder} wrote" for path, job in self.changed.items()]
        lines += [f"stale: {job.folder}: {reason}" for job, reason in self.stale.items()]
        lines += [f"not run: {job.folder}" for job in self.missing]
        total = len(self.current) + len(self.stale) + len(self.missing)
        return "\n".join([*lines, f"{len(self.current)} of {total} jobs are up to date"])


class Examination:
    """Decides the state of jobs, and remembers it.

    Args:
        hash_all: whether to hash every file. Otherwise only small files are hashed.
        ignore_code: whether to ignore changes of code.
        need_all: whether every output must exist; by default the value of `hash_all`. If False,
            files that no rule declares may be missing, for example models that were deleted to save
            space.
    """

    def __init__(
        self, hash_all: bool = True, ignore_code: bool = False, need_all: bool | None = None
    ):
        self.findings = Findings()
        self._hash_all, self._ignore_code = hash_all, ignore_code
        self._need_all = hash_all if need_all is None else need_all
        # Folder of an examined job -> why the job must run; "" if it is up to date.
        self._reasons: dict[str, str] = {}
        # Digests of the unchanged outputs of jobs whose spec and inputs are up to date, by path.
        self._reliable: dict[str, str] = {}
        self._digest = cache(sha256_file)

    def explain(self, job: Job) -> str:
        """Examine a job and its inputs; return why it must be run, "" if it is up to date."""
        if job.folder not in self._reasons:
            for input_job in job.inputs:
                self.explain(input_job)
            self.examine(job)
        return self._reasons[job.folder]

    def examine(self, job: Job) -> None:
        """Examine a job whose input jobs have been examined.

        Files of jobs that were not examined would count as a user's files.
        """
        self._reasons[job.folder] = self._explain_job(job)

    def _explain_job(self, job: Job) -> str:
        """Add a job to the findings; return why it must be run, "" if it is up to date."""
        findings = self.findings
        try:
            manifest = Manifest.read(job.folder)
        except BadFile as error:
            return findings.stale.setdefault(job, str(error))
        if manifest is None:
            findings.missing.append(job)
            return "not run"
        changed = [
            path
            for path, expected in manifest.outputs.items()
            if self._is_output_changed(
                path, expected, is_needed=self._need_all or path in job.declared_outputs
            )
        ]
        findings.changed |= dict.fromkeys(changed, job)
        reason = _explain_changed_spec(job, manifest, self._ignore_code)
        reason = reason or self._explain_changed_inputs(job, manifest)
        if not reason:  # the unchanged outputs are up to date
            outputs = manifest.outputs.items()
            self._reliable |= {path: digest for path, digest in outputs if path not in changed}
            reason = f"its output has changed: {changed[0]}" if changed else ""
        if reason:
            findings.stale[job] = reason
        else:
            findings.current.append(job)
        return reason

    def _is_output_changed(self, path: str, expected: str, is_needed: bool) -> bool:
        """Return whether an output differs from its expected digest, or is missing though needed.

        A large file is not compared unless all files are hashed.
        """
        if not os.path.isfile(path):
            return is_needed
        is_compared = self._hash_all or os.path.getsize(path) <= SMALL_FILE
        return is_compared and self._digest(path) != expected

    def _explain_changed_inputs(self, job: Job, manifest: Manifest) -> str:
        """Return which input of a job has changed since the job ran; "" if none has."""
        if added := [path for path in job.sources if path not in manifest.inputs]:
            return f"its input has changed: {added[0]}"
        for path, expected in manifest.inputs.items():
            # If an examined job writes this file, the job's folder is a parent of the file.
            folders = (folder.as_posix() for folder in Path(path).parents)
            reasons = [self._reasons[folder] for folder in folders if folder in self._reasons]
            if path in self._reliable:
                is_same = self._reliable[path] == expected
            elif reasons and (expected or any(reasons)):
                # The job that wrote it must run, or the file changed or is no output any more.
                return f"its input is not up to date: {path}"
            else:  # a user's file, or an optional file that a finished job did not write
                changed_at = manifest.input_times.get(path)
                is_same = self._is_user_file_unchanged(path, expected, changed_at)
            if not is_same:
                return f"its input has changed: {path}"
        return ""

    def _is_user_file_unchanged(self, path: str, expected: str, changed_at: int | None) -> bool:
        """Return whether a user's file is still the one that a job read.

        Unless all files are hashed, a large file counts as unchanged if its `st_ctime_ns` is still
        the same. Its modification time would not do, because `rsync -a`, `cp -a` and a changed
        symbolic link put an older file in its place.

        Args:
            expected: digest of the file when the job read it; "" if there was no file.
            changed_at: the file's time in `Manifest.input_times`; None if it has none.
        """
        if not os.path.isfile(path):
            return expected == ""
        status = os.stat(path)
        is_untouched = status.st_size > SMALL_FILE and status.st_ctime_ns == changed_at
        return (is_untouched and not self._hash_all) or self._digest(path) == expected


def examine_jobs(
    jobs: list[Job],
    hash_all: bool = True,
    progress: Callable = lambda jobs: jobs,
    ignore_code: bool = False,
    need_all: bool | None = None,
) -> Findings:
    """Decide the state of all jobs.

    Args:
        jobs: each job after its inputs, as `rapid.config.jobs` lists them.
        hash_all, ignore_code, need_all: see `Examination`.
        progress: function that returns an iterator over the jobs, such as tqdm.
    """
    examination = Examination(hash_all, ignore_code, need_all)
    for job in progress(jobs):
        examination.examine(job)
    return examination.findings


def _explain_changed_spec(job: Job, manifest: Manifest, ignore_code: bool) -> str:
    """Return how the spec in a manifest differs from the job's present spec; "" if it is equal."""
    differences = list_differences(manifest.spec, job.spec.model_dump(mode="json"))
    # The digest of the code, under the key "code", is compared below.
    if differences := [text for text in differences if not text.startswith("code: ")]:
        return f"made with other parameters: {_shorten_list(differences)}"
    files = [] if ignore_code else list_changed_code(job, manifest)
    return f"made with other code: {_shorten_list(files)}" if files else ""


def list_differences(old: object, new: object, key: str = "") -> list[str]:
    """List the dotted keys at which two nested dicts differ, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        names = [*old, *(name for name in new if name not in old)]
        return [
            difference
            for name in names
            for difference in list_differences(
                old.get(name), new.get(name), f"{key}.{name}".lstrip(".")
            )
        ]
    return [] if old == new else [f"{key}: {old!r} is now {new!r}"]


def _shorten_list(items: list[str]) -> str:
    return f"{', '.join(items[:3])}{', ...' * (len(items) > 3)}"


def list_changed_code(job: Job, manifest: Manifest) -> list[str]:
    """List the source files that decide a job's result and have changed since the job ended.

    The list is `UNLISTED_CODE` if the code has changed and the manifest lists no files of code.
    """
    if manifest.spec.get("code") == job.spec.code:
        return []
    old_code, new_code = manifest.code, job.spec.hash_code_files()
    changed = sorted(
        file for file in old_code | new_code if old_code.get(file) != new_code.get(file)
    )
    return changed if old_code else [UNLISTED_CODE]


def print_changed_code(jobs: list[Job]) -> None:
    """Print each source file that has changed, and the number of jobs whose result it decides."""
    job_counts: Counter[str] = Counter()
    for job in jobs:
        with suppress(BadFile):  # examining the jobs reports a damaged manifest
            if manifest := Manifest.read(job.folder):
                job_counts.update(list_changed_code(job, manifest))
    for file, count in sorted(job_counts.items()):
        print(f"code has changed: {file} (used by {count} jobs)", file=sys.stderr)


def accept_code_changes(
    jobs: list[Job], progress: Callable = lambda jobs: jobs
) -> tuple[list[Job], Findings]:
    """Mark jobs as up to date that are stale only because code changed.

    Such a job is stale because its own code has changed, or the code of a job whose files it read.
    If a job's own code has changed, its manifest gets the present digests of the code, and a note
    with the old ones. Models that were deleted to save space may be missing. The manifests of
    stale reports are deleted, and those of all reports if a job was accepted, so that Snakemake
    makes the reports again and they list the accepted jobs.

    Returns:
        The accepted jobs, and the findings after accepting them.
    """
    stale = examine_jobs(jobs, hash_all=False).stale
    findings = examine_jobs(jobs, progress=progress, ignore_code=True, need_all=False)
    accepted = [job for job in findings.current if job in stale and job.stage != "report"]
    old_reports = [job for job in findings.stale if job.stage == "report"]
    if accepted:
        old_reports += [job for job in findings.current if job.stage == "report"]
        findings.current = [job for job in findings.current if job.stage != "report"]
    for job in old_reports:
        findings.stale.pop(job, None)
        findings.missing.append(job)
        remove_path(job.manifest)
    for job in accepted:
        manifest = read_json(job.manifest, Manifest)
        if files := list_changed_code(job, manifest):
            old_code = manifest.code
            note = {
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "was": {file: old_code.get(file, "") for file in files if old_code},
            }
            update = {
                "spec": manifest.spec | {"code": job.spec.code},
                "code": job.spec.hash_code_files(),
                "accepted": [*manifest.accepted, note],
            }
            write_json(job.manifest, manifest.model_copy(update=update))
    return accepted, findings


def discard_stale_manifests(findings: Findings) -> None:
    """Delete the manifests of stale jobs, so that Snakemake plans the jobs."""
    for job in findings.stale:
        remove_path(job.manifest)


def discard_unavailable_manifests() -> list[str]:
    """Delete the manifests of jobs that did nothing, so that Snakemake plans these jobs again.

    These jobs lacked something, for example a grader, which `Manifest.unavailable` names.

    Returns:
        The folders of the jobs.
    """
    folders = []
    results = [root / folder for root in list_roots() for folder in RESULT_FOLDERS]
    for path in (file for folder in results for file in folder.rglob(MANIFEST)):
        with suppress(BadFile):  # examining the jobs reports a damaged manifest
            manifest = Manifest.read(path.parent)
            if manifest and manifest.unavailable:
                remove_path(path)
                folders.append(path.parent.as_posix())
    return folders


def discard_checkpoints_of_ended_runs() -> None:
    """Delete the checkpoints of finished runs.

    A run deletes its checkpoints itself, unless it is killed just after it wrote its manifest.
    """
    for folder in list_runs():
        if (folder / MANIFEST).exists():
            remove_path(folder / CHECKPOINTS)
