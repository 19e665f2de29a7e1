"""What the noise allows to say: accuracies with intervals, and RAPID against baselines."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from rapid.text import listing
from reports import formats, labels, paper
from reports.measured import BASELINE, Contest, Measured
from reports.statistics import pairs
from reports.statistics.decisions import detectable, holm
from reports.statistics.estimates import Estimate
from reports.tables import notes
from reports.tables.columns import RUNTIME, Column, accuracy, by_benchmark, grid
from reports.tables.table import MISSING, Cell, Group, Row, Source, Table, estimate_cell

NO_SCORES = "no run has scores by problem"
UNPAIRED = "no seed has both"


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
    spec = measured.params.tables.main
    blocks = by_benchmark(
        measured,
        lambda name: [
            Interval(one.title, one.metric, one.show) for one in accuracy(measured.params, name)
        ],
    )
    found = grid(measured, measured.rows(measured.algorithms), blocks, spec.seeds)
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
        problems=[*measured.problems.values()],
    )


# Comparisons --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """One algorithm against another in one column, paired."""

    contest: Contest
    column: Column
    ours: str
    theirs: str = BASELINE

    @cached_property
    def estimate(self) -> Estimate | None:
        """The paired ratio or difference, or `None` without a pair."""
        ours, theirs = self.contest.of(self.ours), self.contest.of(self.theirs)
        return self.column.paired.of_runs(ours, theirs, self.column.metric)

    @property
    def printed(self) -> float | None:
        """What the paper's means say; `None` without them."""
        contest, known, where = self.contest, paper.main, self.contest.benchmark
        if contest.family:
            known, where = paper.family, contest.model
        means = [known(where, name, self.column.metric) for name in (self.ours, self.theirs)]
        return None if None in means else self.column.paired.of_means(*means)

    @property
    def sources(self) -> tuple[Source, ...]:
        """The value of each run."""
        return self.column.sources(self.contest.of(self.ours, self.theirs), labels.run)

    @property
    def p(self) -> float | None:
        """The p of no difference, or `None` where there is no noise to compare with."""
        found = self.estimate
        return found.p_at(self.column.paired.equal) if found and found.p_at else None

    def cell(self) -> Cell:
        """Return the entry of Table 8: the estimate, its interval and p."""
        found = self.estimate
        if found is None:
            of_runtime = self.column.metric == RUNTIME.metric
            reason = UNPAIRED if of_runtime else f"{UNPAIRED} with scores by problem"
            return Cell(MISSING, reason=reason)
        show = self.column.paired.show
        under = [] if self.p is None else [f"p {formats.p_value(self.p, '= ')}"]
        under += [] if self.printed is None else [f"paper: {show(self.printed)}"]
        names = f"{labels.algorithm(self.ours)} against {labels.algorithm(self.theirs)}"
        return estimate_cell(
            show,
            found,
            under=tuple(under),
            reason="one pair of runs has no noise to compare with" if found.low is None else "",
            detail=f"{names}: {found.over}.",
            sources=self.sources,
        )


def comparisons(measured: Measured) -> Table:
    """Return Table 8: RAPID at each H, paired with the baseline, and what the paper has."""
    contests, baseline = measured.contests, labels.algorithm(BASELINE)
    columns = {name: [*accuracy(measured.params, name), RUNTIME] for name in contests}
    found = {
        rapid: [
            [Comparison(contest, column, rapid) for column in columns[name]]
            for name, contest in contests.items()
        ]
        for rapid in next(iter(contests.values())).rapids
    }
    every = [one for row in found.values() for group in row for one in group]
    return Table(
        number=8,
        label="tab:comparisons",
        caption=(
            f"RAPID beside {baseline} on {measured.params.tables.main.model}: difference of "
            "accuracy in points, ratio of runtimes, 95 % intervals."
        ),
        stub="RAPID",
        groups=[
            Group(contest.label, [column.title for column in columns[name]])
            for name, contest in contests.items()
        ],
        rows=[
            Row(labels.ratio(rapid), [[one.cell() for one in group] for group in row])
            for rapid, row in found.items()
        ],
        notes=[
            f"{baseline} was chosen before the runs: it is RAPID with H=1, and the best of several "
            "baselines would be chosen by the noise.",
            f"Accuracy: RAPID less {baseline} in percentage points, paired by problem and seed. "
            f"Runtime: RAPID's over {baseline}'s, paired by seed, t-test on logarithms. Paper: the "
            "same of the means in its Tables 1 and 3, of its own model and machine, on the "
            "published problems.",
            notes.INTERVALS,
            _significant([one.p for one in every if one.p is not None]),
            _resolved(every),
        ],
        problems=[*measured.problems.values()],
    )


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


def _resolved(every: list[Comparison]) -> str:
    """Return the difference of Pass@1 that these runs would mostly see, by benchmark."""
    found: dict[str, list[float]] = {}
    for one in every:
        if one.column.metric == "pass@1" and one.estimate and one.estimate.error:
            found.setdefault(one.contest.label, []).append(detectable(one.estimate))
    if not found:
        return "What difference these runs can show is not known."
    parts = [f"{100 * np.median(values):.1f} points on {label}" for label, values in found.items()]
    return (
        "A true difference of Pass@1 that one comparison by itself would see in 80 % of cases: "
        f"{listing(parts)} (median over H)."
    )
