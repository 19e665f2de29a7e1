"""Install exactly the packages of a lock file, and this project, for the Python that runs this.

    .venv/bin/python requirements/install.py requirements/cpu.txt

pip installs uv, and uv installs all other packages. The lock file names all packages, so no
dependencies are resolved. Installed packages that the lock file does not name are removed.

torch is an exception on machines without a GPU. There its CPU build ("+cpu") is needed, which
vLLM's CPU build requires and PyPI does not have; the lock file names it without "+cpu". It is
installed from the package sources in pip's settings, or else from PyTorch's index. If neither has
it, PyPI's build is installed, which needs several GB of CUDA libraries.
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

# A setting of pip -> uv's environment variables for it, of which the first is set unless one is set
# already.
UV_VARIABLES = {
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
# With these variables uv takes torch's CPU build from PyTorch's index.
CPU_BUILD_VARIABLES = {"UV_TORCH_BACKEND": "cpu"}
REQUIRED_BYTES = 5_000_000_000  # disk space for the environment and Lean, including unpacking
FAILURE_MESSAGE = """
The environment is not complete: {} failed, see above.
To continue, run `make setup` again: what was downloaded is kept.

If there is no network: behind a proxy, export HTTPS_PROXY=http://host:port. For a mirror, configure
pip (PIP_INDEX_URL, PIP_FIND_LINKS, PIP_CERT or pip.conf); uv gets the same settings, unless its own
variables (UV_DEFAULT_INDEX, ...) are set.
If the disk is full: this folder, UV_CACHE_DIR and TMPDIR can be on a larger disk.

Without uv, pip installs the same packages, in more time:
    .venv/bin/pip install --no-deps -r requirements/cpu.txt -e . && touch .venv/installed-cpu
(with gpu in place of cpu on a machine with NVIDIA GPUs)."""


def parse_pip_settings(config_list: str) -> dict[str, str]:
    """Return the settings of `pip install` from the output of `pip config list`."""
    rows = [row.partition("=") for row in config_list.splitlines()]
    settings = {}
    for section in ("global.", "install.", ":env:."):  # in pip's order: later sections win
        for name, _, value in rows:
            if name.startswith(section) and ast.literal_eval(value):
                settings[name.removeprefix(section)] = ast.literal_eval(value)
    return settings


def build_uv_variables(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that make uv use the package sources in pip's settings.

    Args:
        settings: pip's settings, as `parse_pip_settings` returns them.
        environ: the present environment; variables in it are not changed.
    """
    settings = {"cert": environ.get("REQUESTS_CA_BUNDLE", ""), **settings}
    variables = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # like pip, search all indexes
    for setting, names in UV_VARIABLES.items():
        values = settings.get(setting, "").split()
        if setting == "find-links":  # uv rejects folders that do not exist, pip ignores them
            values = [os.path.expanduser(value) for value in values]
            values = [value for value in values if "://" in value or os.path.exists(value)]
        if values and not any(name in environ for name in names):
            variables[names[0]] = ("," if setting == "find-links" else " ").join(values)
    return {name: value for name, value in variables.items() if name not in environ}


def read_pin(package: str, requirements: Path) -> str:
    """Return a package with its version, such as "uv==1.2", from a requirements file."""
    text = requirements.read_text(encoding="utf-8")
    return re.search(rf"^{package}==[\w.]+", text, re.MULTILINE).group()


class Uv:
    """Installs uv into a Python's environment, and runs it with the settings of that Python's pip.

    Args:
        python: path of a Python that has pip.
        requirement: uv with its version, such as "uv==1.2".
        target: path of the Python into whose environment packages are installed; `python` if empty.
    """

    def __init__(self, python: str, requirement: str, target: str = ""):
        self.python, self.target = python, target or python
        pip = [python, "-m", "pip", "--disable-pip-version-check"]
        if subprocess.run([*pip, "install", "--quiet", requirement], check=False).returncode:
            sys.exit(FAILURE_MESSAGE.format(f"pip install {requirement}"))
        settings = parse_pip_settings(subprocess.check_output([*pip, "config", "list"], text=True))
        self.variables = build_uv_variables(settings, os.environ)
        self.no_index = settings.get("no-index", "").lower() in ("1", "t", "true", "y", "yes", "on")

    def run_pip(self, *arguments: str, **variables: str) -> bool:
        """Run `uv pip`, and return whether it succeeded.

        Args:
            arguments: of the command.
            variables: further environment variables.
        """
        command = [self.python, "-m", "uv", "pip", *arguments]
        command += ["--no-index"] * self.no_index
        environment = {**os.environ, **self.variables, **variables}
        return subprocess.run(command, env=environment, check=False).returncode == 0

    def install_packages(self, *arguments: str, **variables: str) -> bool:
        """Run `uv pip install` for the target, and return whether it succeeded."""
        return self.run_pip("install", "--python", self.target, *arguments, **variables)

    def find_cpu_build(self, torch: str) -> dict[str, str] | None:
        """Return the environment variables with which uv finds torch's CPU build, or None.

        Args:
            torch: torch with its version, such as "torch==2.8".
        """
        probe = ("--dry-run", "--quiet", "--quiet", "--no-deps", f"{torch}+cpu")
        for variables in ({}, CPU_BUILD_VARIABLES):
            if self.install_packages(*probe, **variables):
                return variables
        return None


def main(lock: Path) -> None:
    """Install the packages of a lock file and this project."""
    free = shutil.disk_usage(sys.prefix).free
    if free < REQUIRED_BYTES and find_spec("torch") is None:
        required = f"about {REQUIRED_BYTES / 1e9:.0f} GB (more with GPUs)"
        print(
            f"There may be too little space in {sys.prefix}: the environment takes "
            f"{required}, and {free / 1e9:.1f} GB are free.",
            flush=True,
        )
    torch = read_pin("torch", lock)
    uv = Uv(sys.executable, read_pin("uv", lock))
    requirements = ["--requirements", str(lock), "--editable", str(lock.parent.parent)]
    cpu_variables = {}
    if lock.stem == "cpu":
        cpu_variables = uv.find_cpu_build(torch)
        requirements += [] if cpu_variables is None else [f"{torch}+cpu"]
    # --build-constraints: packages without a wheel are built with the lock file's setuptools.
    # --compile-bytecode: otherwise processes that may not write to the environment would compile
    # all modules at each start, for 13 s.
    options = ("--exact", "--no-deps", "--compile-bytecode", "--build-constraints", str(lock))
    if not uv.install_packages(*options, *requirements, **(cpu_variables or {})):
        sys.exit(FAILURE_MESSAGE.format("uv pip install"))
    if cpu_variables is None:
        print(
            f"No CPU build of {torch} was found: PyPI's is installed, which needs CUDA libraries."
        )
        if not uv.install_packages(torch, "--constraints", str(lock)):
            sys.exit(FAILURE_MESSAGE.format("uv pip install"))


if __name__ == "__main__":
    # Ctrl-C ends uv, and this program goes on, to print FAILURE_MESSAGE.
    signal.signal(signal.SIGINT, lambda *_: None)
    main(Path(sys.argv[1]).resolve())
