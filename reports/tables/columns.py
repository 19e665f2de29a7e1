"""The columns of tables of runs. To add one, define it here and name it in a table's list.

A column says all about itself: its title, its metric, how it is printed and ranked, and which
algorithms have it. It also says how two algorithms are compared in it, and has a note for below the
table.
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import pandas as pd

from rapid.algorithms import IMITATING, RAPID
from rapid.artifacts.metrics import METRICS
from rapid.config.params import Params
from rapid.config.specs import BASE
from rapid.text import format_duration
from reports import formats, labels
from reports.collect import file_of, of_evaluation, why_missing
from reports.formats import Format
from reports.measured import UNRANKED_RUNTIME, Measured
from reports.statistics import pairs
from reports.statistics.estimates import Estimate, correlate
from reports.statistics.summary import marks
from reports.tables.layout import build_table
from reports.tables.notes import imitation_facts, render_notes, run_facts
from reports.tables.table import MISSING, NOT_APPLICABLE, Cell, Source, Table, interval


@dataclass(frozen=True)
class Pairing:
    """A comparison of two algorithms, by their runs, or by their means if only these are known.

    `equal` is the value of no difference.
    """

    of_runs: Callable[[pd.DataFrame, pd.DataFrame, str], Estimate | None]
    of_means: Callable[[float, float], float]
    show: Format
    equal: float


DIFFERENCE = Pairing(pairs.difference, operator.sub, formats.points, equal=0.0)
RATIO = Pairing(pairs.ratio, operator.truediv, formats.ratio, equal=1.0)


def applies_to_all(*_) -> bool:
    """Return True: each algorithm has the figure, and competes in it."""
    return True


def _compares_in_runtime(algorithm: str, runs: pd.DataFrame) -> bool:
    """Return whether the runtime of an algorithm compares with the others'.

    The algorithm is RL, none of these runs starts from its model, none of its own runs was
    disturbed, and all have the same hardware.
    """
    own_runs, trained = runs[runs.algorithm == algorithm], runs[runs.no_summary == ""]
    return (
        algorithm not in UNRANKED_RUNTIME
        and algorithm not in set(runs.start)
        and not own_runs.disturbed.any()
        and trained[trained.algorithm != BASE].hardware.nunique() <= 1
    )


def _runtime_caveats(runs: pd.DataFrame) -> str:
    """Return why the mean runtime of these runs is not what it seems; "" where it is."""
    trained = runs[runs.no_summary == ""]
    machines, disturbed = trained.hardware.nunique(), trained.disturbed.sum()
    caveats = [f"runs on {machines} kinds of hardware"] if machines > 1 else []
    if disturbed:
        caveats.append(
            f"too long in {disturbed} of {len(trained)} runs, which other programs disturbed"
        )
    return "; ".join(caveats)


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    title: str
    metric: str  # the column of `collect`'s data frame: pass@1, runtime, staleness, ...
    show: Format  # prints a mean, and with `like` the standard deviation under that mean
    best: Literal["", "highest", "lowest"] = ""  # which is printed in bold; "" ranks none
    paired: Pairing | None = None  # None marks nothing as within noise of the best
    note: str = ""  # a sentence below the table, in which {title} stands for the title
    # Has an algorithm such a figure? The others get N/A.
    applies: Callable[[str], bool] = applies_to_all
    # Returns the format for all means of a column, where it is not the same for every column.
    fit: Callable[[Iterable[float]], Format] | None = None
    # Does its figure take part in the ranking of these runs?
    competes: Callable[[str, pd.DataFrame], bool] = applies_to_all

    @property
    def unranked(self) -> "Column":
        """The same column with nothing marked in it."""
        return replace(self, best="")

    def cell(self, runs: pd.DataFrame) -> Cell:
        """Return mean and standard deviation over the runs, one for each seed, that have it."""
        values = runs[self.metric].dropna()
        n, mean = len(values), values.mean()
        reason, sources = self.caveats(runs), self.sources(runs)
        if not n:
            return Cell(MISSING, reason=reason, sources=sources)
        accuracy = pairs.accuracy(runs, self.metric) if of_evaluation(self.metric) else None
        return Cell(
            self.show(mean),
            self.show(values.std(), like=mean) if n > 1 else "",
            under=("n = 1",) if n == 1 < len(runs) else (),
            reason=reason,
            interval=interval(self.show, accuracy),
            detail=f"n = {n} run{'' if n == 1 else 's'}.",
            sources=sources,
        )

    def cells(self, runs: pd.DataFrame, algorithms: list[str]) -> list[Cell]:
        """Return a cell for each algorithm, with the best and what is within noise of it marked."""
        by_name = {name: runs[runs.algorithm == name] for name in algorithms}
        if self.fit:
            means = [part[self.metric].mean() for part in by_name.values()]
            return replace(self, show=self.fit(means), fit=None).cells(runs, algorithms)
        cells = [
            self.cell(part) if self.applies(name) else Cell(NOT_APPLICABLE)
            for name, part in by_name.items()
        ]
        if not self.best:
            return cells
        ranked = [
            remove_rounding(part[self.metric].mean())
            if self.applies(name) and self.competes(name, runs)
            else None
            for name, part in by_name.items()
        ]
        ranks = marks(ranked, self.best == "highest")
        if "best" not in ranks:
            return cells
        best = by_name[algorithms[ranks.index("best")]]
        return [
            replace(
                cell,
                mark=mark,
                tied=mark != "best" and pd.notna(value) and self.within_noise(part, best),
            )
            for cell, mark, value, part in zip(cells, ranks, ranked, by_name.values(), strict=True)
        ]

    def caveats(self, runs: pd.DataFrame) -> str:
        """Return what a reader must know of the mean of these runs; "" for nothing."""
        missing = gaps(runs, [self.metric])
        of_runtime = _runtime_caveats(runs) if self.metric == "runtime" else ""
        return "; ".join(filter(None, [missing, of_runtime]))

    def within_noise(self, runs: pd.DataFrame, best: pd.DataFrame) -> bool:
        """Return whether the paired interval against the best holds no difference.

        It is False where there is no interval: nothing is said then.
        """
        estimate = self.paired and self.paired.of_runs(runs, best, self.metric)
        return bool(estimate and estimate.covers(self.paired.equal))

    def correlation(self, runs: pd.DataFrame) -> Cell:
        """Return the correlation of H with this column's metric."""
        r, missing = correlate(runs["H"], runs[self.metric]), gaps(runs, [self.metric])
        if r.value is None:
            return Cell(MISSING, reason="; ".join(filter(None, (r.reason, missing))))
        return Cell(
            formats.correlation(r.value),
            reason=missing,
            interval=interval(formats.correlation, r),
            detail=f"{r.over}.",
            sources=replace(self, show=formats.plain).sources(
                runs, lambda run: f"H = {run['H']:.0f}, seed {run['seed']}"
            ),
        )

    def sources(
        self, runs: pd.DataFrame, label: Callable = lambda run: f"seed {run['seed']}"
    ) -> tuple[Source, ...]:
        """Return the value of each run, and the file that it is from."""
        return tuple(
            Source(
                label(run),
                MISSING if pd.isna(run[self.metric]) else self.show(run[self.metric]),
                file_of(run, self.metric),
            )
            for _, run in runs.iterrows()
        )


def remove_rounding(value: float) -> float:
    """Return a mean without the rounding errors of floating point: equal means are a tie."""
    return float(f"{value:.9g}")


def gaps(runs: pd.DataFrame, metrics: Sequence[str]) -> str:
    """Return why runs lack one of the metrics, and how many do; "" where none lacks any."""
    reasons = []
    for _, run in runs.iterrows():
        lacking = [why_missing(run, metric) for metric in metrics if pd.isna(run[metric])]
        reasons += lacking[:1]
    text = "; ".join(dict.fromkeys(reasons))
    if len(reasons) in (0, len(runs)):
        return text
    return f"leaves out {len(reasons)} of {len(runs)} runs: {text}"


# The columns --------------------------------------------------------------------------------------


def accuracy(params: Params, benchmark: str) -> list[Column]:
    """Return the columns of a benchmark's pass@k."""
    return [
        Column(f"Pass@{k}", f"pass@{k}", formats.percent, best="highest", paired=DIFFERENCE)
        for k in params.benchmarks[benchmark].pass_at
    ]


RUNTIME = Column(
    "Runtime",
    "runtime",
    format_duration,
    fit=formats.durations,
    best="lowest",
    paired=RATIO,
    note="{title}: wall-clock time of the training loop (sampling, grading, backpropagation, "
    "weight synchronization); start-up is apart.",
    applies=lambda algorithm: algorithm != BASE,
    competes=_compares_in_runtime,
)
TIME = replace(RUNTIME, title="Time")
STALENESS = Column(
    METRICS["staleness"].label,
    "staleness",
    formats.staleness,
    note="{title}: the clipped importance weight in log scale, its absolute value averaged over "
    "optimizer steps.",
    applies=RAPID.named,
)
CLIPPED = Column(
    METRICS["clip_fraction"].label, "clip_fraction", formats.percent, applies=RAPID.named
)
MEMORY = Column(
    "Memory",
    "peak_memory_mb",
    formats.megabytes,
    note="{title}: the most that the training process held, in 1e6 bytes: resident on a CPU, what "
    "it allocated on a GPU.",
)


def column_notes(
    columns: Sequence[Column], runs: pd.DataFrame, algorithms: Sequence[str]
) -> list[str]:
    """Return what stands below a table of these runs about its columns, each sentence once."""
    facts, sentences = run_facts(runs), []
    for column in columns:
        notes = [column.note.format(title=column.title)]
        notes += ["evaluation", "resolution"] if of_evaluation(column.metric) else []
        if column.best:
            unranked = [name for name in algorithms if not column.competes(name, runs)]
            facts["unranked"] = [labels.algorithm(name) for name in unranked]
            facts["seed_count"] = runs.seed.nunique()
            facts["figure"] = "runtimes" if column.metric == RUNTIME.metric else column.title
            notes += ["noise", "unranked"]
            if IMITATING.name in unranked:
                notes.append("imitation")
                facts |= imitation_facts(runs)
        sentences += render_notes(notes, facts)
    return list(dict.fromkeys(sentences))


# Tables of algorithms ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A group of columns: one model on one benchmark."""

    title: str
    benchmark: str
    model: str
    columns: list[Column]


def by_benchmark(measured: Measured, columns: Callable[[str], list[Column]]) -> list[Block]:
    """Return a block of the main model for each benchmark, with the columns of its name."""
    params = measured.params
    return [
        Block(measured.label(name), name, params.tables.main.model, columns(name))
        for name in params.benchmarks
    ]


def algorithm_table(
    name: str,
    measured: Measured,
    labelled: dict[str, str],
    blocks: list[Block],
    seeds: list[int],
    flat: bool = False,
    **facts,
) -> Table:
    """Return a table with a row for each algorithm.

    Args:
        labelled: the label of each algorithm.
        flat: whether each block has one column, whose heading is the title of the block.
    """
    frame = measured.frame
    frame = frame[frame.algorithm.isin(labelled) & frame.seed.isin(seeds)]
    runs_of = [
        frame[(frame.benchmark == block.benchmark) & (frame.model == block.model)]
        for block in blocks
    ]
    groups = {
        block.title: {column.title: partial(column.cells, runs) for column in block.columns}
        for block, runs in zip(blocks, runs_of, strict=True)
    }
    if flat:
        groups = {"": {title: cells for title, of in groups.items() for cells in of.values()}}
    shown, columns = pd.concat(runs_of), [column for block in blocks for column in block.columns]
    rows = [(label, algorithm) for algorithm, label in labelled.items()]
    return build_table(
        name, measured, [rows], groups,
        seeds=seeds,
        column_notes=column_notes(columns, shown, list(labelled)),
        **run_facts(shown),
        **facts,
    )  # fmt: skip
