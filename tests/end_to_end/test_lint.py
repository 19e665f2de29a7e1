"""Snakemake's linter has nothing to say that is meant for us."""

from tests.subprocesses import python

# One locked environment for all rules is this project's choice: see requirements/.
ACCEPTED = {"Specify a conda environment or container for each rule"}


def test_snakemake_lint():
    result = python("-m", "snakemake", "--lint", status=None)
    output = result.stdout + result.stderr
    lints = {line.strip(" *:.") for line in output.splitlines() if line.startswith("    * ")}
    assert lints == ACCEPTED, output


def test_a_run_of_a_model_that_there_is_not_is_no_target():
    target = "evaluations/math/no-model/pg/seed1/evaluation.json"
    result = python("-m", "snakemake", "-n", "--cores", "1", target, status=1)
    assert f"No rule to produce {target}" in result.stdout + result.stderr
