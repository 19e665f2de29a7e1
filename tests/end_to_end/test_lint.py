"""Snakemake's linter has nothing to say that is meant for us."""

import subprocess
import sys

from tests.conftest import ROOT

# One locked environment for all rules is this project's choice: see requirements/.
ACCEPTED = {"Specify a conda environment or container for each rule"}


def test_snakemake_lint():
    result = subprocess.run(
        [sys.executable, "-m", "snakemake", "--lint"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    output = result.stdout + result.stderr
    lints = {line.strip(" *:.") for line in output.splitlines() if line.startswith("    * ")}
    assert lints == ACCEPTED, output
