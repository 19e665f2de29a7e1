"""The columns of tables whose rows are algorithms.

To add a column, define it here, and add it to the columns of a table in `results` or `studies`.

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
from reports.collect import explain_missing, get_result_path
from reports.formats import Format
from reports.report_data import UNRANKED_RUNTIME, ReportData
from reports.statistics import pairs
from reports.statistics.estimates import Estimate, correlate_with_h
from reports.tables.layout import build_table
from reports.tables.notes import (
    collect_ranking_facts,
    collect_run_facts,
    collect_sft_facts,
    render_notes,
)
from reports.tables.table import (
    MISSING,
    NOT_APPLICABLE,
    Cell,
    Mark,
    Source,
    Table,
    format_interval,
)

# Algorithms with fewer runs are not marked as within noise of the best, because a test of so few
# runs is hardly ever significant.
MIN_RUNS = 5


@dataclass(frozen=True)
class Pairing:
    """The comparison of two algorithms in a metric.

    Args:
        compare_runs: takes the runs of two algorithms and a metric, and returns the estimated
            difference or ratio of the first to the second.
        compare_means: the same for two means, such as the paper's, of which there are no runs.
        show: prints a difference or ratio.
        no_difference: its value for two equal algorithms.
    """

    compare_runs: Callable[[pd.DataFrame, pd.DataFrame, str], Estimate | None]
    compare_means: Callable[[float, float], float]
    show: Format
    no_difference: float


DIFFERENCE = Pairing(pairs.estimate_difference, operator.sub, formats.points, no_difference=0.0)
RATIO = Pairing(pairs.estimate_ratio, operator.truediv, formats.ratio, no_difference=1.0)


def applies_to_all(*_) -> bool:
    """Return True: every algorithm has a value and is ranked."""
    return True


def _is_runtime_ranked(algorithm: str, runs: pd.DataFrame) -> bool:
    """Return whether the runtime of an algorithm is ranked among these runs.

    It is ranked if the algorithm does RL, no run starts from the model that the algorithm trained,
    other programs slowed down none of its runs, and all runs were on the same hardware.
    """
    own_runs = runs[runs.algorithm == algorithm]
    trained = runs[runs.no_summary_reason == ""]  # the runs with a usable summary.json
    return (
        algorithm not in UNRANKED_RUNTIME
        and algorithm not in set(runs.start)
        and not own_runs.disturbed.any()
        and trained[trained.algorithm != BASE].hardware.nunique() <= 1
    )


def _describe_runtime_caveats(runs: pd.DataFrame) -> str:
    """Return a footnote on what distorts the mean runtime of these runs; "" if nothing does."""
    trained = runs[runs.no_summary_reason == ""]
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
        metric: column of the data frame of `collect_runs`: pass@1, runtime, staleness, ...
        show: prints a mean. Given the argument `mean`, it prints the standard deviation that stands
            beside this mean.
        best: whether the highest or lowest value is marked best; "" ranks no values.
        paired: how two algorithms are compared; if None, no value is marked as within noise of the
            best.
        note: a sentence below the table, in which {title} stands for the title.
        applies: returns whether an algorithm has this metric; the cells of the others are N/A.
        choose_format: takes all means of the column and returns the format for them, for example
            with a common unit; None if `show` prints them.
        is_ranked: takes an algorithm and the runs of all algorithms of the column, and returns
            whether the algorithm is ranked.
    """

    title: str
    metric: str
    show: Format
    best: Literal["", "highest", "lowest"] = ""
    paired: Pairing | None = None
    note: str = ""
    applies: Callable[[str], bool] = applies_to_all
    choose_format: Callable[[Iterable[float]], Format] | None = None
    is_ranked: Callable[[str, pd.DataFrame], bool] = applies_to_all

    def build_cell(self, runs: pd.DataFrame) -> Cell:
        """Return a cell with mean and standard deviation over those runs that have the metric."""
        values = runs[self.metric].dropna()
        n, mean = len(values), values.mean()
        reason, sources = self.describe_caveats(runs), self.list_sources(runs)
        if not n:
            return Cell(MISSING, reason=reason, sources=sources)
        is_accuracy = self.metric.startswith(pairs.PASS_AT)
        accuracy = pairs.estimate_accuracy(runs, self.metric) if is_accuracy else None
        return Cell(
            self.show(mean),
            self.show(values.std(), mean=mean) if n > 1 else "",
            extra_lines=("n = 1",) if n == 1 < len(runs) else (),
            reason=reason,
            interval=format_interval(self.show, accuracy),
            detail=f"n = {n} run{'' if n == 1 else 's'}.",
            sources=sources,
        )

    def build_cells(self, runs: pd.DataFrame, algorithms: list[str]) -> list[Cell]:
        """Return a cell for each algorithm, with marks for the best, the runner-up and ties."""
        by_name = {name: runs[runs.algorithm == name] for name in algorithms}
        means = [part[self.metric].mean() for part in by_name.values()]
        if self.choose_format:
            column = replace(self, show=self.choose_format(means), choose_format=None)
            return column.build_cells(runs, algorithms)
        cells = [
            self.build_cell(part) if self.applies(name) else Cell(NOT_APPLICABLE)
            for name, part in by_name.items()
        ]
        if not self.best:
            return cells
        ranked_means = [
            float(f"{mean:.9g}")  # without rounding errors, so that equal means tie
            if self.applies(name) and self.is_ranked(name, runs)
            else None
            for name, mean in zip(algorithms, means, strict=True)
        ]
        marks = mark_best(ranked_means, self.best == "highest")
        if "best" not in marks:
            return cells
        best = by_name[algorithms[marks.index("best")]]
        for position, (mark, mean) in enumerate(zip(marks, ranked_means, strict=True)):
            part = by_name[algorithms[position]]
            is_tied = mark != "best" and pd.notna(mean) and self.is_within_noise(part, best)
            cells[position] = replace(cells[position], mark=mark, tied=is_tied)
        return cells

    def describe_caveats(self, runs: pd.DataFrame) -> str:
        """Return a footnote on missing runs and distorted runtimes; "" if there are none."""
        missing = explain_missing_runs(runs, [self.metric])
        distorted = _describe_runtime_caveats(runs) if self.metric == "runtime" else ""
        return "; ".join(filter(None, [missing, distorted]))

    def is_within_noise(self, runs: pd.DataFrame, best: pd.DataFrame) -> bool:
        """Return whether these runs do not differ significantly from those of the best algorithm.

        This means that the interval of their paired comparison contains the value of no difference.
        False if there is no interval, or if one of the two has fewer than `MIN_RUNS` runs.
        """
        if min(part[self.metric].count() for part in (runs, best)) < MIN_RUNS:
            return False
        estimate = self.paired and self.paired.compare_runs(runs, best, self.metric)
        return bool(estimate and estimate.covers(self.paired.no_difference))

    def correlate_with_h(self, runs: pd.DataFrame) -> Estimate:
        """Return the correlation of H and this metric; none for runtimes on different hardware."""
        machines = runs[runs[self.metric].notna()].hardware.nunique()
        if self.metric == "runtime" and machines > 1:
            return Estimate(None, reason=f"runs on {machines} kinds of hardware")
        return correlate_with_h(runs["H"], runs[self.metric])

    def build_correlation_cell(self, runs: pd.DataFrame) -> Cell:
        """Return a cell with the correlation of H and this metric over the runs."""
        r = self.correlate_with_h(runs)
        missing = explain_missing_runs(runs, [self.metric])
        if r.value is None:
            return Cell(MISSING, reason="; ".join(filter(None, (r.reason, missing))))
        return Cell(
            formats.correlation(r.value),
            reason=missing,
            interval=format_interval(formats.correlation, r),
            detail=f"{r.sample}.",
            sources=replace(self, show=formats.plain).list_sources(
                runs, lambda run: f"H = {run['H']:.0f}, seed {run['seed']}"
            ),
        )

    def list_sources(
        self, runs: pd.DataFrame, label: Callable = lambda run: f"seed {run['seed']}"
    ) -> tuple[Source, ...]:
        """Return the value of each run, with the run's label and the file that it is from."""
        return tuple(
            Source(
                label(run),
                MISSING if pd.isna(run[self.metric]) else self.show(run[self.metric]),
                get_result_path(run, self.metric),
            )
            for _, run in runs.iterrows()
        )


def mark_best(values: Sequence[float | None], higher_is_better: bool) -> list[Mark]:
    """Return the mark of each value of a column; None is not ranked.

    Equal values share a mark. If two are best there is no runner-up, as in the paper. Nothing is
    marked if there are fewer than two values, or if all are equal.
    """
    ranks = pd.Series(values).rank(method="min", ascending=not higher_is_better)
    names = {1: "best", 2: "runner-up"} if ranks.nunique() > 1 else {}
    return [names.get(rank, "") for rank in ranks]


def explain_missing_runs(runs: pd.DataFrame, metrics: Sequence[str]) -> str:
    """Return a footnote on the runs that lack one of the metrics, with reasons; "" if none do."""
    reasons = []
    for _, run in runs.iterrows():
        run_reasons = [explain_missing(run, metric) for metric in metrics if pd.isna(run[metric])]
        reasons += run_reasons[:1]
    text = "; ".join(dict.fromkeys(reasons))
    if len(reasons) in (0, len(runs)):
        return text
    return f"leaves out {len(reasons)} of {len(runs)} runs: {text}"


# The columns --------------------------------------------------------------------------------------


def list_accuracy_columns(params: Params, benchmark: str) -> list[Column]:
    """Return the columns of a benchmark's pass@k."""
    return [
        Column(f"Pass@{k}", f"pass@{k}", formats.percent, best="highest", paired=DIFFERENCE)
        for k in params.benchmarks[benchmark].pass_at
    ]


RUNTIME = Column(
    "Runtime",
    "runtime",
    format_duration,
    choose_format=formats.choose_duration_format,
    best="lowest",
    paired=RATIO,
    note="{title}: wall-clock time of the training loop (sampling, grading, backpropagation, "
    "weight synchronization), without start-up.",
    applies=lambda algorithm: algorithm != BASE,
    is_ranked=_is_runtime_ranked,
)
TIME = replace(RUNTIME, title="Time")
UNRANKED_TIME = replace(TIME, best="")
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


def render_column_notes(
    columns: Sequence[Column], runs: pd.DataFrame, algorithms: Sequence[str]
) -> list[str]:
    """Return the notes about these columns for below a table, without repetitions."""
    facts, sentences = collect_run_facts(runs), []
    for column in columns:
        # Texts, and names of notes in captions.yaml; `render_notes` takes both.
        notes = [column.note.format(title=column.title)]
        if column.metric.startswith(pairs.PASS_AT):
            notes += ["evaluation", "flawed", "resolution"]
        if column.best:
            facts |= collect_ranking_facts(runs, algorithms, column.is_ranked)
            facts |= {"seed_count": runs.seed.nunique(), "min_runs": MIN_RUNS}
            facts["metric"] = "runtime" if column.metric == RUNTIME.metric else column.title
            notes += ["noise", "unranked"]
            if labels.algorithm(SFT.name) in facts["unranked"]:
                notes.append("sft-runtime")
                facts |= collect_sft_facts(runs)
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


def build_blocks(data: ReportData, columns: Callable[[str], list[Column]]) -> list[Block]:
    """Return a block of columns for each benchmark (by its name), with the main model."""
    params = data.params
    return [
        Block(data.label_benchmark(name), name, params.tables.main.model, columns(name))
        for name in params.benchmarks
    ]


def build_algorithm_table(
    name: str,
    data: ReportData,
    row_labels: dict[str, str],
    blocks: list[Block],
    seeds: list[int],
    flat: bool = False,
    **facts,
) -> Table:
    """Return a table with a row for each algorithm.

    Args:
        name: the name of the table in captions.yaml.
        row_labels: the label of each row, by the algorithm's name.
        flat: whether each block is a single column, whose title is that of the block.
        facts: further variables of the table's texts.
    """
    groups, runs_by_block = {}, []
    for block in blocks:
        runs = data.select_runs(block.benchmark, list(row_labels), seeds, block.model).frame
        runs_by_block.append(runs)
        for column in block.columns:
            group, title = ("", block.title) if flat else (block.title, column.title)
            groups.setdefault(group, {})[title] = partial(column.build_cells, runs)
    shown_runs = pd.concat(runs_by_block)
    columns = [column for block in blocks for column in block.columns]
    rows = [(label, algorithm) for algorithm, label in row_labels.items()]
    return build_table(
        name, data, [rows], groups,
        seeds=seeds,
        column_notes=render_column_notes(columns, shown_runs, list(row_labels)),
        **collect_run_facts(shown_runs),
        **facts,
    )  # fmt: skip
