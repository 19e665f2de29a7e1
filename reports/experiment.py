"""`python -m reports.experiment`: what `dvc exp show` compares, RAPID with rapid.H, from its runs.

metrics.json has the means over seeds of a few figures; live/ has what happens by optimizer step, as
dvclive writes it and `dvc plots` draws it.
"""

import argparse
import json
import math
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pandas as pd
from dvclive import Live

from rapid.artifacts.files import read_jsonl, write_json
from rapid.artifacts.manifests import write_manifest
from rapid.artifacts.runs import StepRecord
from rapid.config.jobs import plan
from rapid.config.params import Params, load
from rapid.config.specs import compared, report_spec
from reports.collect import BadRun, collect

FIGURES = ("runtime", "staleness", "clip_fraction")  # beside pass@k
CURVES = ("reward", "staleness", "clip_fraction", "sampling", "grading", "backpropagation", "sync")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m reports.experiment", description=__doc__)
    parser.add_argument("--config", required=True, help="params as JSON")
    parser.add_argument("--out", required=True, type=Path, help="folder to write")
    options = parser.parse_args(arguments)
    params = load(json.loads(options.config))
    try:
        report(params, options.out)
    except BadRun as error:
        print(f"reports.experiment: {error}", file=sys.stderr)
        return 1
    return 0


def report(params: Params, folder: Path, root: Path = Path(".")) -> None:
    """Write metrics.json, live/ and manifest.json into `folder`.

    Raises:
        BadRun: a run's file is damaged.
    """
    runs, place = compared(params), plan(params, root).folder
    folders = [root / place(run.folder) for run in runs]
    write_json(folder / "metrics.json", metrics(params, root))
    steps = [read_steps(one / "steps.jsonl") for one in folders]
    draw(curves(steps), folder / "live")
    inputs = [one / name for one in folders for name in ("summary.json", "steps.jsonl")]
    inputs += [root / place(run.evaluation) / "evaluation.json" for run in runs]
    outputs = [folder / "metrics.json", folder / "live"]
    write_manifest(folder, "experiment", report_spec(params), inputs, outputs)


def metrics(params: Params, root: Path) -> dict[str, float]:
    """Means over the seeds that have the figure: pass@k in %, runtime in seconds. What no run has is
    left out."""
    wanted = pd.DataFrame([run.model_dump() for run in compared(params)])
    frame = collect(params, root).merge(wanted)  # on benchmark, model, algorithm and seed
    ks = params.benchmarks[params.experiment.benchmark].pass_at
    found = {f"pass@{k}": 100 * frame[f"pass@{k}"].mean() for k in ks}
    found |= {name: frame[name].mean() for name in FIGURES}
    return {name: float(value) for name, value in found.items() if math.isfinite(value)}


def read_steps(path: Path) -> list[StepRecord]:
    return list(read_jsonl(path, StepRecord)) if path.is_file() else []


def curves(runs: list[list[StepRecord]]) -> list[dict[str, float]]:
    """For each optimizer step the means over the runs that have it."""
    found: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for step in (step for run in runs for step in run):
        for name in CURVES:
            if (value := getattr(step, name)) is not None:
                found[step.step][name].append(value)
    return [
        {"step": step, **{name: fmean(values) for name, values in found[step].items()}}
        for step in sorted(found)
    ]


def draw(points: list[dict[str, float]], folder: Path) -> None:
    """Write the curves as dvclive does: a file each."""
    with Live(str(folder), save_dvc_exp=False, dvcyaml=None, monitor_system=False) as live:
        for point in points:
            live.step = int(point["step"])
            for name, value in point.items():
                if name != "step":
                    live.log_metric(name, value, timestamp=False)


if __name__ == "__main__":
    sys.exit(main())
