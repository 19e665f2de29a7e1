"""Install exactly a lock, and the project itself, beside the Python that runs this.

    .venv/bin/python requirements/install.py requirements/cpu.txt

pip installs uv, and uv the rest. The lock is complete, so that no dependency is looked for; what it
does not name is removed.

torch is the exception on a machine without a GPU. The lock means its CPU build ("+cpu"), for which
vLLM's CPU build is made, and which PyPI does not have. It is taken from pip's sources, else from
PyTorch's own index. Where neither has it, PyPI's build is taken, with the several GB of CUDA
libraries that it cannot be imported without.
"""

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

# pip's settings, and the variables by which uv is told the same. A variable that is set wins.
VARIABLES = {
    "index-url": ("UV_INDEX_URL", "UV_DEFAULT_INDEX"),
    "extra-index-url": ("UV_EXTRA_INDEX_URL", "UV_INDEX"),
    "find-links": ("UV_FIND_LINKS",),
    "trusted-host": ("UV_INSECURE_HOST",),
    "cert": ("SSL_CERT_FILE",),
    "client-cert": ("SSL_CLIENT_CERT",),
    "proxy": ("ALL_PROXY",),
    "timeout": ("UV_HTTP_TIMEOUT",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
}
CPU_BUILD = {"UV_TORCH_BACKEND": "cpu"}
ROOM = 5_000_000_000  # bytes: of the environment, of Lean, and while they are unpacked
FAILED = """
The environment is not complete: {} failed, see above.
`make setup` takes up where it ended: what was downloaded is kept.

No network, or another way to it: export HTTPS_PROXY=http://host:port where there is a proxy. For a
mirror set pip (PIP_INDEX_URL, PIP_FIND_LINKS, PIP_CERT, pip.conf): uv is told the same, and its own
variables (UV_DEFAULT_INDEX, ...) win.
No space left: UV_CACHE_DIR and TMPDIR, as this folder, can be on a larger disk.

pip does it without uv, in more time:
    .venv/bin/pip install --no-deps -r requirements/cpu.txt -e . && touch .venv/installed-cpu
(gpu in the place of cpu on a machine with NVIDIA GPUs)."""


def pip_settings(listing: str) -> dict[str, str]:
    """Return what `pip install` is set to, by what `pip config list` says."""
    rows = [row.partition("=") for row in listing.splitlines()]
    settings = {}
    for section in ("global.", "install.", ":env:."):  # as in pip, the last one wins
        for name, _, value in rows:
            if name.startswith(section) and ast.literal_eval(value):
                settings[name.removeprefix(section)] = ast.literal_eval(value)
    return settings


def uv_variables(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that make uv find packages where pip finds them."""
    settings = {"cert": environ.get("REQUESTS_CA_BUNDLE", ""), **settings}
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # no index comes before another
    for setting, names in VARIABLES.items():
        values = settings.get(setting, "").split()
        if setting == "find-links":  # uv refuses a folder that does not exist, pip does not
            values = [os.path.expanduser(value) for value in values]
            values = [value for value in values if "://" in value or os.path.exists(value)]
        if values and not any(name in environ for name in names):
            variables[names[0]] = ("," if setting == "find-links" else " ").join(values)
    return {name: value for name, value in variables.items() if name not in environ}


def pinned(package: str, requirements: Path) -> str:
    """Return a package's line in a file of requirements."""
    text = requirements.read_text(encoding="utf-8")
    return re.search(rf"^{package}==[\w.]+", text, re.MULTILINE).group()


class Uv:
    """uv for the environment of a Python, with the settings of that Python's pip.

    Args:
        python: the Python, which has pip.
        requirement: uv with its version.
    """

    def __init__(self, python: str, requirement: str):
        self.python = python
        pip = [python, "-m", "pip", "--disable-pip-version-check"]
        if subprocess.run([*pip, "install", "--quiet", requirement], check=False).returncode:
            sys.exit(FAILED.format(f"pip install {requirement}"))
        settings = pip_settings(subprocess.check_output([*pip, "config", "list"], text=True))
        self.variables = uv_variables(settings, os.environ)
        self.no_index = settings.get("no-index", "").lower() in ("1", "t", "true", "y", "yes", "on")

    def pip(self, *arguments: str, **variables: str) -> bool:
        """Run `uv pip`, and return whether it succeeded."""
        command = [self.python, "-m", "uv", "pip", *arguments]
        command += ["--no-index"] * self.no_index
        environment = {**os.environ, **self.variables, **variables}
        return subprocess.run(command, env=environment, check=False).returncode == 0

    def install(self, *arguments: str, **variables: str) -> bool:
        """Run `uv pip install` for that Python, and return whether it succeeded."""
        return self.pip("install", "--python", self.python, *arguments, **variables)

    def place_of_cpu_build(self, torch: str) -> dict[str, str] | None:
        """Return the variables by which torch's CPU build is found; None if it is nowhere."""
        probe = ("--dry-run", "--quiet", "--quiet", "--no-deps", f"{torch}+cpu")
        return next((place for place in ({}, CPU_BUILD) if self.install(*probe, **place)), None)


def main(lock: Path) -> None:
    free = shutil.disk_usage(sys.prefix).free
    if free < ROOM and find_spec("torch") is None:
        room = f"about {ROOM / 1e9:.0f} GB (more with GPUs), and {free / 1e9:.1f} GB are free"
        print(f"{sys.prefix} may not have room for the environment: it takes {room}.", flush=True)
    torch = pinned("torch", lock)
    uv = Uv(sys.executable, pinned("uv", lock))
    wanted = ["--requirements", str(lock), "--editable", str(lock.parent.parent)]
    place = {}
    if lock.stem == "cpu":
        place = uv.place_of_cpu_build(torch)
        wanted += [] if place is None else [f"{torch}+cpu"]
    # What has no wheel is built by the lock's setuptools. Bytecode is compiled here, by all cores:
    # a process that may not write it would compile what it imports, 13 s, at each start.
    how = ("--exact", "--no-deps", "--compile-bytecode", "--build-constraints", str(lock))
    if not uv.install(*how, *wanted, **(place or {})):
        sys.exit(FAILED.format("uv pip install"))
    if place is None:
        print(f"No CPU build of {torch} was found: PyPI's is used, and needs CUDA libraries.")
        if not uv.install(torch, "--constraints", str(lock)):
            sys.exit(FAILED.format("uv pip install"))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: None)  # it ends uv, and then this, with what to do
    main(Path(sys.argv[1]).resolve())
