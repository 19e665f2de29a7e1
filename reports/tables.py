"""The four tables of the paper as plain data: cells of text, and no TeX.

1. `main`          every algorithm on every benchmark, one model
2. `families`      several models on one benchmark
3. `staleness`     RAPID at several H
4. `correlations`  of H with accuracy, runtime and staleness

A figure comes from the data frame of `collect` and from nowhere else; the parameters decide only
which rows and columns there are. A cell without a figure is an em dash with a footnote.
"""

from dataclasses import dataclass

import pandas as pd

from rapid.algorithms import RAPID
from rapid.config.params import Params
from rapid.config.specs import BASE
from reports import cells, formats, notes
from reports.cells import Metric
from reports.compare import UNRANKED_RUNTIME
from reports.table import Cell, Group, Row, Table


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
        Block(
            notes.benchmark(name), name, spec.model, [*accuracy(params, name), runtime("Runtime")]
        )
        for name in params.benchmarks
    ]
    rows, shown = grid(frame, labelled(algorithms), blocks, spec.seeds)
    return Table(
        number=1,
        label="tab:main",
        caption=f"Accuracy and runtime of the algorithms on {spec.model}.",
        stub="Algorithm",
        groups=groups(blocks),
        rows=rows,
        notes=[
            notes.seeds(spec.seeds),
            notes.evaluation(shown),
            notes.resolution(shown),
            notes.NOISE,
            notes.runtime("Runtime"),
            notes.unranked(algorithms, UNRANKED_RUNTIME),
            *notes.provenance(shown),
        ],
    )


def families(params: Params, frame: pd.DataFrame) -> Table:
    """Table 2: rows of algorithms, a group of columns for each model, one benchmark."""
    spec = params.tables.families
    algorithms = [BASE, *spec.algorithms]
    metrics = [*accuracy(params, spec.benchmark), runtime("Time")]
    blocks = [Block(model, spec.benchmark, model, metrics) for model in spec.models]
    rows, shown = grid(frame, labelled(algorithms), blocks, spec.seeds)
    benchmark = notes.benchmark(spec.benchmark)
    return Table(
        number=2,
        label="fig:family_size_ablate",
        caption=f"Accuracy and runtime of the algorithms across models on {benchmark}.",
        stub="Algorithm",
        groups=groups(blocks),
        rows=rows,
        notes=[
            notes.seeds(spec.seeds),
            notes.evaluation(shown),
            notes.resolution(shown),
            notes.NOISE,
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
            [*accuracy(params, name), runtime("Time"), stale],
        )
        for name in params.benchmarks
    ]
    entries = [(str(h), RAPID.at(h)) for h in params.tables.staleness.H]
    rows, shown = grid(frame, entries, blocks, spec.seeds)
    return Table(
        number=3,
        label="tab:staleness",
        caption=f"Accuracy, runtime and staleness of RAPID by batch size ratio H on {spec.model}.",
        stub="H",
        groups=groups(blocks),
        rows=rows,
        notes=[
            notes.seeds(spec.seeds),
            notes.evaluation(shown),
            notes.resolution(shown),
            notes.NOISE,
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
        for position, metric in enumerate(accuracy(params, name)):
            columns = (metric.column, "runtime", "staleness")
            found = [cells.correlation_cell(runs, column) for column in columns]
            label = "" if position else notes.benchmark(name)
            rows.append(
                Row(label, [[Cell(metric.title), *found]], section=position == 0 and bool(rows))
            )
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


def accuracy(params: Params, benchmark: str) -> list[Metric]:
    """Its pass@k."""
    ks = params.benchmarks[benchmark].pass_at
    return [Metric(f"Pass@{k}", f"pass@{k}", formats.percent, higher_is_better=True) for k in ks]


def runtime(title: str) -> Metric:
    return Metric(title, "runtime", formats.duration, higher_is_better=False)


def groups(blocks: list[Block]) -> list[Group]:
    return [Group(block.title, [metric.title for metric in block.metrics]) for block in blocks]


def labelled(algorithms: list[str]) -> list[tuple[str, str]]:
    return [(notes.algorithm(name), name) for name in algorithms]


# Cells --------------------------------------------------------------------------------------------


def grid(
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
        [cells.column(part, algorithms, metric) for metric in block.metrics]
        for part, block in zip(parts, blocks, strict=True)
    ]  # block, metric, row
    rows = [
        Row(label, [[column[position] for column in block] for block in columns])
        for position, (label, _) in enumerate(entries)
    ]
    return rows, pd.concat(parts)
