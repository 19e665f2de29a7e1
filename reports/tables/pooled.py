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
    "Pooled": lambda of: of.pooled,
    "Over seeds": lambda of: of.over_seeds,
    "Earlier": lambda of: of.earlier,
    "Latest": lambda of: of.latest,
    "Clustered": lambda of: of.clustered,
    TARGET: lambda of: of.at_target,
}


def tables(of_fields: list[PooledField]) -> list[Table]:
    """Return all tables."""
    measured = of_fields[0].latest.measured
    verdicts = {
        title: group_by_benchmark(judge([select(of) for of in of_fields]))
        for title, select in ANALYSES.items()
    }
    pooled = [judged for of_benchmark in verdicts["Pooled"].values() for judged in of_benchmark]
    clusters = [
        f"{len(set(of.clustered.skeletons.values()))} of {len(of.clustered.skeletons)} problems "
        f"on {of.latest.label}"
        for of in of_fields
    ]
    made = claims(measured, pooled, "pooled-claims", clusters=clusters)
    target_number = len(made) + 2 * len(of_fields) + 2
    for name, show in (("pooled-verdicts", _verdict), ("pooled-estimates", _estimate)):
        for of in of_fields:
            by_title = {title: found[of.latest.benchmark] for title, found in verdicts.items()}
            columns = {
                title: lambda row, judged=judged, show=show: show(judged[row])
                for title, judged in by_title.items()
            }
            rows = [(judged.text, row) for row, judged in enumerate(by_title["Pooled"])]
            made.append(
                build_table(
                    name,
                    measured,
                    [rows],
                    single_group(columns),
                    [of.latest.benchmark],
                    len(made) + 1,
                    last=of is of_fields[-1],
                    target_number=target_number,
                )
            )
    made.append(_counts(verdicts, len(made) + 1, of_fields))
    made.append(_targets(of_fields, len(made) + 1))
    made += [_profile(of, number) for number, of in enumerate(of_fields, start=len(made) + 1)]
    return made


def _verdict(judged: ArenaVerdict) -> Cell:
    if judged.verdict == UNTESTED:
        return Cell(MISSING)
    return Cell(f"{judged.decision} ({formats.p_value(judged.p)})")


def _estimate(judged: ArenaVerdict) -> Cell:
    return estimate_cell(FORMATS[judged.claim.by], judged.estimate)


def _counts(
    verdicts: dict[str, dict[str, list[ArenaVerdict]]], number: int, of_fields: list[PooledField]
) -> Table:
    """Return the table of the number of claims with each verdict, by analysis."""
    counts = {
        title: Counter(judged.verdict for found in by_benchmark.values() for judged in found)
        for title, by_benchmark in verdicts.items()
    }
    columns = {
        verdict.capitalize(): lambda title, verdict=verdict: Cell(str(counts[title][verdict]))
        for verdict in (HOLDS, OPEN, FAILS)
    }
    rows = [(title, title) for title in verdicts]
    benchmarks = [of.latest.benchmark for of in of_fields]
    measured = of_fields[0].latest.measured
    return build_table(
        "verdict-counts", measured, [rows], single_group(columns), benchmarks, number
    )


def _targets(of_fields: list[PooledField], number: int) -> Table:
    columns: dict[str, Callable[[PooledField], Cell]] = {
        "Start": lambda of: Cell(
            formats.percent(of.target.start), formats.percent(of.target.noise)
        ),
        "Target": lambda of: Cell(formats.percent(of.latest.field.reach)),
        "Chance": lambda of: Cell(formats.p_value(of.target.chance_at_reach)),
        "Target on the test problems": lambda of: Cell(formats.percent(of.target.level)),
        "Its chance": lambda of: Cell(formats.p_value(of.target.chance)),
    }
    latest = [of.latest for of in of_fields]
    start = latest[0].measured.params.training.start
    evaluations = [f"{run.runs(start)[METRIC].count()} on {run.label}" for run in latest]
    return build_table(
        "target",
        latest[0].measured,
        [[(of.latest.label, of) for of in of_fields]],
        single_group(columns),
        [run.benchmark for run in latest],
        number,
        evaluations=evaluations,
        points=sorted({run.field.snapshots + 1 for run in latest}),
    )


def _profile(of: PooledField, number: int) -> Table:
    """Return the table of the shares of runs that are at least as accurate as a level."""
    runs, names = (of.earlier, of.latest), order(of.latest)
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
        for level in _levels(np.concatenate([*accuracies.values()]))
    }
    counts = {name: len(values) for name, values in accuracies.items()}
    usual = Counter(counts.values()).most_common(1)[0][0]
    return build_table(
        "profile",
        of.latest.measured,
        [[(labels.algorithm(name), name) for name in accuracies]],
        single_group(columns),
        [of.latest.benchmark],
        number,
        usual_count=usual,
        other_counts=[
            f"{n} of {labels.algorithm(name)}" for name, n in counts.items() if n != usual
        ],
    )


def _levels(accuracies: np.ndarray) -> Iterator[float]:
    """Yield the multiples of `curves.STEP` that some of the runs reach and others do not."""
    for number in range(1, round(1 / curves.STEP)):
        level = number * curves.STEP
        if 0.02 < (accuracies >= level - curves.ROUNDING).mean() < 0.98:
            yield level
