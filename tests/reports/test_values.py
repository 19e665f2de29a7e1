"""What a report is computed from is not changed on the way."""

import pkgutil
from dataclasses import is_dataclass
from importlib import import_module

import reports


def test_data_classes_are_frozen():
    names = [one.name for one in pkgutil.walk_packages(reports.__path__, "reports.")]
    found = {value for name in names for value in vars(import_module(name)).values()
             if isinstance(value, type) and is_dataclass(value)}  # fmt: skip
    assert len(found) > 20
    assert [one for one in found if not one.__dataclass_params__.frozen] == []
