"""`python -m reports.power`: which effects the tests of a study's hypotheses would detect.

A contrast is a weighted sum of Pass@1 over variants, and a hypothesis says on which side of a limit
it lies. The noise of a variant is its standard deviation of Pass@1 over seeds. It is taken from a
similar algorithm in a recorded arena. Given the seed, variants are assumed to be independent.
"""

import argparse
import math
import sys
from pathlib import Path

import pandas as pd

from rapid.algorithms import PG, RAPID
from rapid.algorithms.variant_names import parse_variant_name
from rapid.artifacts.files import BadInput, write_text
from rapid.config.params import Params, load_config_files
from rapid.config.params_schema import Run
from rapid.config.specs import add_base_runs, build_train_spec, list_study_runs
from rapid.text import align_columns
from reports import formats
from reports.outcomes import METRIC
from reports.statistics.decisions import compute_detectable_difference
from reports.statistics.estimates import CONFIDENCE_LEVEL, Estimate
from reports.tables.hypotheses import count_tests

SEED_COUNTS = (10, 20, 40)
# The H (optimizer steps per inference batch) at which the arena has RAPID, RAPID without a baseline
# of the rewards, and PG, which has no importance weights.
RECORDED_H = 16


def find_similar(params: Params, run: Run) -> str:
    """Return the algorithm of the arena whose noise is assumed for a run of the study."""
    objective = build_train_spec(params, run).objective
    if objective.baseline == "none" or objective.baseline_scale == 0:
        return f"{RAPID.format_name(RECORDED_H)},baseline=none"
    if parse_variant_name(run.algorithm).H == 1:  # all importance weights are 1
        return PG.name
    return RAPID.format_name(RECORDED_H) if objective.weighted else PG.format_name(RECORDED_H)


def render_power(params: Params, record: pd.DataFrame) -> str:
    """Return a table with the noise of each test of pass@1, and the effect that the test detects.

    The effect is the distance of the true contrast from the limit that the hypothesis names. The
    record is results.csv of an arena.
    """
    studies, runs = params.studies, list_study_runs(params)
    tests = count_tests(params)
    alpha = (1 - CONFIDENCE_LEVEL) / tests
    deviations = record.groupby(["benchmark", "algorithm"]).accuracy.std()
    rows = [["Hypothesis", "Study", "SD", *(f"n = {n}" for n in SEED_COUNTS)]]
    for key, hypothesis in studies.hypotheses.items():
        for name in hypothesis.studies if hypothesis.metric == METRIC else ():
            study = studies.compared[name]
            model = study.model or params.tables.main.model
            variance = 0.0
            for algorithm, factor in hypothesis.contrast.items():
                # The parameters of a run are the same with every seed.
                run = Run(benchmark=study.benchmark, model=model, algorithm=algorithm, seed=1)
                similar = find_similar(params, run)
                variance += (factor * deviations[study.benchmark, similar]) ** 2
            values = [math.sqrt(variance)]
            for n in SEED_COUNTS:
                estimate = Estimate(0.0, error=math.sqrt(variance / n), df=n - 1)
                values.append(compute_detectable_difference(estimate, alpha))
            rows.append([key, name, *(formats.points(value).removeprefix("+") for value in values)])
    head = [
        f"{len(runs)} trainings and {len(add_base_runs(params, runs))} evaluations, {tests} tests.",
        "SD: standard deviation of a contrast over seeds, in points of Pass@1.",
        "n = N: the distance from the hypothesis's limit that a test with N seeds, at the level "
        f"0.05 / {tests}, detects in 80 % of cases.",
    ]
    return "\n".join([*head, "", *align_columns(rows)]) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m reports.power", description=__doc__)
    add = parser.add_argument
    add("--configfile", nargs="+", required=True, metavar="FILE", help="parameters of the study")
    add("--record", type=Path, required=True, help="results.csv of an arena")
    add("--output", type=Path, required=True, help="where to write the table")
    options = parser.parse_args(arguments)
    try:
        params = load_config_files(options.configfile)
        write_text(options.output, render_power(params, pd.read_csv(options.record)))
    except (BadInput, OSError) as error:
        print(f"reports.power: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
