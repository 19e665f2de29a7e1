"""Tables of two whole runs of the arena: pooled verdicts, and verdicts by other analyses."""

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from reports import formats, labels
from reports.analyses import PooledField
from reports.outcomes import METRIC, FieldOutcomes, by_run
from reports.statistics import curves
from reports.tables.arena import FORMATS, ArenaVerdict, claims, group_by_benchmark, judge, order
from reports.tables.claims import FAILS, HOLDS, OPEN, UNTESTED
from reports.tables.layout import build_table, single_group
from reports.tables.table import MISSING, Cell, Table, estimate_cell

TARGET = "Other target"
# Title of a column -> the analysis of a field.
ANALYSES: dict[str, Callable[[PooledField], FieldOutcomes]] = {
    "Pooled": lambda field: field.pooled,
    "Over seeds": lambda field: field.over_seeds,
    "Earlier": lambda field: field.earlier,
    "Latest": lambda field: field.latest,
    "Clustered": lambda field: field.clustered,
    TARGET: lambda field: field.at_target,
}


def build_tables(fields: list[PooledField]) -> list[Table]:
    """Return all tables."""
    measured = fields[0].latest.measured
    verdicts = {
        title: group_by_benchmark(judge([select(field) for field in fields]))
        for title, select in ANALYSES.items()
    }
    pooled = [
        judged
        for benchmark_verdicts in verdicts["Pooled"].values()
        for judged in benchmark_verdicts
    ]
    clusters = [
        f"{len(set(field.clustered.skeletons.values()))} of "
        f"{len(field.clustered.skeletons)} problems on {field.latest.label}"
        for field in fields
    ]
    tables = claims(measured, pooled, "pooled-claims", clusters=clusters)
    target_number = len(tables) + 2 * len(fields) + 2
    for name, show in (
        ("pooled-verdicts", _render_verdict),
        ("pooled-estimates", _render_estimate),
    ):
        for field in fields:
            by_title = {
                title: by_benchmark[field.latest.benchmark]
                for title, by_benchmark in verdicts.items()
            }
            columns = {
                title: lambda row, judged=judged, show=show: show(judged[row])
                for title, judged in by_title.items()
            }
            rows = [(judged.text, row) for row, judged in enumerate(by_title["Pooled"])]
            tables.append(
                build_table(
                    name,
                    measured,
                    [rows],
                    single_group(columns),
                    [field.latest.benchmark],
                    len(tables) + 1,
                    last=field is fields[-1],
                    target_number=target_number,
                )
            )
    tables.append(_build_counts_table(verdicts, len(tables) + 1, fields))
    tables.append(_build_target_table(fields, len(tables) + 1))
    tables += [
        _build_profile(field, number) for number, field in enumerate(fields, start=len(tables) + 1)
    ]
    return tables


def _render_verdict(judged: ArenaVerdict) -> Cell:
    if judged.verdict == UNTESTED:
        return Cell(MISSING)
    return Cell(f"{judged.decision} ({formats.p_value(judged.p)})")


def _render_estimate(judged: ArenaVerdict) -> Cell:
    return estimate_cell(FORMATS[judged.claim.by], judged.estimate)


def _build_counts_table(
    verdicts: dict[str, dict[str, list[ArenaVerdict]]], number: int, fields: list[PooledField]
) -> Table:
    """Return the table of the number of claims with each verdict, by analysis."""
    counts = {
        title: Counter(
            judged.verdict
            for claims_of_benchmark in by_benchmark.values()
            for judged in claims_of_benchmark
        )
        for title, by_benchmark in verdicts.items()
    }
    columns = {
        verdict.capitalize(): lambda title, verdict=verdict: Cell(str(counts[title][verdict]))
        for verdict in (HOLDS, OPEN, FAILS)
    }
    rows = [(title, title) for title in verdicts]
    benchmarks = [field.latest.benchmark for field in fields]
    measured = fields[0].latest.measured
    return build_table(
        "verdict-counts", measured, [rows], single_group(columns), benchmarks, number
    )


def _build_target_table(fields: list[PooledField], number: int) -> Table:
    columns: dict[str, Callable[[PooledField], Cell]] = {
        "Start": lambda field: Cell(
            formats.percent(field.target.start), formats.percent(field.target.noise)
        ),
        "Target": lambda field: Cell(formats.percent(field.latest.reach)),
        "Chance": lambda field: Cell(formats.p_value(field.target.chance_at_reach)),
        "Target on the test problems": lambda field: Cell(formats.percent(field.target.level)),
        "Its chance": lambda field: Cell(formats.p_value(field.target.chance)),
    }
    latest = [field.latest for field in fields]
    start = latest[0].measured.params.training.start
    evaluations = [f"{run.runs(start)[METRIC].count()} on {run.label}" for run in latest]
    return build_table(
        "target",
        latest[0].measured,
        [[(field.latest.label, field) for field in fields]],
        single_group(columns),
        [run.benchmark for run in latest],
        number,
        evaluations=evaluations,
        points=sorted({run.field.snapshots + 1 for run in latest}),
    )


def _build_profile(field: PooledField, number: int) -> Table:
    """Return the table of the shares of runs that are at least as accurate as a level."""
    runs, names = (field.earlier, field.latest), order(field.latest)
    accuracies = {
        name: np.concatenate([by_run(run.outcomes[name])[:, 0] for run in runs]) for name in names
    }
    never = {
        name: sum(int(np.isinf(run.outcomes[name].seconds).sum()) for run in runs) for name in names
    }
    columns = {"Never": lambda name: Cell(str(never[name]))} | {
        formats.percent(level): lambda name, level=level: Cell(
            formats.percent((accuracies[name] >= level - curves.ROUNDING).mean())
        )
        for level in _find_informative_levels(np.concatenate([*accuracies.values()]))
    }
    counts = {name: len(values) for name, values in accuracies.items()}
    usual = Counter(counts.values()).most_common(1)[0][0]
    return build_table(
        "profile",
        field.latest.measured,
        [[(labels.algorithm(name), name) for name in accuracies]],
        single_group(columns),
        [field.latest.benchmark],
        number,
        usual_count=usual,
        other_counts=[
            f"{n} of {labels.algorithm(name)}" for name, n in counts.items() if n != usual
        ],
    )


def _find_informative_levels(accuracies: np.ndarray) -> Iterator[float]:
    """Yield the multiples of `curves.STEP` that some of the runs reach and others do not."""
    for number in range(1, round(1 / curves.STEP)):
        level = number * curves.STEP
        if 0.02 < (accuracies >= level - curves.ROUNDING).mean() < 0.98:
            yield level
