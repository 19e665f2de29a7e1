"""Install a lock into the environment of the Python that runs this, and the project itself.

    python requirements/install.py requirements/cpu.txt

The lock is complete, so pip installs it with --no-deps. torch is the exception on a machine without
a GPU: the CPU build ("+cpu") is not on PyPI. Where pip's configured sources have it, it is taken;
elsewhere PyPI's build is, with the CUDA libraries that this build cannot be imported without.
PIP_EXTRA_INDEX_URL, set to PyTorch's index of CPU wheels, spares that download of several GB.
"""

import re
import subprocess
import sys
from pathlib import Path


def pip(*arguments: str, check: bool = True) -> bool:
    command = [sys.executable, "-m", "pip", "install", "--progress-bar", "off", *arguments]
    return subprocess.run(command, check=check).returncode == 0


def main(lock: Path) -> None:
    torch = re.search(r"^torch==[\w.]+", lock.read_text(encoding="utf-8"), re.MULTILINE).group()
    if lock.stem == "cpu" and not pip("--no-deps", f"{torch}+cpu", check=False):
        print(f"No CPU build of {torch} in pip's sources: taking PyPI's, with its CUDA libraries.")
        pip(torch)
    pip("--no-deps", "-r", str(lock))
    pip("--no-deps", "--no-build-isolation", "-e", str(lock.parent.parent))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
