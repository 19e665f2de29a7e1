"""The paper's figures beside the measured ones: orders and signs.

These compare across machines, where seconds and accuracies do not; so do the ratios of Table 8.
"""

import math

import pandas as pd
from scipy import stats

from rapid.benchmarks import BENCHMARKS
from rapid.text import listing
from reports import formats, labels, paper
from reports.formats import MINUS
from reports.measured import UNRANKED_RUNTIME, Contest, Measured
from reports.statistics.estimates import correlate
from reports.tables.columns import STALENESS, TIME, Column, accuracy
from reports.tables.table import MISSING, Cell, Group, Row, Table, estimate_cell, stacked

NOT_IN_PAPER = "the paper has no such figure"


# Orders -------------------------------------------------------------------------------------------


def orders(measured: Measured) -> Table:
    """Return Table 11: each algorithm's place, of those that the paper and this report have."""
    params, contests = measured.params, measured.contests
    names = [name for name in params.tables.main.algorithms if _in_paper(name)]
    columns = {name: [*accuracy(params, name), TIME] for name in contests}
    places = [
        [_places(contest, names, column.metric) for column in columns[name]]
        for name, contest in contests.items()
    ]  # benchmark, metric, row
    rows = [
        Row(label, [[column[position] for column in group] for group in places])
        for position, label in enumerate([*map(labels.algorithm, names), "Kendall's tau"])
    ]
    return Table(
        number=11,
        label="tab:beside-orders",
        caption="Order of the algorithms (1: best), in the paper / here.",
        stub="Algorithm",
        groups=[
            Group(contest.label, [column.title for column in columns[name]])
            for name, contest in contests.items()
        ],
        rows=stacked([rows[:-1], rows[-1:]]),
        notes=[
            _apart(),
            "Places are of means, among the algorithms that both have; equal means share one. SFT "
            "takes no part in runtime. Kendall's tau is 1 for the same order and "
            f"{MINUS}1 for the reverse; with so few algorithms, of which many are within noise "
            "of each other, it says little.",
        ],
        problems=[*measured.problems.values()],
    )


def _in_paper(algorithm: str) -> bool:
    return any(paper.main(name, algorithm, "pass@1") is not None for name in BENCHMARKS)


def _places(contest: Contest, names: list[str], metric: str) -> list[Cell]:
    """Return the places of each algorithm, paper / here, and at the end Kendall's tau of both."""
    means = pd.DataFrame(
        {
            name: (paper.main(contest.benchmark, name, metric), contest.of(name)[metric].mean())
            for name in names
            if metric != "runtime" or name not in UNRANKED_RUNTIME
        },
        index=["paper", "here"],
        dtype=float,
    ).T.dropna()
    if len(means) < 2:
        return [Cell(MISSING)] * (len(names) + 1)
    places = means.rank(method="min", ascending=metric == "runtime").astype(int)
    tau = float(stats.kendalltau(means.paper, means.here).statistic)
    printed = {name: f"{place.paper} / {place.here}" for name, place in places.iterrows()}
    return [
        *(Cell(printed.get(name, MISSING)) for name in names),
        Cell(formats.correlation(tau) if math.isfinite(tau) else MISSING),
    ]


# Signs --------------------------------------------------------------------------------------------


def signs(measured: Measured) -> Table:
    """Return Table 13: each correlation of Table 4, and whether its sign is the paper's."""
    parts = [
        [
            Row(
                f"{contest.label}: H and {column.title}",
                [_signs(measured, name, column.metric)],
            )
            for column in [*accuracy(measured.params, name), TIME, STALENESS]
        ]
        for name, contest in measured.contests.items()
    ]
    return Table(
        number=13,
        label="tab:beside-signs",
        caption="Correlations with H, in the paper and here.",
        stub="Correlation",
        groups=[Group("", ["Paper", "Here", "Same sign"])],
        rows=stacked(parts),
        notes=[
            _apart(),
            "Intervals are Fisher's, 95 %; the paper's are computed from its r and its number of "
            "runs. In noise: the interval covers 0, and the sign may be chance.",
        ],
        problems=[*measured.problems.values()],
    )


def _signs(measured: Measured, benchmark: str, metric: str) -> list[Cell]:
    sweep = measured.sweeps[benchmark]
    printed, found = paper.correlation(benchmark, metric), correlate(sweep.H, sweep[metric])
    behind, said = Column("", metric, formats.plain).sources(sweep, labels.run), MISSING
    if printed and found.value is not None:
        both = {"paper": printed, "here": found}.items()
        uncertain = [name for name, one in both if one.low is None or one.covers(0)]
        said = "yes" if printed.value * found.value > 0 else "no"
        said += f" (in noise: {listing(uncertain)})" if uncertain else ""
    return [
        estimate_cell(formats.correlation, printed, NOT_IN_PAPER),
        estimate_cell(formats.correlation, found, sources=behind),
        Cell(said),
    ]


def _apart() -> str:
    document = paper.load()
    return (
        f"Paper: from reports/paper.yaml, with the paper's model and machine "
        f"({document['main']['model']}, {document['hardware']}) and the published problems. Here: "
        "the runs of this report."
    )
