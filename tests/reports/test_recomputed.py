"""tables.tex against an independent recomputation from the raw files."""

import pytest

from reports.measured import Measured
from reports.render import latex
from reports.tables import RESULTS, build
from tests.recompute import parse_printed_cells, recompute_cells


@pytest.fixture
def tex(params, runs) -> str:
    runs.write_all(params)
    return latex.render(build(RESULTS, Measured.read(params, runs.root)))


def test_every_cell_of_tables_1_3_and_4_equals_the_recomputation(params, runs, tex):
    expected = recompute_cells(runs.root, params.model_dump())
    assert parse_printed_cells(tex) == expected
    cells_by_table = [sum(key[0] == table for key in expected) for table in (1, 3, 4)]
    assert cells_by_table == [8 * 5, 2 * 7, 3 * 4]


def test_recomputation_detects_a_changed_score(params, runs, tex):
    path = runs.root / "evaluations/mbpp_plus/tiny_qwen/pg/seed0/evaluation.json"
    runs.edit(path, lambda document: document["scores"][-1].update(correct=8))
    expected, printed_cells = (
        recompute_cells(runs.root, params.model_dump()),
        parse_printed_cells(tex),
    )
    changed_cells = [key for key in expected if expected[key] != printed_cells[key]]
    assert (1, 4, 0) in changed_cells
    assert {key[0] for key in changed_cells} == {1}  # PG is only in Table 1
