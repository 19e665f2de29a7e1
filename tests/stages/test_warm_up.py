"""The fork server: what it does before it forks."""

import sys

import pytest

from rapid.benchmarks import BENCHMARKS
from rapid.stages import warm_up


def test_code_is_hashed_before_it_is_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapid.training.trl", None)  # importing it raises an error

    def stop(*roots):
        raise EOFError

    monkeypatch.setattr(warm_up, "hash_dependencies", stop)
    with pytest.raises(EOFError):
        warm_up.warm_up()


@pytest.mark.parametrize(
    ("arguments", "grader"),
    [
        (["train", "--spec", '{"run": {"benchmark": "minif2f"}}', "--out", "x"], "minif2f"),
        (["evaluate", "--out", "x", "--spec", '{"run": {"benchmark": "math"}}'], "math"),
        (["evaluate", "--out", "x", "--spec", '{"run": {"benchmark": "mbpp_plus"}}'], None),
        (["prepare", "--spec", '{"benchmark": "minif2f"}'], None),
        (["train", "--spec", "runs/minif2f/manifest.json"], None),
        (["train", "--spec"], None),
        (["train", "--spec", "[]"], None),
        (["--help"], None),
    ],
)
def test_job_borrows_the_grader_of_its_benchmark(arguments, grader, monkeypatch):
    for name in ("math", "minif2f"):
        monkeypatch.setattr(type(BENCHMARKS[name]), "lend", lambda self: self.name)
    assert warm_up.lend_graders(arguments) == grader
