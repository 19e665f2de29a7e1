"""The benchmarks are known by their names. Raw completions are graded in tests/stages/test_grade.py."""

import pytest

from rapid.benchmarks import BENCHMARKS


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_has_the_name_of_its_folder(name):
    assert BENCHMARKS[name].name == name == type(BENCHMARKS[name]).__module__.split(".")[2]
