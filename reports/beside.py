"""The paper's figures beside the measured ones: ratios, orders and signs, which compare across
machines where seconds and accuracies do not."""

import math

import pandas as pd
from scipy import stats

from rapid.benchmarks import BENCHMARKS
from rapid.config.params import Params
from reports import cells, claims, compare, formats, notes, paper
from reports.cells import Metric
from reports.claims import RUNTIME
from reports.compare import UNRANKED_RUNTIME, Field
from reports.evidence import field_of
from reports.statistics import correlate
from reports.table import MISSING, Cell, Group, Row, Source, Table
from reports.tables import accuracy

NOT_IN_PAPER = "the paper has no such figure"
NOT_HERE = "no runs to compare"
APART = (
    "Paper: from reports/paper.yaml, with the paper's model and machine "
    "({model}, {hardware}). Here: the runs of this report."
)


def tables(params: Params, frame: pd.DataFrame) -> list[Table]:
    return [
        ratios(params, frame),
        orders(params, frame),
        claims.table(params, frame),
        signs(params, frame),
    ]


def ratios(params: Params, frame: pd.DataFrame) -> Table:
    """Table 10: RAPID's runtime and accuracy against the strongest RL baseline."""
    fields = {name: field_of(params, frame, name) for name in params.benchmarks}
    rapids = next(iter(fields.values())).rapids
    rows = []
    for name in rapids:
        h = paper.ratio(name)
        found = [_runtimes(benchmark, field, name) for benchmark, field in fields.items()]
        rows.append(Row(f"Runtime, H={h} / fastest", found))
    for position, name in enumerate(rapids):
        h = paper.ratio(name)
        found = [_accuracies(benchmark, field, name) for benchmark, field in fields.items()]
        rows.append(
            Row(f"Pass@1, H={h} {formats.MINUS} most accurate", found, section=position == 0)
        )
    return Table(
        number=10,
        label="tab:beside-ratios",
        caption="RAPID against the strongest RL baseline, in the paper and here.",
        stub="Figure",
        groups=[Group(notes.benchmark(name), ["Paper", "Here"]) for name in fields],
        rows=rows,
        notes=[
            _apart(),
            "Runtime: RAPID's mean over the fastest RL baseline's, here with the 95 % interval of "
            "pairs. Pass@1: less the most accurate RL baseline's, in points.",
        ],
    )


def _runtimes(benchmark: str, field: Field, rapid: str) -> list[Cell]:
    theirs = paper.order(benchmark, paper.BASELINES, "runtime")
    ours = paper.main(benchmark, rapid, "runtime")
    printed = Cell(MISSING, reason=NOT_IN_PAPER)
    if theirs and ours is not None:
        printed = Cell(formats.ratio(ours / paper.main(benchmark, theirs[0], "runtime")))
    baseline = field.first(field.baselines, "runtime")
    found = compare.ratio(field.of(rapid), field.of(baseline)) if baseline else None
    if found is None:
        return [printed, Cell(MISSING, reason=NOT_HERE)]
    behind = _behind(field, [rapid, baseline], RUNTIME)
    return [printed, _shown(formats.ratio, found.ratio, found.low, found.high, behind)]


def _accuracies(benchmark: str, field: Field, rapid: str) -> list[Cell]:
    theirs = paper.order(benchmark, paper.BASELINES, "pass@1")
    ours = paper.main(benchmark, rapid, "pass@1")
    printed = Cell(MISSING, reason=NOT_IN_PAPER)
    if theirs and ours is not None:
        printed = Cell(formats.points(ours - paper.main(benchmark, theirs[0], "pass@1")))
    if "pass@1" not in field.runs:
        return [printed, Cell(MISSING, reason=NOT_HERE)]
    baseline = field.first(field.baselines, "pass@1")
    found = compare.difference(field.of(rapid), field.of(baseline), "pass@1") if baseline else None
    if found is None:
        return [printed, Cell(MISSING, reason=NOT_HERE)]
    behind = _behind(field, [rapid, baseline], Metric("Pass@1", "pass@1", formats.percent))
    return [printed, _shown(formats.points, found.mean, found.low, found.high, behind)]


def _shown(
    show: formats.Format,
    value: float,
    low: float | None,
    high: float | None,
    sources: tuple[Source, ...] = (),
) -> Cell:
    under = () if low is None else (formats.interval(show, low, high),)
    return Cell(show(value), under=under, sources=sources)


def _behind(field: Field, algorithms: list[str], metric: Metric) -> tuple[Source, ...]:
    """The runs of these algorithms."""
    return cells.named_sources(field.runs[field.runs.algorithm.isin(algorithms)], metric)


# Orders -------------------------------------------------------------------------------------------


def orders(params: Params, frame: pd.DataFrame) -> Table:
    """Table 11: each algorithm's place, of those that the paper and this report have."""
    names = [name for name in params.tables.main.algorithms if _in_paper(name)]
    metrics = {
        name: [(m.title, m.column) for m in accuracy(params, name)] + [("Time", "runtime")]
        for name in params.benchmarks
    }
    columns = [
        [_places(name, field_of(params, frame, name), names, metric) for _, metric in metrics[name]]
        for name in params.benchmarks
    ]  # benchmark, metric, row
    labels = [*(notes.algorithm(name) for name in names), "Kendall's tau"]
    rows = [
        Row(
            label,
            [[column[position] for column in group] for group in columns],
            section=position == len(names),
        )
        for position, label in enumerate(labels)
    ]
    return Table(
        number=11,
        label="tab:beside-orders",
        caption="Order of the algorithms (1: best), in the paper / here.",
        stub="Algorithm",
        groups=[
            Group(notes.benchmark(name), [title for title, _ in metrics[name]])
            for name in params.benchmarks
        ],
        rows=rows,
        notes=[
            _apart(),
            "Places are of means, among the algorithms that both have; equal means share one. SFT "
            "takes no part in runtime. Kendall's tau is 1 for the same order and "
            f"{formats.MINUS}1 for the reverse; with so few algorithms, of which many are within noise "
            "of each other, it says little.",
        ],
    )


def _in_paper(algorithm: str) -> bool:
    return any(paper.main(name, algorithm, "pass@1") is not None for name in BENCHMARKS)


def _places(benchmark: str, field: Field, names: list[str], metric: str) -> list[Cell]:
    """A cell an algorithm, paper / here, and Kendall's tau of the two orders at the end."""
    left_out = UNRANKED_RUNTIME if metric == "runtime" else ()
    pairs = {
        name: (paper.main(benchmark, name, metric), field.mean(name, metric)) for name in names
    }
    pairs = {
        name: pair for name, pair in pairs.items() if None not in pair and name not in left_out
    }
    if len(pairs) < 2:
        return [Cell(MISSING)] * (len(names) + 1)
    sign = 1 if metric == "runtime" else -1
    theirs, ours = zip(*pairs.values(), strict=True)
    places = zip(
        pairs,
        *(stats.rankdata([sign * value for value in side], "min") for side in (theirs, ours)),
        strict=True,
    )
    printed = {name: f"{of_paper:.0f} / {here:.0f}" for name, of_paper, here in places}
    tau = float(stats.kendalltau(theirs, ours).statistic)
    return [
        *(Cell(printed.get(name, MISSING)) for name in names),
        Cell(formats.correlation(tau) if math.isfinite(tau) else MISSING),
    ]


# Signs --------------------------------------------------------------------------------------------


def signs(params: Params, frame: pd.DataFrame) -> Table:
    """Table 13: each correlation of Table 4, and whether its sign is the paper's."""
    rows = []
    for benchmark in params.benchmarks:
        field = field_of(params, frame, benchmark)
        sweep = field.runs[field.runs.H.isin(params.tables.staleness.H)]
        metrics = [(m.title, m.column) for m in accuracy(params, benchmark)]
        metrics += [("Time", "runtime"), ("Stale", "staleness")]
        for position, (title, column) in enumerate(metrics):
            label = f"{notes.benchmark(benchmark)}: H and {title}"
            found = _signs(benchmark, sweep, column)
            rows.append(Row(label, [found], section=position == 0 and bool(rows)))
    return Table(
        number=13,
        label="tab:beside-signs",
        caption="Correlations with H, in the paper and here.",
        stub="Correlation",
        groups=[Group("", ["Paper", "Here", "Same sign"])],
        rows=rows,
        notes=[
            _apart(),
            "Intervals are Fisher's, 95 %; the paper's are computed from its r and its number of "
            "runs. In noise: the interval covers 0, and the sign may be chance.",
        ],
    )


def _signs(benchmark: str, sweep: pd.DataFrame, column: str) -> list[Cell]:
    printed, found = paper.correlation(benchmark, column), correlate(sweep.H, sweep[column])
    theirs = Cell(MISSING, reason=NOT_IN_PAPER)
    if printed:
        theirs = _shown(formats.correlation, *printed)
    ours = Cell(MISSING, reason=found.reason)
    if found.r is not None:
        behind = cells.named_sources(sweep, Metric(column, column, formats.plain))
        ours = _shown(formats.correlation, found.r, found.low, found.high, behind)
    if not printed or found.r is None:
        return [theirs, ours, Cell(MISSING)]
    same = "yes" if printed[0] * found.r > 0 else "no"
    uncertain = [
        name
        for name, (low, high) in {"paper": printed[1:], "here": (found.low, found.high)}.items()
        if low is None or low <= 0 <= high
    ]
    if uncertain:
        same += f" (in noise: {formats.listing(uncertain)})"
    return [theirs, ours, Cell(same)]


def _apart() -> str:
    document = paper.load()
    return APART.format(model=document["main"]["model"], hardware=document["hardware"])
