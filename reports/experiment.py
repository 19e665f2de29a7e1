"""`python -m reports.experiment`: write the files that DVC compares between experiments.

The files have results of RAPID with the H (optimizer steps per inference batch) of `rapid.H` in
params.yaml, on the benchmark `experiment.benchmark`. `dvc exp show` compares metrics.json, which
has the source of the problems, and means over seeds of accuracy, runtime and a few metrics. `dvc
plots` draws the files in live/, which have metrics by optimizer step in dvclive's format.
"""

import math
import sys
from pathlib import Path

import pandas as pd
from dvclive import Live

from rapid.arguments import Parser
from rapid.artifacts.files import BadInput, write_json
from rapid.artifacts.manifests import read_rows, verify_output, write_manifest
from rapid.artifacts.metrics import COMPARED, METRICS
from rapid.artifacts.runs import PHASES, StepRecord
from rapid.config.params import Params, load_files
from rapid.config.specs import BASE, build_report_spec, list_dvc_runs
from rapid.errors.shortages import describe_shortage
from rapid.processes.lifetimes import end_with_workflow
from reports.collect import collect_runs, read_problem_sources

# The values in metrics.json besides pass@k: columns of the data frame of `collect_runs`.
AVERAGED_METRICS = ("runtime", *(name for name in COMPARED if METRICS[name].summary == "mean"))
CURVE_METRICS = [*COMPARED, *PHASES]


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Return 0, or 1 if the parameters or results are wrong, or writing fails."""
    parser = Parser(prog="python -m reports.experiment", description=__doc__)
    parser.add_argument(
        "--config", required=True, help="parameters: a YAML or JSON file, or one JSON text"
    )
    parser.add_argument("--out", required=True, type=Path, help="folder to write")
    options = parser.parse_args(arguments)
    try:
        write_experiment(load_files(options.config), options.out)
    except (BadInput, OSError) as error:
        print(f"reports.experiment: {describe_shortage(error) or error}", file=sys.stderr)
        return 1
    return 0


def write_experiment(params: Params, folder: Path) -> None:
    """Write metrics.json, live/ and manifest.json into `folder`.

    Raises:
        BadFile: a file of a run is damaged.
    """
    frame = collect_runs(params, trained=list_dvc_runs(params))
    frame = frame[frame.algorithm != BASE]
    paths = [Path(run, name) for run in frame.folder for name in ("summary.json", "steps.jsonl")]
    paths += [Path(run, "evaluation.json") for run in frame.evaluation]
    inputs = {path.as_posix(): verify_output(path) for path in paths}
    problems = {"problems": read_problem_sources(params, ".")[params.experiment.benchmark].label}
    write_json(folder / "metrics.json", problems | average_metrics(params, frame))
    steps = [read_rows(Path(run, "steps.jsonl"), StepRecord) for run in frame.folder]
    write_curves(average_curves(steps), folder / "live")
    outputs = [folder / "metrics.json", folder / "live"]
    write_manifest(folder, "experiment", build_report_spec(params), inputs, outputs)


def average_metrics(params: Params, frame: pd.DataFrame) -> dict[str, float]:
    """Return the mean of each metric over the seeds that have it.

    pass@k is in percent, the runtime in seconds. A metric that no run has is left out.
    """
    ks = params.benchmarks[params.experiment.benchmark].pass_at
    means = {f"pass@{k}": 100 * frame[f"pass@{k}"].mean() for k in ks}
    means |= {name: frame[name].mean() for name in AVERAGED_METRICS}
    return {name: float(value) for name, value in means.items() if math.isfinite(value)}


def average_curves(runs: list[list[StepRecord]]) -> pd.DataFrame:
    """Return the means over runs at each optimizer step: a row for each step.

    A run that has ended before a step, or has no value of a metric at it, is left out of the mean.
    If no run is left, the mean is NaN.
    """
    steps = [step.model_dump() for run in runs for step in run]
    rows = pd.DataFrame(steps, columns=["step", *CURVE_METRICS])
    return rows.astype(float).groupby("step").mean()


def write_curves(means_by_step: pd.DataFrame, folder: Path) -> None:
    """Write a file in dvclive's format for each column, which is a metric."""
    with Live(str(folder), save_dvc_exp=False, dvcyaml=None) as live:
        for step, values in means_by_step.iterrows():
            live.step = int(step)
            for name, value in values.dropna().items():
                live.log_metric(name, value, timestamp=False)


if __name__ == "__main__":
    end_with_workflow()
    sys.exit(main())
