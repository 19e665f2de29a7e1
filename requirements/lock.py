"""Resolve requirements/{cpu,gpu}.in into complete locks, for Linux and Python 3.11 (`make lock`).

The lock without GPU is that of torch's CPU build, which needs no CUDA libraries; which build is
installed is decided by install.py.
"""

import os
import re
import sys
import tempfile
import venv
from pathlib import Path

from install import Uv, pinned

HERE = Path(__file__).parent
PLATFORM = ("--python-version", "3.11", "--python-platform", "x86_64-manylinux_2_28")
QUIET = ("--no-emit-index-url", "--no-emit-find-links", "--quiet")


def main() -> None:
    os.chdir(HERE)  # what a lock says about itself are paths
    base = Path("base.in")
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        uv = Uv(f"{folder}/bin/python", pinned("uv", base))
        place = uv.place_of_cpu_build(pinned("torch", base))
        if place is None:
            sys.exit("torch's CPU build was not found: see install.py.")
        for kind, variables in {"cpu": place, "gpu": {}}.items():
            files = (f"{kind}.in", "--overrides", f"overrides-{kind}.txt", "-o", f"{kind}.txt")
            made_by = ("--custom-compile-command", "make lock")
            if not uv.pip("compile", *PLATFORM, *files, *made_by, *QUIET, **variables):
                sys.exit(f"requirements/{kind}.in was not resolved, see above.")
    lock = Path("cpu.txt")
    text = lock.read_text(encoding="utf-8")
    lock.write_text(re.sub(r"^(torch==[\d.]+)\+cpu$", r"\1", text, flags=re.M), encoding="utf-8")


if __name__ == "__main__":
    main()
