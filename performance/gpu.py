"""`make gpu`: run the tests that need a GPU, and benchmarks on it, without installing anything.

    python3 -m performance.gpu

The Python that runs this must have the packages in `PREINSTALLED`. The packages in `WHEEL_PACKAGES`
that it lacks are unpacked into .gpu/site from wheels in .gpu/wheels, which are for Python 3.12. To
download the wheels, run on a machine with a network

    python -m performance.gpu --wheels [NAME ...]

To resume an interrupted benchmark, run the same command again. Other options are passed on to
performance.bench: `--part j` runs the tests only, `--part k --models Qwen2.5-0.5B` the benchmark of
one model.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).parent.parent
# Of performance/parts.yaml: j are the tests, k a benchmark, c and e benchmarks with vLLM.
GPU_PARTS = "jkce"
WHEELS, SITE = ROOT / ".gpu" / "wheels", ROOT / ".gpu" / "site"
# Packages that must be installed on the GPU machine.
PREINSTALLED = (
    "torch", "transformers", "accelerate", "pandas", "pyarrow", "psutil", "filelock", "jinja2",
)  # fmt: skip
# Packages that are copied as wheels to the GPU machine, which may have no network.
WHEEL_PACKAGES = (
    "trl", "datasets", "dill", "multiprocess", "xxhash",
    "pydantic", "pydantic-core", "annotated-types", "typing-inspection", "typing-extensions",
    "pytest", "pluggy", "iniconfig", "nvidia-ml-py",
)  # fmt: skip
# Wheels for Linux with glibc 2.34 or later.
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(17, 35)] + ["manylinux2014_x86_64"]
# Options of `pip download` for these platforms.
PIP_TARGET = ["--python-version=3.12", "--implementation=cp", "--only-binary=:all:"]
PIP_TARGET += [f"--platform={platform}" for platform in PLATFORMS]
MAX_WHEELS_MB = 60  # limit of the total size of wheels, in 1e6 bytes


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit status, unless the benchmark starts, which replaces this process.
    """
    parser = argparse.ArgumentParser(prog="python -m performance.gpu", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add(
        "--tiny",
        action="store_true",
        help="use small sizes, to try the command; writes to benchmarks/gpu/",
    )
    wheels_help = "download wheels of the packages that the GPU machine may lack, and of each NAME"
    add("--wheels", nargs="*", metavar="NAME", help=wheels_help)
    options, passed_on = parser.parse_known_args(arguments)
    if options.wheels is not None:
        return download_wheels(options.wheels)
    sys.path.insert(0, str(SITE))
    install_wheels()
    if missing := find_missing_requirements():
        print(
            f"make gpu: {sys.executable} lacks {', '.join(missing)}. On a machine with a "
            "network, run make gpu GPU_BENCH=--wheels, which fills the folder .gpu/wheels. Copy "
            f"the folder to {WHEELS} on this machine. If packages are still missing, add their "
            "names, as in GPU_BENCH='--wheels pandas'."
        )
        return 1
    if not options.tiny and not _sees_gpu():
        print("make gpu: PyTorch finds no GPU. To try it on a CPU: make gpu GPU_BENCH=--tiny")
        return 1
    folder = ROOT / ("benchmarks/gpu" if options.tiny else "performance/results/gpu")
    quick = ["--quick"] if options.tiny else []
    command = ["-m", "performance.bench", "--part", GPU_PARTS, "--resume", "--out", str(folder)]
    python_path = filter(None, (os.environ.get("PYTHONPATH"), str(SITE)))
    os.environ |= {"PYTHONPATH": os.pathsep.join((str(ROOT), *python_path))}
    os.execv(sys.executable, [sys.executable, *command, *quick, *passed_on])


def download_wheels(names: list[str]) -> int:
    """Download the wheels of `WHEEL_PACKAGES` and `names`, and print their total size.

    Returns:
        The exit status: 1 if a name is unknown, or if the wheels are larger than `MAX_WHEELS_MB`
        together.
    """
    lock = (ROOT / "requirements" / "gpu.txt").read_text(encoding="utf-8")
    versions = dict(re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE))
    if unknown := [name for name in names if name not in versions]:
        print(f"make gpu: --wheels {unknown[0]}: no such package in requirements/gpu.txt")
        return 1
    shutil.rmtree(WHEELS, ignore_errors=True)
    pins = [f"{name}=={versions[name]}" for name in (*WHEEL_PACKAGES, *names)]
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", f"--dest={WHEELS}"]
    if status := subprocess.run([*pip, *PIP_TARGET, *pins], check=False).returncode:
        return status
    total = sum(wheel.stat().st_size for wheel in WHEELS.glob("*.whl")) / 1e6
    print(f"{WHEELS} has {total:.1f} MB of wheels; the limit is {MAX_WHEELS_MB} MB")
    return int(total > MAX_WHEELS_MB)


def install_wheels() -> None:
    """Unpack into `SITE` the wheels of packages that are missing, or installed but older."""
    wheels = []
    for wheel in WHEELS.glob("*.whl"):
        name, wheel_version, *_ = parse_wheel_filename(wheel.name)
        if (installed := get_installed_version(name)) is None or installed < wheel_version:
            wheels.append(str(wheel))
    if wheels:
        pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--quiet"]
        subprocess.run([*pip, "--upgrade", f"--target={SITE}", *wheels], check=True)


def list_requirements() -> list[Requirement]:
    """Return `PREINSTALLED`, `WHEEL_PACKAGES`, and what the installed `WHEEL_PACKAGES` require."""
    installed = filter(get_installed_version, WHEEL_PACKAGES)
    lines = [line for name in installed for line in requires(name) or []]
    requirements = map(Requirement, (*PREINSTALLED, *WHEEL_PACKAGES, *lines))
    return [r for r in requirements if not r.marker or r.marker.evaluate({"extra": ""})]


def find_missing_requirements() -> list[str]:
    """Return the requirements that no installed package satisfies."""
    missing = set()
    for requirement in list_requirements():
        installed = get_installed_version(requirement.name)
        if installed is None or not requirement.specifier.contains(installed):
            missing.add(f"{requirement.name}{requirement.specifier}")
    return sorted(missing)


def get_installed_version(name: str) -> Version | None:
    try:
        return Version(version(name))
    except PackageNotFoundError:
        return None


def _sees_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


if __name__ == "__main__":
    sys.exit(main())
