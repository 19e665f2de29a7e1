"""The versions that pyproject.toml admits are those that tests/versions.py tested."""

import pytest
import yaml
from packaging.requirements import Requirement

from tests.checkout import ROOT
from tests.versions import PARTS, find_python, read_bounds, read_record, select_tests

RECORD = read_record()


def test_the_library_s_tests_are_those_of_what_it_imports():
    selected, left_out = select_tests()
    folders = {name.split("/")[1] for name in selected}
    assert {"algorithms", "grading", "training", "test_rewards.py"} <= folders
    assert not folders & {"reports", "stages", "config", "performance"}
    assert "tests/algorithms/test_registry.py" in left_out  # it draws a figure of the report
    assert not {*selected} & {*left_out}


@pytest.mark.parametrize("part", PARTS)
def test_every_part_passed_within_the_present_bounds(part):
    """After a change of bounds: make test-versions WRITE=1."""
    record = RECORD[part]
    assert record["bounds"] == read_bounds()
    assert record["python"].startswith(f"{PARTS[part].python}.")
    for package, version in record["packages"].items():
        assert Requirement(package + record["bounds"][package]).specifier.contains(version)


@pytest.mark.parametrize("package", read_bounds())
def test_every_package_has_a_lower_and_an_upper_bound_and_the_lower_is_tested(package):
    bounds = {
        part.operator: part.version
        for part in Requirement(package + read_bounds()[package]).specifier
    }
    assert bounds.keys() == {">=", "<"}
    tested = RECORD["lowest"]["packages"][package].split(".")
    assert tested[: len(parts := bounds[">="].split("."))] == parts


def test_a_weekly_job_runs_every_part():
    workflow = yaml.safe_load((ROOT / ".github/workflows/versions.yml").read_text(encoding="utf-8"))
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["part"] == [*PARTS]
    assert workflow[True]["schedule"]  # YAML reads the key "on" as true


def test_a_python_that_does_not_run_is_left_out(tmp_path, monkeypatch):
    program = tmp_path / "python3.99"
    program.write_text("#!/bin/sh\nexit 127\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert find_python("3.99") == "3.99"
    (folder := tmp_path / "versions/3.99.1/bin").mkdir(parents=True)
    (folder / "python").write_text("#!/bin/sh\n")
    (folder / "python").chmod(0o755)
    assert find_python("3.99") == str(folder / "python")
