"""`python -m reports.tuning`: choose the arena's learning rates and write them into its parameters.

A trial is a run of an algorithm with one of the learning rates to choose from. This command reads
the trials, writes a record with a row for each of them, and replaces the learning rates and target
accuracies in experiments/arena.yaml (docs/arena.md).

An algorithm gets the rate with the highest mean accuracy over seeds. If `arena.rate_rule` is
`smoothed`, means are first averaged with those of the neighbouring rates, by weights of 1, 2 and 1.
This smoothing avoids a rate that is next to one at which training fails, and reduces the influence
of chance, but may choose a rate that is worse than its neighbour. If the rule is `highest`, rates
that are not significantly worse than the chosen one are called ties. The target accuracy (`reach`)
is the accuracy before training plus a share (`gain_share`) of the gain of PG (policy gradient) with
its chosen rate. A field of the arena has the algorithms that are compared on one benchmark.
"""

import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from rapid.algorithms import PG
from rapid.arguments import Parser
from rapid.artifacts.files import BadInput, write_text
from rapid.config.arena import Arena, RateRule
from rapid.config.params import load_config_files
from rapid.config.specs import BASE, list_arena_runs
from reports.outcomes import METRIC
from reports.report_data import ReportData
from reports.statistics import estimates

COLUMNS = ["benchmark", "algorithm", "learning_rate", "seed", "accuracy"]


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Return 0, or 1 if trials are missing or damaged."""
    parser = Parser(prog="python -m reports.tuning", description=__doc__)
    parser.add_argument(
        "--configfile",
        nargs="+",
        required=True,
        metavar="FILE",
        help="parameters of the tuning: params.yaml and its overlays",
    )
    parser.add_argument("--record", type=Path, required=True, help="file to write the trials to")
    parser.add_argument(
        "--write",
        type=Path,
        required=True,
        help="file of the experiment in which learning rates are replaced",
    )
    options = parser.parse_args(arguments)
    try:
        params = load_config_files(options.configfile)
    except BadInput as error:
        parser.error(str(error))
    if not (params.arena and params.arena.tuning):
        parser.error(
            "these parameters have no arena.tuning: add experiments/arena-tuning.yaml to "
            "--configfile"
        )
    try:
        trials = collect_trials(ReportData.read(params, trained=list_arena_runs(params)))
    except BadInput as error:
        print(f"reports.tuning: {error}", file=sys.stderr)
        return 1
    if missing := int(trials.accuracy.isna().sum()):
        print(
            f"reports.tuning: {missing} of {len(trials)} trials are missing: make them with "
            "`snakemake`, the same --configfile and the target `arena`",
            file=sys.stderr,
        )
        return 1
    write_text(options.record, trials.to_csv(index=False, float_format="%.6g"))
    try:
        text = replace_rates(options.write.read_text(encoding="utf-8"), params.arena, trials)
    except BadInput as error:
        print(f"reports.tuning: {options.write}: {error}", file=sys.stderr)
        return 1
    write_text(options.write, text)
    return 0


def collect_trials(data: ReportData) -> pd.DataFrame:
    """Return a row for each trial, and for each evaluation of the model before RL.

    The latter rows have the algorithm BASE and the learning rate 0.
    """
    arena, rows = data.params.arena, []
    for benchmark, field in arena.fields.items():
        names = {
            field.trial_name(name, rate): (name, rate)
            for name in field.rates
            if name not in field.same_rate
            for rate in arena.tuning.rates[benchmark]
        }
        algorithms = [data.params.training.start, *names]  # start: the model before RL
        runs = data.select_runs(benchmark, algorithms, arena.tuning.seeds).frame
        for _, run in runs.iterrows():
            name, rate = names.get(run.algorithm, (BASE, 0.0))
            rows.append((benchmark, name, rate, run.seed, run[METRIC]))
    return pd.DataFrame(rows, columns=COLUMNS)


def score_rates(trials: pd.DataFrame, rule: RateRule) -> pd.Series:
    """Return the score of each rate in the trials of one algorithm on one benchmark.

    It is the mean accuracy over seeds. By the rule "smoothed" it is then averaged with the means of
    the neighbouring rates, by weights of 1, 2 and 1.
    """
    means = trials.groupby("learning_rate").accuracy.mean()
    if rule == "highest":
        return means
    sums, weights = (
        np.convolve(values, [1.0, 2.0, 1.0])[1:-1] for values in (means, np.ones(len(means)))
    )
    return pd.Series(sums / weights, means.index)


def find_ties(trials: pd.DataFrame, chosen_rate: float) -> list[float]:
    """Return the rates whose accuracy is not significantly below that of the chosen rate.

    Accuracies are paired by seed. A rate is a tie if the 95 % interval of the mean difference
    contains 0, or if there are too few seeds for an interval.
    """
    by_rate = trials.pivot(index="seed", columns="learning_rate", values="accuracy")
    ties = []
    for rate in by_rate.columns.drop(chosen_rate):
        differences = (by_rate[chosen_rate] - by_rate[rate]).to_list()
        estimate = estimates.estimate_mean(differences)
        if estimate and (estimate.low is None or estimate.covers(0.0)):
            ties.append(float(rate))
    return ties


def select_rate(
    trials: pd.DataFrame, benchmark: str, name: str, rule: RateRule = "smoothed"
) -> float:
    """Return the chosen rate of an algorithm.

    Raises:
        ValueError: the algorithm has no trials.
    """
    trials = trials[(trials.benchmark == benchmark) & (trials.algorithm == name)]
    if trials.empty:
        raise ValueError(f"{name} on {benchmark} has no trials")
    return float(score_rates(trials, rule).idxmax())


def compute_target_accuracy(
    trials: pd.DataFrame, benchmark: str, gain_share: float, rule: RateRule = "smoothed"
) -> float:
    """Return the target accuracy of a benchmark, with this share of PG's gain in accuracy."""
    trials = trials[trials.benchmark == benchmark]
    pg_rate = select_rate(trials, benchmark, PG.name, rule)
    has_chosen_rate = trials.learning_rate == pg_rate
    untrained = trials[trials.algorithm == BASE].accuracy.mean()
    pg_accuracy = trials[(trials.algorithm == PG.name) & has_chosen_rate].accuracy.mean()
    return float(untrained + gain_share * (pg_accuracy - untrained))


def replace_rates(text: str, arena: Arena, trials: pd.DataFrame) -> str:
    """Return the text of the arena's parameters with new learning rates and target accuracies.

    Only the numbers are replaced, so that the comments of the YAML file stay.

    Raises:
        BadInput: the text has no number where one belongs.
    """
    rule = arena.rate_rule
    # The first part is the text before all fields; each further part is that of a field.
    starts = [re.search(rf"^    {name}:\n", text, re.M).start() for name in arena.fields]
    parts = [text[a:b] for a, b in zip([0, *starts], [*starts, len(text)], strict=True)]
    for position, (benchmark, field) in enumerate(arena.fields.items(), start=1):
        values = {}
        if field.reach is not None:  # None: reports compute it from the runs
            target = compute_target_accuracy(trials, benchmark, field.gain_share, rule)
            values["reach"] = f"{target:.2f}"
        for name in field.rates:
            tuned_name = field.same_rate.get(name, name)
            values[name] = _format_rate(select_rate(trials, benchmark, tuned_name, rule))
        for name, value in values.items():
            line = re.compile(rf"^( +[\"']?{re.escape(name)}[\"']?: )\d[\d.e-]*", re.M)
            parts[position], count = line.subn(rf"\g<1>{value}", parts[position], count=1)
            if not count:
                raise BadInput(
                    f"arena.fields.{benchmark} has no line `{name}: NUMBER`: write each key on a "
                    "line of its own, so that its number can be replaced"
                )
    return "".join(parts)


def _format_rate(rate: float) -> str:
    """Return a rate with all its digits, and at least two: 1.0e-04, 1.25e-04."""
    digits, _, exponent = f"{rate:.6e}".partition("e")
    return f"{digits.rstrip('0').ljust(3, '0')}e{exponent}"


if __name__ == "__main__":
    sys.exit(main())
