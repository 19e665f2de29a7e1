"""Tables of the trials that choose the arena's learning rates (`reports.tuning`).

They are in the report on these trials, and in the arena's report.
"""

from dataclasses import replace

import pandas as pd

from rapid.config.arena import RateRule
from rapid.config.specs import BASE
from reports import formats, labels
from reports.report_data import ReportData
from reports.tables.layout import build_table, single_group
from reports.tables.table import MISSING, Cell, Table
from reports.tuning import collect_trials, find_ties, score_rates

AT_EDGE = "this is the first or last rate that was tried; the best rate may lie beyond it"


def build_trial_tables(data: ReportData) -> list[Table]:
    """Return a table for each benchmark, from the runs of the trials."""
    return _build_tables(data, collect_trials(data), first_number=1)


def build_recorded_tables(data: ReportData, number: int) -> list[Table]:
    """Return a table for each benchmark, from the file of `reports.tuning` if it exists.

    The first table has this number.
    """
    path = data.root / "experiments" / f"{data.params.name}-tuning.csv"
    return _build_tables(data, pd.read_csv(path), number) if path.is_file() else []


def _build_tables(data: ReportData, trials: pd.DataFrame, first_number: int) -> list[Table]:
    return [
        _build_table(data, benchmark, trials[trials.benchmark == benchmark], number)
        for number, benchmark in enumerate(data.params.arena.fields, start=first_number)
    ]


def _build_table(data: ReportData, benchmark: str, trials: pd.DataFrame, number: int) -> Table:
    rates = sorted(set(trials[trials.algorithm != BASE].learning_rate))
    rule = data.params.arena.rate_rule
    cells = {
        name: _build_cells(trials[trials.algorithm == name], rates, rule)
        for name in data.params.arena.fields[benchmark].rates
        if name in set(trials.algorithm)
    }
    columns = {
        f"{rate:g}": lambda name, position=position: cells[name][position]
        for position, rate in enumerate(rates)
    }
    return build_table(
        "tuning",
        data,
        sections=[[(labels.algorithm(name), name) for name in cells]],
        groups=single_group(columns, "Learning rate"),
        benchmarks=[benchmark],
        number=number,
        trial_seeds=trials[trials.algorithm != BASE].seed.nunique(),
        rule=rule,
    )


def _build_cells(trials: pd.DataFrame, rates: list[float], rule: RateRule) -> list[Cell]:
    """Return a cell with the accuracy of an algorithm at each rate.

    The chosen rate is marked. If the rule is `highest`, the rates that tie with it are marked too.
    """
    means = trials.groupby("learning_rate").accuracy.mean().reindex(rates)
    cells = {
        rate: Cell(MISSING if pd.isna(mean) else formats.percent(mean))
        for rate, mean in means.items()
    }
    scores = score_rates(trials, rule).dropna()  # NaN if a rate, or its neighbour, has no trial
    if not scores.empty:
        best = scores.idxmax()
        for rate in find_ties(trials, best) if rule == "highest" else []:
            cells[rate] = replace(cells[rate], tied=True)
        reason = AT_EDGE if best in (rates[0], rates[-1]) else ""
        cells[best] = replace(cells[best], mark="best", reason=reason)
    return list(cells.values())
