"""What reports ask of a job's manifest."""

import pytest

from reports.files import Manifest


@pytest.mark.parametrize(
    ("spec", "benchmark", "algorithm"),
    [
        ({"run": {"benchmark": "math", "algorithm": "pg"}}, "math", "pg"),
        ({"benchmark": "math", "run": "pg"}, "math", ""),
        ({}, "", ""),
    ],
)
def test_a_manifest_says_what_its_job_is_about(spec, benchmark, algorithm):
    found = Manifest(spec=spec, inputs={}, outputs={})
    assert (found.benchmark, found.algorithm) == (benchmark, algorithm)


def test_a_value_is_found_by_its_path():
    found = Manifest(spec={"a": {"b": {"c": 1}}}, inputs={}, outputs={})
    names = ("a.b.c", "a.b", "a.c", "a.b.c.d")
    assert [found.value(name) for name in names] == [1, {"c": 1}, None, None]
