"""Checks of the Snakefile: Snakemake's linter, targets that no rule makes, and SLURM's resources."""

import yaml

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


def test_each_server_of_a_training_job_gets_its_share_of_the_gpus(tmp_path):
    """SLURM may divide `gpu`, the number of all servers together, unevenly."""
    overlay, target = tmp_path / "overlay.yaml", "runs/math/tiny-qwen2/pg/seed1/summary.json"
    values = {"compute": {"processes": 4, "nodes": 2, "device": "gpu"}, "sft": {"micro_batch": 4}}
    overlay.write_text(yaml.safe_dump(values))
    options = ["-n", "--verbose", "--cores", "1", "--configfile", "params.yaml", str(overlay)]
    result = python("-m", "snakemake", *options, "--", target, RAPID_PREFLIGHT="off")
    assert "gpu=4, nodes=2," in result.stdout + result.stderr
    assert "slurm_extra=--gpus-per-node=2," in result.stdout + result.stderr
