"""Packages that completions may import beside Python's own library: numpy, pandas, what they need.

They are imported from their paths. The folder that they are installed in cannot be listed, for the
other packages there are none of a completion's business.
"""

import contextlib
import importlib
import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location

# EvalPlus's programs have these, and pandas needs the others.
NAMES = ("numpy", "pandas", "dateutil", "pytz", "six", "tzdata")


class Finder:
    """Finds modules and packages by their paths, as a part of `sys.meta_path`."""

    def __init__(self, paths: list[str]):
        self._files = {}
        for path in paths:
            file = os.path.join(path, "__init__.py") if os.path.isdir(path) else path
            self._files[os.path.basename(path).removesuffix(".py")] = file

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if path is not None or name not in self._files:  # of a package that has been found
            return None
        return spec_from_file_location(name, self._files[name])


def preload_packages(mentioned: set[str]) -> None:
    """Import the packages of which a program mentions a module, before the guard is put up.

    What they do then is their own, and the guard would stop it. Without them nothing happens.
    """
    modules = {name.partition(".")[0] for name in mentioned}
    for name in NAMES:
        if name in modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)  # the same completion gets the same verdict
