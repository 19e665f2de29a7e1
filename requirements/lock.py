"""Resolve requirements/{cpu,gpu,docs}.in into lock files, for Linux and Python 3.11 to 3.13.

`make lock` runs this. Versions are resolved for the oldest Python. Then the lock files are checked
to be complete for newer Pythons: a package that only a newer Python needs must be named in base.in.

Arguments are passed on to uv. Without arguments, versions in the present lock files are kept if
base.in allows them; `--upgrade` takes the newest versions.

docs.txt has the hashes of its packages, which pip checks. cpu.txt and gpu.txt have none: the builds
of torch differ by machine.

cpu.txt is resolved for torch's CPU build, which needs no CUDA libraries. install.py decides which
build of torch is installed.
"""

import os
import re
import sys
import tempfile
import venv
from pathlib import Path

from install import Uv, read_pin

FOLDER = Path(__file__).parent
OLDEST, *NEWER_VERSIONS = "3.11", "3.12", "3.13"
# Arguments of `uv pip compile`: the platform; no addresses of indexes in the output; the command
# that the header of a lock file names.
PLATFORM = ("--python-platform", "x86_64-manylinux_2_28")
QUIET = ("--no-emit-index-url", "--no-emit-find-links", "--quiet")
COMMAND = ("--custom-compile-command", "make lock")
# Further arguments for each lock file.
OPTIONS = {kind: ("--overrides", f"overrides-{kind}.txt") for kind in ("cpu", "gpu")}
OPTIONS["docs"] = ("--generate-hashes",)


def read_pins(lock: Path) -> set[str]:
    """Return all packages of a lock file with their versions, such as "uv==1.2"."""
    return set(re.findall(r"^[\w.-]+==\S+", lock.read_text(encoding="utf-8"), re.MULTILINE))


def main() -> None:
    """Write cpu.txt, gpu.txt, docs.txt and release.txt."""
    os.chdir(FOLDER)  # so that paths in comments of the lock files are relative
    base = Path("base.in")
    with tempfile.TemporaryDirectory() as venv_folder:
        venv.create(venv_folder, with_pip=True)
        uv = Uv(f"{venv_folder}/bin/python", read_pin("uv", base))
        cpu_variables = uv.find_cpu_build(read_pin("torch", base))
        if cpu_variables is None:
            sys.exit("torch's CPU build was not found: see requirements/install.py.")
        for kind in OPTIONS:
            variables = cpu_variables if kind == "cpu" else {}
            lock = Path(f"{kind}.txt")
            inputs = (f"{kind}.in", *OPTIONS[kind], *PLATFORM, *QUIET)
            outputs = ("--python-version", OLDEST, "-o", str(lock), *COMMAND)
            if not uv.run_pip("compile", *inputs, *outputs, *sys.argv[1:], **variables):
                sys.exit(f"requirements/{kind}.in could not be resolved, see above.")
            for version in NEWER_VERSIONS:
                newer_lock = Path(venv_folder, lock.name)
                outputs = ("--python-version", version, "-o", str(newer_lock))
                constraints = ("--constraints", str(lock))
                if not uv.run_pip("compile", *inputs, *outputs, *constraints, **variables):
                    print(
                        f"It could not be checked whether {lock} is complete for Python "
                        f"{version}, see above."
                    )
                elif missing := read_pins(newer_lock) - read_pins(lock):
                    sys.exit(
                        f"Python {version} needs more packages, to be added to "
                        f"{'docs' if kind == 'docs' else 'base'}.in: "
                        f"{', '.join(missing)}"
                    )
    outputs = ("--python-version", OLDEST, "-o", "release.txt", *COMMAND)
    if not uv.run_pip("compile", "release.in", *PLATFORM, *QUIET, *outputs, *sys.argv[1:]):
        sys.exit("requirements/release.in could not be resolved, see above.")
    lock = Path("cpu.txt")
    text = lock.read_text(encoding="utf-8")
    lock.write_text(re.sub(r"^(torch==[\d.]+)\+cpu$", r"\1", text, flags=re.M), encoding="utf-8")


if __name__ == "__main__":
    main()
