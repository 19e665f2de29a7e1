"""What the noise allows to say: accuracies with intervals, and RAPID beside the strongest baselines."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pandas as pd

from rapid.algorithms import RAPID
from rapid.algorithms.names import parse
from rapid.config.params import Params
from rapid.config.specs import BASE
from reports import cells, compare, formats, notes, paper
from reports.cells import Metric
from reports.compare import Field
from reports.statistics import holm
from reports.table import MISSING, Cell, Group, Row, Table
from reports.tables import accuracy

NO_SCORES = "no run has scores by problem"
UNPAIRED = "no seed has both"
STRONGEST = ("fastest", "most accurate")


def tables(params: Params, frame: pd.DataFrame) -> list[Table]:
    return [comparisons(params, frame), intervals(params, frame)]


def algorithms(params: Params) -> list[str]:
    """Of Table 1, and last RAPID at every H of Tables 1 and 3, by H."""
    others = [name for name in params.tables.main.algorithms if not RAPID.named(name)]
    named = set(filter(RAPID.named, params.tables.main.algorithms))
    named |= set(map(RAPID.at, params.tables.staleness.H))
    return [*others, *sorted(named, key=lambda name: (parse(name).H, name))]


def field_of(params: Params, frame: pd.DataFrame, benchmark: str) -> Field:
    """The main model's runs on a benchmark."""
    spec = params.tables.main
    return compare.field(frame, benchmark, spec.model, [BASE, *algorithms(params)], spec.seeds)


# Intervals ----------------------------------------------------------------------------------------


def intervals(params: Params, frame: pd.DataFrame) -> Table:
    """Table 9: mean accuracy with its 95 % interval."""
    names = [BASE, *algorithms(params)]
    fields = {name: field_of(params, frame, name) for name in params.benchmarks}
    rows = [
        Row(
            notes.algorithm(algorithm),
            [
                [_interval(fields[name].of(algorithm), metric) for metric in accuracy(params, name)]
                for name in params.benchmarks
            ],
        )
        for algorithm in names
    ]
    shown = pd.concat([field.runs for field in fields.values()])
    return Table(
        number=9,
        label="tab:intervals",
        caption=f"Accuracy on {params.tables.main.model} with 95 % intervals.",
        stub="Algorithm",
        groups=[
            Group(notes.benchmark(name), [metric.title for metric in accuracy(params, name)])
            for name in params.benchmarks
        ],
        rows=rows,
        notes=[
            notes.INTERVALS,
            "Intervals of two algorithms may overlap although they differ: the same problems are "
            "easy for both. The paired differences of Table 8 take that out.",
            notes.evaluation(shown),
            notes.resolution(shown),
        ],
    )


def _interval(runs: pd.DataFrame, metric: Metric) -> Cell:
    cell, known = cells.mean_cell(runs, metric), compare.accuracy(runs, metric.column)
    if known is None:
        return cell if cell.text == MISSING else replace(cell, deviation="", reason=NO_SCORES)
    detail = f"n = {known.seeds} seeds and {known.problems} problems."
    return replace(cell, deviation="", under=(cell.interval,), detail=detail)


# Comparisons --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Comparison:
    """One cell, and its p before it is adjusted for the number of comparisons."""

    cell: Cell
    p: float | None = None


def comparisons(params: Params, frame: pd.DataFrame) -> Table:
    """Table 8: RAPID at each H, paired with the fastest and the most accurate RL baseline."""
    fields = {name: field_of(params, frame, name) for name in params.benchmarks}
    metrics = {
        name: [*accuracy(params, name), Metric("Runtime", "runtime", formats.duration)]
        for name in params.benchmarks
    }
    rapids = list(filter(RAPID.named, algorithms(params)))
    entries = [(kind, rapid) for kind in STRONGEST for rapid in rapids]
    found = [
        [
            [_compare(fields[name], rapid, kind, metric) for metric in metrics[name]]
            for name in params.benchmarks
        ]
        for kind, rapid in entries
    ]
    ps = [one.p for row in found for group in row for one in group]
    rows = []
    for (kind, rapid), row in zip(entries, found, strict=True):
        label = f"H={paper.ratio(rapid)}, {kind}"
        shown = [[_with_p(one) for one in group] for group in row]
        rows.append(Row(label, shown, section=rapid == rapids[0] and bool(rows)))
    return Table(
        number=8,
        label="tab:comparisons",
        caption=(
            f"RAPID beside the fastest and the most accurate RL baseline on "
            f"{params.tables.main.model}: difference of accuracy in points, ratio of runtimes, "
            "95 % intervals."
        ),
        stub="RAPID, against the",
        groups=[
            Group(notes.benchmark(name), [metric.title for metric in metrics[name]])
            for name in params.benchmarks
        ],
        rows=rows,
        notes=[
            *_strongest(fields),
            "Accuracy: RAPID less the baseline in percentage points, paired by problem and seed. "
            "Runtime: RAPID's over the baseline's, paired by seed, t-test on logarithms.",
            notes.INTERVALS,
            _significant(ps),
            "The baselines were chosen by these same runs, which favours them.",
            _resolved(fields, metrics),
        ],
    )


def strongest(field: Field, kind: str, metric: str = "pass@1") -> str | None:
    """The RL baseline that is fastest, or most accurate by this metric."""
    return field.first(field.baselines, "runtime" if kind == "fastest" else metric)


def _compare(field: Field, rapid: str, kind: str, metric: Metric) -> _Comparison:
    of_accuracy = metric.column if metric.column != "runtime" else _first_accuracy(field)
    baseline = strongest(field, kind, of_accuracy)
    if baseline is None:
        return _Comparison(Cell(MISSING, reason="no RL baseline has a value"))
    ours, theirs = field.of(rapid), field.of(baseline)
    sources = cells.named_sources(ours, metric) + cells.named_sources(theirs, metric)
    names = f"{notes.algorithm(rapid)} against {notes.algorithm(baseline)}"
    if metric.column == "runtime":
        found = compare.ratio(ours, theirs)
        if found is None:
            return _Comparison(Cell(MISSING, reason=UNPAIRED))
        under = _under(formats.ratio, found.low, found.high)
        reason = "" if under else "one pair of runs has no noise to compare with"
        cell = Cell(
            formats.ratio(found.ratio),
            reason=reason,
            under=under,
            detail=f"{names}: ratio of geometric means, n = {found.n} pairs.",
            sources=sources,
        )
        return _Comparison(cell, found.p)
    paired = compare.difference(ours, theirs, metric.column)
    if paired is None:
        return _Comparison(Cell(MISSING, reason=f"{UNPAIRED} with scores by problem"))
    cell = Cell(
        formats.points(paired.mean),
        under=_under(formats.points, paired.low, paired.high),
        detail=f"{names}: n = {paired.seeds} seeds and {paired.problems} problems.",
        sources=sources,
    )
    return _Comparison(cell, paired.p)


def _first_accuracy(field: Field) -> str:
    """Which accuracy "most accurate" means where runtimes are compared: the benchmark's first."""
    known = [name for name in field.runs.columns if name.startswith("pass@")]
    return next((name for name in known if field.runs[name].notna().any()), "pass@1")


def _under(show: Callable[[float], str], low: float | None, high: float | None) -> tuple[str, ...]:
    return () if low is None else (formats.interval(show, low, high),)


def _with_p(one: _Comparison) -> Cell:
    if one.p is None:
        return one.cell
    text = formats.p_value(one.p)
    line = f"p {text}" if "<" in text else f"p = {text}"
    return replace(one.cell, under=(*one.cell.under, line))


def _significant(ps: list[float | None]) -> str:
    """What p says, and what is left of it among so many comparisons."""
    known = [p for p in ps if p is not None]
    text = "p: of no difference, for one comparison by itself."
    if not known:
        return text
    alone = sum(p <= 0.05 for p in known)
    together = sum(p <= 0.05 for p in holm(known))
    return (
        f"{text} Of {len(known)} comparisons {alone} have p of at most 0.05, and {together} after "
        "Holm's adjustment for their number."
    )


def _strongest(fields: dict[str, Field]) -> list[str]:
    """Which baselines these are."""
    lines = []
    for kind in STRONGEST:
        named = [
            f"{notes.algorithm(name)} on {notes.benchmark(benchmark)}"
            for benchmark, field in fields.items()
            if (name := strongest(field, kind, _first_accuracy(field)))
        ]
        if named:
            lines.append(f"{kind.capitalize()} RL baseline: {formats.listing(named)}.")
    if lines:
        lines.append("For another Pass@k the most accurate baseline is that of this Pass@k.")
    return lines


def _resolved(fields: dict[str, Field], metrics: dict[str, list[Metric]]) -> str:
    """Half the median width of the paired intervals: what a difference must exceed to be seen."""
    parts = []
    for name, field in fields.items():
        metric = metrics[name][0]
        best = strongest(field, "most accurate", metric.column)
        widths = [
            found.half_width
            for rapid in field.rapids
            if best
            and (found := compare.difference(field.of(rapid), field.of(best), metric.column))
        ]
        if widths:
            half = 100 * float(pd.Series(widths).median())
            parts.append(f"{half:.1f} points on {notes.benchmark(name)} ({metric.title})")
    if not parts:
        return "What difference these runs can show is not known."
    return f"Smallest difference that these runs show, about: {formats.listing(parts)}."
