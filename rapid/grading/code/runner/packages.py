"""Packages that completions may import besides Python's library: numpy, pandas and what they need.

Each package is imported by its path. A completion cannot see the folder in which the packages are
installed, because other packages in the folder must stay hidden.
"""

import contextlib
import importlib
import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location

# EvalPlus's programs import numpy and pandas; pandas needs the others.
NAMES = ("numpy", "pandas", "dateutil", "pytz", "six", "tzdata")


class Finder:
    """Finds packages (folders) and modules (files) by their paths: an entry of `sys.meta_path`."""

    def __init__(self, paths: list[str]):
        self._files = {}
        for path in paths:
            file = os.path.join(path, "__init__.py") if os.path.isdir(path) else path
            self._files[os.path.basename(path).removesuffix(".py")] = file

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if path is not None or name not in self._files:  # submodules are found by their package
            return None
        return spec_from_file_location(name, self._files[name])


def preload_packages(names: set[str]) -> None:
    """Import the packages that these names in a program mention, if they are installed.

    Importing them uses the operating system, which `isolation.install_guard` later forbids.
    """
    modules = {name.partition(".")[0] for name in names}
    for name in NAMES:
        if name in modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)  # so that the same completion gets the same verdict
