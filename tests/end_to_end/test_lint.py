"""Snakemake's linter has nothing to say that is meant for us."""

from tests.subprocesses import python

# One locked environment for all rules is this project's choice: see requirements/.
ACCEPTED = {"Specify a conda environment or container for each rule"}


def test_snakemake_lint():
    result = python("-m", "snakemake", "--lint", status=None)
    output = result.stdout + result.stderr
    lints = {line.strip(" *:.") for line in output.splitlines() if line.startswith("    * ")}
    assert lints == ACCEPTED, output
