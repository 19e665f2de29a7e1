"""The four tables of the paper, and Table 10 of memory.

1. `main`          every algorithm on every benchmark, one model
2. `families`      several models on one benchmark
3. `staleness`     RAPID at several H
4. `correlations`  of H with accuracy, runtime and staleness

A figure comes from the data frame of `collect` and from nowhere else; the parameters decide only
which rows and columns there are. A cell without a figure is an em dash with a footnote.
"""

from collections.abc import Sequence

import pandas as pd

from rapid.algorithms import RAPID
from reports import labels
from reports.measured import Measured
from reports.tables import columns, notes
from reports.tables.columns import Block, Column, accuracy, by_benchmark, grid
from reports.tables.table import Cell, Group, Row, Table, stacked


def main(measured: Measured) -> Table:
    """Return Table 1: rows of algorithms, a group of columns for each benchmark."""
    spec = measured.params.tables.main
    return _ranked(
        measured, measured.rows(spec.algorithms), _with_accuracy(measured, columns.RUNTIME),
        spec.seeds,
        number=1,
        label="tab:main",
        caption=f"Accuracy and runtime of the algorithms on {spec.model}.",
    )  # fmt: skip


def families(measured: Measured) -> Table | None:
    """Return Table 2: rows of algorithms, a group of columns for each model, one benchmark.

    Without models for it there is none.
    """
    spec = measured.params.tables.families
    if not spec.models:
        return None
    shown = [*accuracy(measured.params, spec.benchmark), columns.TIME]
    blocks = [Block(model, spec.benchmark, model, shown) for model in spec.models]
    label = measured.label(spec.benchmark)
    return _ranked(
        measured, measured.rows(spec.algorithms), blocks, spec.seeds,
        number=2,
        label="fig:family_size_ablate",
        caption=f"Accuracy and runtime of the algorithms across models on {label}.",
        about=[spec.benchmark],
    )  # fmt: skip


def staleness(measured: Measured) -> Table:
    """Return Table 3: rows of H, a group of columns for each benchmark."""
    spec, ratios = measured.params.tables.main, measured.params.tables.staleness.H
    return _ranked(
        measured,
        {RAPID.at(h): str(h) for h in ratios},
        _with_accuracy(measured, columns.TIME, columns.STALENESS),
        spec.seeds,
        number=3,
        label="tab:staleness",
        caption=f"Accuracy, runtime and staleness of RAPID by batch size ratio H on {spec.model}.",
        stub="H",
    )


def correlations(measured: Measured) -> Table:
    """Return Table 4: rows of benchmark and accuracy, columns of what H is correlated with."""
    spec, sweep = measured.params.tables.main, pd.concat(measured.sweeps.values())
    parts = []
    for name, runs in measured.sweeps.items():
        rows = []
        for column in accuracy(measured.params, name):
            cells = [one.correlation(runs) for one in (column, columns.TIME, columns.STALENESS)]
            label = "" if rows else measured.label(name)
            rows.append(Row(label, [[Cell(column.title), *cells]]))
        parts.append(rows)
    return Table(
        number=4,
        label="tab:ninf-corrs",
        caption=(
            "Pearson correlations between batch size ratio H and accuracy, runtime and staleness "
            f"of RAPID on {spec.model}."
        ),
        stub="Dataset",
        groups=[Group("", ["Metric", "r(H, Acc)", "r(H, Time)", "r(H, Stale)"])],
        rows=stacked(parts),
        notes=[
            notes.points(measured.params.tables.staleness.H, spec.seeds),
            notes.evaluation(sweep),
            *columns.TIME.unranked.notes(sweep, []),
            *columns.STALENESS.notes(sweep, []),
            *notes.provenance(sweep),
        ],
        problems=[*measured.problems.values()],
    )


def memory(measured: Measured) -> Table:
    """Return Table 10: peak memory of training, a column for each benchmark."""
    spec = measured.params.tables.main
    blocks = by_benchmark(measured, lambda name: [columns.MEMORY])
    rows = {name: labels.algorithm(name) for name in measured.algorithms}
    found = grid(measured, rows, blocks, spec.seeds)
    return Table(
        number=10,
        label="tab:memory",
        caption=f"Peak memory of training {spec.model}, in 1e6 bytes.",
        stub="Algorithm",
        groups=[Group("", [block.title for block in blocks])],
        rows=[Row(row.label, [[cell for (cell,) in row.cells]]) for row in found.rows],
        notes=[
            notes.seeds(spec.seeds),
            *found.notes,
            "On a CPU it holds the libraries too, which a small model does not outweigh.",
            *notes.provenance(found.runs),
        ],
        problems=[*measured.problems.values()],
    )


def _with_accuracy(measured: Measured, *more: Column) -> list[Block]:
    """Return the main model's accuracy, and more columns, for each benchmark."""
    return by_benchmark(measured, lambda name: [*accuracy(measured.params, name), *more])


def _ranked(
    measured: Measured,
    labelled: dict[str, str],
    blocks: list[Block],
    seeds: list[int],
    stub: str = "Algorithm",
    about: Sequence[str] = (),
    **named,
) -> Table:
    """Return a table with a row for each algorithm, algorithm -> label.

    Args:
        about: the benchmarks; by default all.
    """
    found = grid(measured, labelled, blocks, seeds)
    below = [notes.seeds(seeds), *found.notes, *notes.provenance(found.runs)]
    problems = [measured.problems[name] for name in about or measured.problems]
    return Table(
        stub=stub, groups=found.groups, rows=found.rows, notes=below, problems=problems, **named
    )
