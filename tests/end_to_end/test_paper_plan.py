"""What Snakemake plans for the paper's experiments, in a dry run that writes nothing."""

import re

import pytest

from tests.checkout import copy_checkout
from tests.end_to_end.test_dag import written
from tests.subprocesses import ACTIVATED, python

PARTS = ["Snakefile", "workflow", "rapid", "reports", "params.yaml", "experiments"]


@pytest.fixture(scope="module")
def planned(tmp_path_factory) -> dict[str, int]:
    """How many jobs of each rule, in a folder in which nothing has been made."""
    folder = tmp_path_factory.mktemp("paper")
    copy_checkout(folder, *PARTS)
    before = written(folder)
    asked = ["--configfile", "params.yaml", "experiments/paper.yaml"]
    dry = ["-m", "snakemake", "-n", "--cores", "16", "--nocolor"]
    result = python(*dry, *asked, folder=folder, **ACTIVATED)
    assert written(folder) == before
    # The table of jobs: it stands before the jobs and again after them.
    _, _, table = (result.stdout + result.stderr).rpartition("Job stats:")
    return {rule: int(count) for rule, count in re.findall(r"^(\w+) +(\d+)$", table, re.MULTILINE)}


def test_the_papers_plan_has_the_jobs_of_its_grid(planned):
    main, families = 3 * 8 * 3, 3 * 5  # benchmarks x algorithms x seeds; models x algorithms
    assert planned == {
        "prepare": 3,
        "fetch": 4 + 1,  # and the teacher
        "distill": 3,
        "train": main + families,
        # Of models before training: benchmarks x seeds of Table 1; models of Table 2.
        "evaluate": main + families + 3 * 3 + 3,
        "report": 1,
        "all": 1,
        "total": 3 + 5 + 3 + 2 * 87 + 12 + 2,
    }
