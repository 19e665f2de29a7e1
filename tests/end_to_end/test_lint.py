"""Checks of the Snakefile: Snakemake's linter, and targets that no rule makes."""

from tests.subprocesses import python

# All rules share one locked environment: see requirements/.
ACCEPTED_LINTS = {"Specify a conda environment or container for each rule"}


def test_the_linter_of_snakemake_reports_only_accepted_lints():
    result = python("-m", "snakemake", "--lint", status=None)
    output = result.stdout + result.stderr
    lints = {line.strip(" *:.") for line in output.splitlines() if line.startswith("    * ")}
    assert lints == ACCEPTED_LINTS, output


def test_a_run_of_an_unknown_model_is_not_a_target():
    target = "evaluations/math/no-model/pg/seed1/evaluation.json"
    result = python("-m", "snakemake", "-n", "--cores", "1", target, status=1)
    assert f"No rule to produce {target}" in result.stdout + result.stderr
