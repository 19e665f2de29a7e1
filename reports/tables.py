"""The four tables of the paper as plain data: cells of text, and no TeX.

1. `main`          every algorithm on every benchmark, one model
2. `families`      several models on one benchmark
3. `staleness`     RAPID at several H
4. `correlations`  of H with accuracy, runtime and staleness

A figure comes from the data frame of `collect` and from nowhere else; the parameters decide only
which rows and columns there are. A cell without a figure is an em dash with a footnote.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from rapid.params import Params
from rapid.specs import BASE
from reports import formats, notes
from reports.collect import why_missing
from reports.statistics import Mark, correlate, marks, spread

MISSING = "\N{EM DASH}"
NOT_APPLICABLE = "N/A"
# Their runtime is shown but wins nothing: the one does not train, the other does not explore.
UNRANKED_RUNTIME = (BASE, "sft")


@dataclass(frozen=True)
class Cell:
    """One entry: `deviation` stands under `text`; `reason` becomes a footnote."""

    text: str
    deviation: str = ""
    mark: Mark = ""
    reason: str = ""


@dataclass(frozen=True)
class Group:
    """Neighbouring columns under one heading ("" for none)."""

    title: str
    columns: list[str]


@dataclass(frozen=True)
class Row:
    """A label, and the cells of each group of the table. `section` starts a new part."""

    label: str
    cells: list[list[Cell]]
    section: bool = False


@dataclass(frozen=True)
class Table:
    """`label` is the paper's own, for \\ref; `stub` heads the column of row labels."""

    number: int
    label: str
    caption: str
    stub: str
    groups: list[Group]
    rows: list[Row]
    notes: list[str]

    def cells(self) -> Iterator[Cell]:
        """All cells in the order of reading."""
        return (cell for row in self.rows for cells in row.cells for cell in cells)

    @property
    def ranked(self) -> bool:
        """Whether any cell is marked best."""
        return any(cell.mark for cell in self.cells())

    @property
    def footnotes(self) -> dict[str, str]:
        """Reason -> key: a, b, c, ... in the order of reading, one key for equal reasons."""
        reasons = dict.fromkeys(cell.reason for cell in self.cells() if cell.reason)
        return {reason: _letters(position) for position, reason in enumerate(reasons)}


@dataclass(frozen=True)
class Metric:
    """A column: its heading, its name in the data frame, how it is printed and ranked."""

    title: str
    column: str
    show: formats.Format
    higher_is_better: bool | None = None  # None: not ranked


@dataclass(frozen=True)
class Block:
    """A group of columns: one model on one benchmark."""

    title: str
    benchmark: str
    model: str
    metrics: list[Metric]


def build(params: Params, frame: pd.DataFrame) -> list[Table]:
    """The tables that the parameters ask for; without models for it, Table 2 is left out."""
    tables = [main(params, frame), staleness(params, frame), correlations(params, frame)]
    if params.tables.families.models:
        tables.insert(1, families(params, frame))
    return tables


def main(params: Params, frame: pd.DataFrame) -> Table:
    """Table 1: rows of algorithms, a group of columns for each benchmark."""
    spec = params.tables.main
    algorithms = [BASE, *spec.algorithms]
    blocks = [
        Block(notes.benchmark(name), name, spec.model, [*_accuracy(params, name), _time("Runtime")])
        for name in params.benchmarks
    ]
    rows, shown = _grid(frame, _labelled(algorithms), blocks, spec.seeds)
    return Table(
        number=1,
        label="tab:main",
        caption=f"Accuracy and runtime of the algorithms on {spec.model}.",
        stub="Algorithm",
        groups=_groups(blocks),
        rows=rows,
        notes=[
            notes.seeds(spec.seeds),
            notes.evaluation(shown),
            notes.runtime("Runtime"),
            notes.unranked(algorithms, UNRANKED_RUNTIME),
            *notes.provenance(shown),
        ],
    )


def families(params: Params, frame: pd.DataFrame) -> Table:
    """Table 2: rows of algorithms, a group of columns for each model, one benchmark."""
    spec = params.tables.families
    algorithms = [BASE, *spec.algorithms]
    metrics = [*_accuracy(params, spec.benchmark), _time("Time")]
    blocks = [Block(model, spec.benchmark, model, metrics) for model in spec.models]
    rows, shown = _grid(frame, _labelled(algorithms), blocks, spec.seeds)
    benchmark = notes.benchmark(spec.benchmark)
    return Table(
        number=2,
        label="fig:family_size_ablate",
        caption=f"Accuracy and runtime of the algorithms across models on {benchmark}.",
        stub="Algorithm",
        groups=_groups(blocks),
        rows=rows,
        notes=[
            notes.seeds(spec.seeds),
            notes.evaluation(shown),
            notes.runtime("Time"),
            notes.unranked(algorithms, UNRANKED_RUNTIME),
            *notes.provenance(shown),
        ],
    )


def staleness(params: Params, frame: pd.DataFrame) -> Table:
    """Table 3: rows of H, a group of columns for each benchmark."""
    spec = params.tables.main
    stale = Metric("Stale", "staleness", formats.staleness)
    blocks = [
        Block(
            notes.benchmark(name),
            name,
            spec.model,
            [*_accuracy(params, name), _time("Time"), stale],
        )
        for name in params.benchmarks
    ]
    entries = [(str(h), f"rapid-H{h}") for h in params.tables.staleness.H]
    rows, shown = _grid(frame, entries, blocks, spec.seeds)
    return Table(
        number=3,
        label="tab:staleness",
        caption=f"Accuracy, runtime and staleness of RAPID by batch size ratio H on {spec.model}.",
        stub="H",
        groups=_groups(blocks),
        rows=rows,
        notes=[
            notes.seeds(spec.seeds),
            notes.evaluation(shown),
            notes.runtime("Time"),
            notes.STALENESS,
            *notes.provenance(shown),
        ],
    )


def correlations(params: Params, frame: pd.DataFrame) -> Table:
    """Table 4: rows of benchmark and accuracy, columns of what H is correlated with."""
    spec, ratios = params.tables.main, params.tables.staleness.H
    of_sweep = (frame.model == spec.model) & frame.H.isin(ratios) & frame.seed.isin(spec.seeds)
    sweep = frame[of_sweep]
    rows = []
    for name in params.benchmarks:
        runs = sweep[sweep.benchmark == name]
        for position, metric in enumerate(_accuracy(params, name)):
            columns = (metric.column, "runtime", "staleness")
            cells = [Cell(metric.title), *(_correlation(runs, column) for column in columns)]
            label = "" if position else notes.benchmark(name)
            rows.append(Row(label, [cells], section=position == 0 and bool(rows)))
    return Table(
        number=4,
        label="tab:ninf-corrs",
        caption=(
            "Pearson correlations between batch size ratio H and accuracy, runtime and staleness "
            f"of RAPID on {spec.model}."
        ),
        stub="Dataset",
        groups=[Group("", ["Metric", "r(H, Acc)", "r(H, Time)", "r(H, Stale)"])],
        rows=rows,
        notes=[
            notes.points(ratios, spec.seeds),
            notes.evaluation(sweep),
            notes.runtime("Time"),
            notes.STALENESS,
            *notes.provenance(sweep),
        ],
    )


# Columns ------------------------------------------------------------------------------------------


def _accuracy(params: Params, benchmark: str) -> list[Metric]:
    ks = params.benchmarks[benchmark].pass_at
    return [Metric(f"Pass@{k}", f"pass@{k}", formats.percent, higher_is_better=True) for k in ks]


def _time(title: str) -> Metric:
    return Metric(title, "runtime", formats.duration, higher_is_better=False)


def _groups(blocks: list[Block]) -> list[Group]:
    return [Group(block.title, [metric.title for metric in block.metrics]) for block in blocks]


def _labelled(algorithms: list[str]) -> list[tuple[str, str]]:
    return [(notes.algorithm(name), name) for name in algorithms]


# Cells --------------------------------------------------------------------------------------------


def _grid(
    frame: pd.DataFrame, entries: list[tuple[str, str]], blocks: list[Block], seeds: list[int]
) -> tuple[list[Row], pd.DataFrame]:
    """Rows of (label, algorithm) by blocks of metrics, ranked; and the runs that they show."""
    algorithms = [algorithm for _, algorithm in entries]
    frame = frame[frame.algorithm.isin(algorithms) & frame.seed.isin(seeds)]
    parts = [
        frame[(frame.benchmark == block.benchmark) & (frame.model == block.model)]
        for block in blocks
    ]
    columns = [
        [_column(part, algorithms, metric) for metric in block.metrics]
        for part, block in zip(parts, blocks, strict=True)
    ]  # block, metric, row
    rows = [
        Row(label, [[column[position] for column in block] for block in columns])
        for position, (label, _) in enumerate(entries)
    ]
    return rows, pd.concat(parts)


def _column(frame: pd.DataFrame, algorithms: list[str], metric: Metric) -> list[Cell]:
    """The cells of one metric, a row an algorithm, with the best of them marked."""
    cells, ranked, as_printed = [], [], {}
    for algorithm in algorithms:
        if metric.column == "runtime" and algorithm == BASE:
            cells.append(Cell(NOT_APPLICABLE))
            ranked.append(None)
            continue
        runs = frame[frame.algorithm == algorithm]
        cell, mean = _cell(runs, metric), spread(runs[metric.column]).mean
        cells.append(cell)
        contest = metric.column != "runtime" or algorithm not in UNRANKED_RUNTIME
        # Means that print the same are a tie: all of them count as the first one met.
        ranked.append(as_printed.setdefault(cell.text, mean) if contest else None)
    if metric.higher_is_better is None:
        return cells
    found = marks(ranked, metric.higher_is_better)
    return [replace(cell, mark=mark) for cell, mark in zip(cells, found, strict=True)]


def _cell(runs: pd.DataFrame, metric: Metric) -> Cell:
    """Mean and standard deviation over the runs (one a seed) that have the metric."""
    result = spread(runs[metric.column])
    reason = _gaps(runs, [metric.column])
    if result.mean is None:
        return Cell(MISSING, reason=reason)
    deviation = ""
    if result.deviation is not None:
        deviation = metric.show(result.deviation, like=result.mean)
    return Cell(metric.show(result.mean), deviation, reason=reason)


def _gaps(runs: pd.DataFrame, columns: Sequence[str]) -> str:
    """Why runs lack one of the columns, and how many do; "" where none lacks any."""
    reasons = []
    for _, run in runs.iterrows():
        lacking = [why_missing(run, column) for column in columns if pd.isna(run[column])]
        if lacking:
            reasons.append(lacking[0])
    if not reasons:
        return ""
    text = "; ".join(dict.fromkeys(reasons))
    return (
        text
        if len(reasons) == len(runs)
        else f"leaves out {len(reasons)} of {len(runs)} runs: {text}"
    )


def _correlation(runs: pd.DataFrame, column: str) -> Cell:
    found = correlate(runs["H"], runs[column])
    gaps = _gaps(runs, [column])
    if found.r is None:
        reason = "; ".join(part for part in (found.reason, gaps) if part)
        return Cell(MISSING, reason=reason)
    return Cell(formats.correlation(found.r), reason=gaps)


def _letters(position: int) -> str:
    """0, 1, ..., 26 -> a, b, ..., aa."""
    text = ""
    while position >= 0:
        position, letter = divmod(position, 26)
        text = chr(ord("a") + letter) + text
        position -= 1
    return text
