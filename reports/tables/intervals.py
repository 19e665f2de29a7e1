"""What the noise allows to say: accuracies with intervals, and RAPID beside the strongest baselines."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from rapid.artifacts.text import listing
from reports import formats, labels
from reports.measured import Contest, Measured
from reports.statistics import pairs
from reports.statistics.estimates import Estimate, holm
from reports.tables import notes
from reports.tables.columns import RUNTIME, Block, Column, accuracy, grid
from reports.tables.table import MISSING, Cell, Group, Row, Table, estimate_cell, stacked

NO_SCORES = "no run has scores by problem"
UNPAIRED = "no seed has both"
STRONGEST = ("fastest", "most accurate")


# Intervals ----------------------------------------------------------------------------------------


class Interval(Column):
    """A column of accuracy with its interval in the place of the standard deviation."""

    def cell(self, runs: pd.DataFrame) -> Cell:
        cell, known = super().cell(runs), pairs.accuracy(runs, self.metric)
        if known is None:
            return cell if cell.text == MISSING else replace(cell, deviation="", reason=NO_SCORES)
        return replace(cell, deviation="", under=(cell.interval,), detail=f"{known.over}.")


def intervals(measured: Measured) -> Table:
    """Return Table 9: mean accuracy with its 95 % interval."""
    params = measured.params
    spec = params.tables.main
    blocks = [
        Block(
            labels.benchmark(name),
            name,
            spec.model,
            [Interval(one.title, one.metric, one.show) for one in accuracy(params, name)],
        )
        for name in params.benchmarks
    ]
    names = next(iter(measured.contests.values())).algorithms
    found = grid(measured, {name: labels.algorithm(name) for name in names}, blocks, spec.seeds)
    return Table(
        number=9,
        label="tab:intervals",
        caption=f"Accuracy on {spec.model} with 95 % intervals.",
        stub="Algorithm",
        groups=found.groups,
        rows=found.rows,
        notes=[
            notes.INTERVALS,
            "Intervals of two algorithms may overlap although they differ: the same problems are "
            "easy for both. The paired differences of Table 8 take that out.",
            *found.notes,
        ],
    )


# Comparisons --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """RAPID against the strongest baseline of a kind, in one column: an entry of Table 8."""

    contest: Contest
    rapid: str
    kind: str
    column: Column

    @cached_property
    def baseline(self) -> str | None:
        """The baseline; the most accurate one is that of the column's own accuracy."""
        of_runtime = self.column.metric == RUNTIME.metric
        metric = first_accuracy(self.contest) if of_runtime else self.column.metric
        return strongest(self.contest, self.kind, metric)

    @cached_property
    def estimate(self) -> Estimate | None:
        """The paired ratio or difference, or `None` without a pair."""
        if self.baseline is None:
            return None
        ours, theirs = self.contest.of(self.rapid), self.contest.of(self.baseline)
        return self.column.paired.of_runs(ours, theirs, self.column.metric)

    def cell(self) -> Cell:
        """Return the entry: the estimate, its interval and p."""
        if self.baseline is None:
            return Cell(MISSING, reason="no RL baseline has a value")
        found = self.estimate
        if found is None:
            of_runtime = self.column.metric == RUNTIME.metric
            reason = UNPAIRED if of_runtime else f"{UNPAIRED} with scores by problem"
            return Cell(MISSING, reason=reason)
        names = f"{labels.algorithm(self.rapid)} against {labels.algorithm(self.baseline)}"
        return estimate_cell(
            self.column.paired.show,
            found,
            under=() if found.p is None else (formats.p_value(found.p),),
            reason="one pair of runs has no noise to compare with" if found.low is None else "",
            detail=f"{names}: {found.over}.",
            sources=self.column.sources(
                self.contest.of(self.rapid, self.baseline), label=labels.run
            ),
        )


def comparisons(measured: Measured) -> Table:
    """Return Table 8: RAPID at each H, paired with the fastest and the most accurate RL baseline."""
    contests = measured.contests
    columns = {name: [*accuracy(measured.params, name), RUNTIME] for name in contests}
    rapids = next(iter(contests.values())).rapids
    found = {
        (kind, rapid): [
            [Comparison(contest, rapid, kind, column) for column in columns[name]]
            for name, contest in contests.items()
        ]
        for kind in STRONGEST
        for rapid in rapids
    }
    estimates = [one.estimate for row in found.values() for group in row for one in group]
    parts = [
        [
            Row(
                f"{labels.ratio(rapid)}, {kind}",
                [[one.cell() for one in group] for group in found[kind, rapid]],
            )
            for rapid in rapids
        ]
        for kind in STRONGEST
    ]
    return Table(
        number=8,
        label="tab:comparisons",
        caption=(
            "RAPID beside the fastest and the most accurate RL baseline on "
            f"{measured.params.tables.main.model}: difference of accuracy in points, ratio of "
            "runtimes, 95 % intervals."
        ),
        stub="RAPID, against the",
        groups=[
            Group(labels.benchmark(name), [column.title for column in columns[name]])
            for name in contests
        ],
        rows=stacked(parts),
        notes=[
            *_strongest(contests),
            "Accuracy: RAPID less the baseline in percentage points, paired by problem and seed. "
            "Runtime: RAPID's over the baseline's, paired by seed, t-test on logarithms.",
            notes.INTERVALS,
            _significant([one.p for one in estimates if one and one.p is not None]),
            "The baselines were chosen by these same runs, which favours them.",
            _resolved(contests, columns),
        ],
    )


def strongest(contest: Contest, kind: str, metric: str = "pass@1") -> str | None:
    """Return the RL baseline that is fastest, or most accurate by this metric."""
    return contest.first(contest.baselines, "runtime" if kind == "fastest" else metric)


def first_accuracy(contest: Contest) -> str:
    """Return the benchmark's first pass@k, by which "most accurate" goes where runtimes compare."""
    known = [name for name in contest.runs.columns if name.startswith("pass@")]
    return next((name for name in known if contest.runs[name].notna().any()), "pass@1")


def _significant(ps: list[float]) -> str:
    """Return what p says, and what is left of it among so many comparisons."""
    text = "p: of no difference, for one comparison by itself."
    if not ps:
        return text
    alone, together = (np.array(ps) <= 0.05).sum(), (holm(ps) <= 0.05).sum()
    return (
        f"{text} Of {len(ps)} comparisons {alone} have p of at most 0.05, and {together} after "
        "Holm's adjustment for their number."
    )


def _strongest(contests: dict[str, Contest]) -> list[str]:
    """Return which baselines these are."""
    lines = []
    for kind in STRONGEST:
        named = [
            f"{labels.algorithm(name)} on {labels.benchmark(benchmark)}"
            for benchmark, contest in contests.items()
            if (name := strongest(contest, kind, first_accuracy(contest)))
        ]
        if named:
            lines.append(f"{kind.capitalize()} RL baseline: {listing(named)}.")
    if lines:
        lines.append("For another Pass@k the most accurate baseline is that of this Pass@k.")
    return lines


def _resolved(contests: dict[str, Contest], columns: dict[str, list[Column]]) -> str:
    """Return half the median width of the paired intervals: the least difference that is seen."""
    parts = []
    for name, contest in contests.items():
        column = columns[name][0]
        found = [
            Comparison(contest, rapid, "most accurate", column).estimate for rapid in contest.rapids
        ]
        widths = [(one.high - one.low) / 2 for one in found if one]
        if widths:
            half = 100 * np.median(widths)
            parts.append(f"{half:.1f} points on {labels.benchmark(name)} ({column.title})")
    if not parts:
        return "What difference these runs can show is not known."
    return f"Smallest difference that these runs show, about: {listing(parts)}."
