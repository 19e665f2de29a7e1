"""The jobs of the pipeline, in an order in which each comes after those whose files it reads.

A job leaves a manifest.json in its folder (`rapid.artifacts.manifests`), which says what it was made from. That
is what `rapid.artifacts.freshness` checks against the job's spec and the files that are there.
"""

from rapid.algorithms.names import imitates
from rapid.artifacts.freshness import Job
from rapid.config import specs
from rapid.config.params import Params

STAGES = ("data", "models", "distill", "train", "evaluate", "report")  # as in dvc.yaml


def jobs(params: Params) -> list[Job]:
    """Every job that the report needs."""
    runs = specs.runs(params)
    evaluations = specs.evaluated(runs)
    imitated = {run.benchmark: None for run in runs if imitates(run.algorithm)}
    models = specs.needed(params)
    found = [
        ("data", f"data/{name}", specs.prepare_spec(params, name)) for name in params.benchmarks
    ]
    if any(specs.is_made(params, name) for name in models):
        found += [("models", "models/tokenizer", specs.tokenizer_spec(params))]
    found += [("models", f"models/{name}", specs.model_spec(params, name)) for name in models]
    found += [
        ("distill", f"distilled/{name}", specs.distill_spec(params, name)) for name in imitated
    ]
    found += [("train", run.folder, specs.train_spec(params, run)) for run in runs]
    found += [("evaluate", run.evaluation, specs.evaluate_spec(params, run)) for run in evaluations]
    report = specs.report_spec(params)
    found += [("report", folder, report) for folder in ("reports", "reports/experiment")]
    return [Job(*each) for each in found]
