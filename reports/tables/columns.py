"""The columns of tables whose rows are algorithms. To add one, define it and name it in a table.

A `Column` declares its title and metric, how its values are printed, ranked and compared, which
algorithms have a value, and a note for below the table.
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import pandas as pd

from rapid.algorithms import RAPID, SFT
from rapid.artifacts.metrics import EVALUATION_DESCRIPTIONS, EVALUATION_METRICS, METRICS
from rapid.config.params import Params
from rapid.config.specs import BASE
from rapid.text import format_duration
from reports import formats, labels
from reports.collect import file_of, why_missing
from reports.formats import Format
from reports.measured import UNRANKED_RUNTIME, Measured
from reports.statistics import pairs
from reports.statistics.estimates import Estimate, correlate
from reports.statistics.summary import marks
from reports.tables.layout import build_table
from reports.tables.notes import imitation_facts, render_notes, run_facts
from reports.tables.table import MISSING, NOT_APPLICABLE, Cell, Source, Table, interval

LEAST_RUNS = 5  # with fewer runs, a test hardly ever shows a difference


@dataclass(frozen=True)
class Pairing:
    """The comparison of two algorithms in a metric.

    Args:
        of_runs: returns the comparison of the first runs with the second ones, in a metric.
        of_means: returns the comparison of two means, if only these are known (the paper's).
        show: prints a comparison.
        equal: the value of a comparison without a difference.
    """

    of_runs: Callable[[pd.DataFrame, pd.DataFrame, str], Estimate | None]
    of_means: Callable[[float, float], float]
    show: Format
    equal: float


DIFFERENCE = Pairing(pairs.difference, operator.sub, formats.points, equal=0.0)
RATIO = Pairing(pairs.ratio, operator.truediv, formats.ratio, equal=1.0)


def applies_to_all(*_) -> bool:
    """Return True: every algorithm has a value and is ranked."""
    return True


def _compares_in_runtime(algorithm: str, runs: pd.DataFrame) -> bool:
    """Return whether the runtime of an algorithm is ranked among these runs.

    The runtime is ranked if the algorithm does RL, no run starts from the model that the algorithm
    trained, other programs slowed down none of its runs, and all runs were on the same hardware.
    """
    own_runs, trained = runs[runs.algorithm == algorithm], runs[runs.no_summary == ""]
    return (
        algorithm not in UNRANKED_RUNTIME
        and algorithm not in set(runs.start)
        and not own_runs.disturbed.any()
        and trained[trained.algorithm != BASE].hardware.nunique() <= 1
    )


def _runtime_caveats(runs: pd.DataFrame) -> str:
    """Return what distorts the mean runtime of these runs, as a footnote; "" for nothing."""
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
    """A column of a table.

    Args:
        metric: column of the data frame of `collect`: pass@1, runtime, staleness, ...
        show: prints a mean, and with its argument `like` the standard deviation of that mean.
        best: whether the highest or lowest value is marked best; "" ranks no values.
        paired: how the best algorithm is compared with the others; if None, no value is marked as
            within noise of the best.
        note: a sentence for below the table, in which {title} stands for the title.
        applies: returns whether an algorithm has this metric; the cells of the others are N/A.
        fit: takes all means of the column and returns the format for them (a common unit, for
            example); None if `show` prints them.
        competes: takes an algorithm and the runs of all algorithms of the column, and returns
            whether the algorithm is ranked.
    """

    title: str
    metric: str
    show: Format
    best: Literal["", "highest", "lowest"] = ""
    paired: Pairing | None = None
    note: str = ""
    applies: Callable[[str], bool] = applies_to_all
    fit: Callable[[Iterable[float]], Format] | None = None
    competes: Callable[[str, pd.DataFrame], bool] = applies_to_all

    @property
    def unranked(self) -> "Column":
        """A copy of the column that ranks no values."""
        return replace(self, best="")

    def cell(self, runs: pd.DataFrame) -> Cell:
        """Return a cell with the mean and standard deviation over the runs that have the metric.

        Args:
            runs: of one algorithm, one for each seed.
        """
        values = runs[self.metric].dropna()
        n, mean = len(values), values.mean()
        reason, sources = self.caveats(runs), self.sources(runs)
        if not n:
            return Cell(MISSING, reason=reason, sources=sources)
        is_accuracy = self.metric.startswith(pairs.PASS_AT)
        accuracy = pairs.accuracy(runs, self.metric) if is_accuracy else None
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
        """Return a cell for each algorithm, with marks for the best, the runner-up and ties.

        Args:
            runs: of all algorithms, on one benchmark.
        """
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
        """Return the footnote of a mean of these runs: missing runs, distorted runtimes; or ""."""
        missing = missing_reasons(runs, [self.metric])
        of_runtime = _runtime_caveats(runs) if self.metric == "runtime" else ""
        return "; ".join(filter(None, [missing, of_runtime]))

    def within_noise(self, runs: pd.DataFrame, best: pd.DataFrame) -> bool:
        """Return whether the interval of the paired comparison with the best contains equality.

        False if there is no interval, or if there are fewer than `LEAST_RUNS` runs: a difference is
        then neither shown nor ruled out.
        """
        if min(part[self.metric].count() for part in (runs, best)) < LEAST_RUNS:
            return False
        estimate = self.paired and self.paired.of_runs(runs, best, self.metric)
        return bool(estimate and estimate.covers(self.paired.equal))

    def correlation(self, runs: pd.DataFrame) -> Cell:
        """Return a cell with the correlation of H and this metric over the runs."""
        r = correlate(runs["H"], runs[self.metric])
        missing = missing_reasons(runs, [self.metric])
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
        """Return the value of each run with the file that it is from.

        Args:
            label: returns the name of a run.
        """
        return tuple(
            Source(
                label(run),
                MISSING if pd.isna(run[self.metric]) else self.show(run[self.metric]),
                file_of(run, self.metric),
            )
            for _, run in runs.iterrows()
        )


def remove_rounding(value: float) -> float:
    """Return a mean with nine significant digits: equal means tie despite rounding errors."""
    return float(f"{value:.9g}")


def missing_reasons(runs: pd.DataFrame, metrics: Sequence[str]) -> str:
    """Return why and how many runs lack one of the metrics, as a footnote; "" if none does."""
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
    "weight synchronization), without start-up.",
    applies=lambda algorithm: algorithm != BASE,
    competes=_compares_in_runtime,
)
TIME = replace(RUNTIME, title="Time")
STALENESS = Column(
    METRICS["staleness"].label,
    "staleness",
    formats.staleness,
    note="{title}: staleness, the absolute value of the log of the clipped importance weight, "
    "averaged over completions and optimizer steps.",
    applies=RAPID.matches_name,
)
CLIPPED = Column(
    METRICS["clip_fraction"].label, "clip_fraction", formats.percent, applies=RAPID.matches_name
)
MEMORY = Column(
    "Memory",
    "peak_memory_mb",
    formats.megabytes,
    note="{title}: peak memory of the training process in megabytes (resident memory on a CPU, "
    "allocated memory on a GPU).",
)
# The metrics of evaluations with `evaluation.diversity`.
DIVERSITY = [
    Column(
        metric.label,
        name,
        formats.percent if metric.unit == "share" else formats.plain,
        note=f"{{title}}: {EVALUATION_DESCRIPTIONS[name]}.",
    )
    for name, metric in EVALUATION_METRICS.items()
]


def column_notes(
    columns: Sequence[Column], runs: pd.DataFrame, algorithms: Sequence[str]
) -> list[str]:
    """Return the notes below a table about its columns, each once."""
    facts, sentences = run_facts(runs), []
    for column in columns:
        notes = [column.note.format(title=column.title)]
        if column.metric.startswith(pairs.PASS_AT):
            notes += ["evaluation", "flawed", "resolution"]
        if column.best:
            unranked = [name for name in algorithms if not column.competes(name, runs)]
            facts["unranked"] = [labels.algorithm(name) for name in unranked]
            facts |= {"seed_count": runs.seed.nunique(), "least_runs": LEAST_RUNS}
            facts["figure"] = "runtime" if column.metric == RUNTIME.metric else column.title
            notes += ["noise", "unranked"]
            if SFT.name in unranked:
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
    """Return a block of columns for each benchmark, with the main model.

    Args:
        columns: returns the columns for the name of a benchmark.
    """
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
        labelled: algorithm -> label of its row.
        blocks: the groups of columns.
        flat: whether each block is a single column, which has the title of the block as heading.
        facts: further variables of the table's texts.
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
