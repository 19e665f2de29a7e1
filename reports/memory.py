"""Peak memory of training, by algorithm and H."""

import pandas as pd

from rapid.config.params import Params
from reports import cells, formats, notes
from reports.cells import Metric
from reports.evidence import algorithms, field_of
from reports.table import Group, Row, Table

MEMORY = Metric("Memory", "peak_memory_mb", formats.megabytes)


def table(params: Params, frame: pd.DataFrame) -> Table:
    """Table 14."""
    fields = {name: field_of(params, frame, name) for name in params.benchmarks}
    rows = [
        Row(
            notes.algorithm(algorithm),
            [[cells.mean_cell(field.of(algorithm), MEMORY) for field in fields.values()]],
        )
        for algorithm in algorithms(params)
    ]
    shown = pd.concat([field.runs for field in fields.values()])
    return Table(
        number=14,
        label="tab:memory",
        caption=f"Peak memory of training {params.tables.main.model}, in 1e6 bytes.",
        stub="Algorithm",
        groups=[Group("", [notes.benchmark(name) for name in fields])],
        rows=rows,
        notes=[
            notes.seeds(params.tables.main.seeds),
            notes.MEMORY,
            "On a CPU it holds the libraries too, which a small model does not outweigh.",
            *notes.provenance(shown),
        ],
    )
