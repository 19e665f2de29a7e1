"""Resolve requirements/{cpu,gpu}.in into complete locks, for Linux and Python 3.11 to 3.13.

They are resolved for the oldest Python (`make lock`), and then it is seen that the others need the
same packages: what only they need is said again in base.in.

Arguments are handed to uv. Without any, what a lock has and base.in leaves open stays as it is;
`--upgrade` takes the newest.

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
OLDEST, *NEWER = "3.11", "3.12", "3.13"
PLATFORM = ("--python-platform", "x86_64-manylinux_2_28")
QUIET = ("--no-emit-index-url", "--no-emit-find-links", "--quiet")
MADE_BY = ("--custom-compile-command", "make lock")


def pins(lock: Path) -> set[str]:
    """Return the packages of a lock, with their versions."""
    return set(re.findall(r"^[\w.-]+==\S+", lock.read_text(encoding="utf-8"), re.MULTILINE))


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
            lock = Path(f"{kind}.txt")
            asked = (f"{kind}.in", "--overrides", f"overrides-{kind}.txt", *PLATFORM, *QUIET)
            made = ("--python-version", OLDEST, "-o", str(lock), *MADE_BY)
            if not uv.pip("compile", *asked, *made, *sys.argv[1:], **variables):
                sys.exit(f"requirements/{kind}.in was not resolved, see above.")
            for version in NEWER:
                other = Path(folder, lock.name)
                again = ("--python-version", version, "-o", str(other), "--constraints", str(lock))
                if not uv.pip("compile", *asked, *again, **variables):
                    print(f"Not known whether {lock} is complete for Python {version}, see above.")
                elif missing := pins(other) - pins(lock):
                    sys.exit(f"Python {version} needs more, for base.in: {', '.join(missing)}")
    lock = Path("cpu.txt")
    text = lock.read_text(encoding="utf-8")
    lock.write_text(re.sub(r"^(torch==[\d.]+)\+cpu$", r"\1", text, flags=re.M), encoding="utf-8")


if __name__ == "__main__":
    main()
