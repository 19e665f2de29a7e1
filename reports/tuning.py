"""`python -m reports.tuning`: the learning rates that the arena's tuning chose, into its file.

The record has a row for each trial. A rate is chosen by its mean accuracy over seeds, averaged with
those of its neighbours by weights of 1, 2 and 1: a rate beside a cliff is not taken, and chance
decides less. The accuracy to reach is three quarters of the way that PG makes with its rate.
"""

import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from rapid.algorithms import PLAIN
from rapid.algorithms.names import parse
from rapid.arguments import Parser
from rapid.artifacts.files import BadInput, write_text
from rapid.config.arena import Arena
from rapid.config.params import load_files
from rapid.config.specs import BASE, arena_runs
from reports.measured import Measured
from reports.outcomes import METRIC

WAY = 0.75  # of PG's, to the accuracy that is to be reached
COLUMNS = ["benchmark", "algorithm", "learning_rate", "seed", "accuracy"]


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Return 0, or 1 where trials are missing."""
    parser = Parser(prog="python -m reports.tuning", description=__doc__)
    parser.add_argument("--configfile", nargs="+", required=True, metavar="FILE")
    parser.add_argument("--record", type=Path, required=True, help="file to write the trials to")
    parser.add_argument(
        "--write",
        type=Path,
        required=True,
        help="file of the experiment in which learning rates are replaced",
    )
    options = parser.parse_args(arguments)
    try:
        params = load_files(*options.configfile)
    except BadInput as error:
        parser.error(str(error))
    if not (params.arena and params.arena.tuning):
        parser.error(
            "these parameters have no arena.tuning: add experiments/arena-tuning.yaml to "
            "--configfile"
        )
    try:
        record = trials(Measured.read(params, trained=arena_runs(params)))
    except BadInput as error:
        print(f"reports.tuning: {error}", file=sys.stderr)
        return 1
    if missing := int(record.accuracy.isna().sum()):
        print(f"reports.tuning: {missing} of {len(record)} trials are missing", file=sys.stderr)
        return 1
    write_text(options.record, record.to_csv(index=False, float_format="%.6g"))
    text = options.write.read_text(encoding="utf-8")
    write_text(options.write, write_rates(text, params.arena, record))
    return 0


def trials(measured: Measured) -> pd.DataFrame:
    """Return a row for each trial, and for each evaluation of the model before training."""
    arena, rows = measured.params.arena, []
    for benchmark, field in arena.fields.items():
        names = {
            field.trial_name(name, rate): (name, rate)
            for name in field.rates
            for rate in arena.tuning.rates[benchmark]
        }
        entries = [measured.params.training.start, *names]
        runs = measured.contest(benchmark, entries, arena.tuning.seeds).runs
        for _, run in runs.iterrows():
            name, rate = names.get(run.algorithm, (BASE, 0.0))
            rows.append((benchmark, name, rate, run.seed, run[METRIC]))
    return pd.DataFrame(rows, columns=COLUMNS)


def smooth_accuracies(record: pd.DataFrame) -> pd.Series:
    """Return for each rate the mean accuracy, averaged with those of its neighbours."""
    means = record.groupby("learning_rate").accuracy.mean()
    sums, weights = (
        np.convolve(values, [1.0, 2.0, 1.0])[1:-1] for values in (means, np.ones(len(means)))
    )
    return pd.Series(sums / weights, means.index)


def select_rate(record: pd.DataFrame, benchmark: str, name: str, borrowed: dict[int, int]) -> float:
    """Return the rate of an algorithm, which may be that of the algorithm at another H."""
    if (h := parse(name).H) in borrowed:
        name = name.replace(f"-H{h}", f"-H{borrowed[h]}")
    tried = record[(record.benchmark == benchmark) & (record.algorithm == name)]
    if tried.empty:
        raise ValueError(f"{name} on {benchmark} has no trials")
    return float(smooth_accuracies(tried).idxmax())


def compute_reach(record: pd.DataFrame, benchmark: str) -> float:
    """Return the accuracy to reach."""
    record = record[record.benchmark == benchmark]
    tuned = record.learning_rate == select_rate(record, benchmark, PLAIN.name, {})
    before = record[record.algorithm == BASE].accuracy.mean()
    plain = record[(record.algorithm == PLAIN.name) & tuned].accuracy.mean()
    return float(before + WAY * (plain - before))


def write_rates(text: str, arena: Arena, record: pd.DataFrame) -> str:
    """Return an experiment's file with the rates and the accuracies that the record gives."""
    starts = [re.search(rf"^    {name}:\n", text, re.M).start() for name in arena.fields]
    parts = [text[a:b] for a, b in zip([0, *starts], [*starts, len(text)], strict=True)]
    for position, (benchmark, field) in enumerate(arena.fields.items(), start=1):
        values = {"reach": f"{compute_reach(record, benchmark):.2f}"}
        for name in field.rates:
            values[name] = f"{select_rate(record, benchmark, name, arena.borrowed):.1e}"
        for name, value in values.items():
            line = re.compile(rf"^( +{re.escape(name)}: )[\d.e-]+", re.M)
            parts[position] = line.sub(rf"\g<1>{value}", parts[position], count=1)
    return "".join(parts)


if __name__ == "__main__":
    sys.exit(main())
