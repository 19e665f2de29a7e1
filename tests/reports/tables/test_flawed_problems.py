"""Accuracies with and without the problems whose published statement has a known flaw."""

import json
import re

import numpy as np
import pytest

from rapid.artifacts.files import write_json
from rapid.benchmarks.problem_source import FLAWED, ProblemSource
from rapid.config.params import load
from reports import formats
from reports.__main__ import main
from reports.render import text
from reports.report_data import ReportData
from reports.statistics import crossed, pairs
from reports.tables import intervals, results
from reports.tables.table import format_interval
from tests.reports.conftest import make_run

SEEDS = (0, 1)
# Correct completions (of 8) of problems p0 to p3, by algorithm and seed.
CORRECT = {
    "base": {0: [0, 0, 4, 8], 1: [0, 0, 8, 8]},
    "pg": {0: [8, 8, 8, 0], 1: [8, 8, 4, 4]},
}


@pytest.fixture
def read_runs(values, runs):
    """Return the runs of PG on MATH, after noting these problems as flawed."""

    def read_with_flaws(flawed: dict[str, str]) -> ReportData:
        params = load(values)
        for name, by_seed in CORRECT.items():
            for seed in SEEDS:
                runs.write_scores(make_run(name, seed), by_seed[seed])
        folder = runs.root / "data/math"
        runs.add_to_manifest(
            folder / "manifest.json", stage="prepare", spec={"source": "embedded", "test": 4}
        )
        document = json.loads((folder / "manifest.json").read_text())
        document["outputs"] = {}
        if flawed:
            document[FLAWED] = {"test": flawed, "train": {"p9": "not a test problem"}}
        write_json(folder / "manifest.json", document)
        return ReportData.read(params, runs.root)

    return read_with_flaws


def row_cells(table, label):
    (row,) = (row for row in table.rows if row.label == label)
    titles = next(group.columns for group in table.groups if group.title.startswith("MATH"))
    position = [group.title for group in table.groups].index("MATH (made)")
    return dict(zip(titles, row.cells[position], strict=True))


def test_accuracy_without_flawed_problems_has_its_own_column(read_runs):
    table = intervals.build_intervals_table(read_runs({"p0": "vacuous: x", "p3": "unprovable: y"}))
    cells = row_cells(table, "PG")
    assert [*cells] == ["Pass@1", "Pass@1 (sound)"]
    assert (cells["Pass@1"].text, cells["Pass@1 (sound)"].text) == ("75.0%", "87.5%")
    assert row_cells(table, "Base")["Pass@1 (sound)"].text == "37.5%"


def test_sound_interval_is_that_of_the_remaining_problems(read_runs):
    cell = row_cells(intervals.build_intervals_table(read_runs({"p0": "", "p3": ""})), "PG")[
        "Pass@1 (sound)"
    ]
    remaining = [[c / 8 for c in CORRECT["pg"][seed][1:3]] for seed in SEEDS]
    expected = crossed.estimate_mean(np.array(remaining), pairs.SHARE_BOUNDS)
    assert cell.extra_lines == (format_interval(formats.percent, expected),)


def test_without_flawed_problems_tables_are_unchanged(read_runs):
    data = read_runs({})
    assert [*row_cells(intervals.build_intervals_table(data), "PG")] == ["Pass@1"]
    assert "Flawed" not in text.render(
        [results.build_main_table(data), intervals.build_intervals_table(data)]
    )


def test_notes_count_the_flawed_problems(read_runs):
    rendered = text.render([results.build_main_table(read_runs({"p0": "", "p3": ""}))])
    note = " ".join(rendered.split())
    assert (
        "Flawed: the statements of some test problems have known flaws, 2 of MATH (made)." in note
    )
    assert "Table\N{NO-BREAK SPACE}9 of the main report" in note.replace(
        "Table 9", "Table\N{NO-BREAK SPACE}9"
    )


def test_tables_can_be_used_without_the_appendix(read_runs, values, runs):
    read_runs({"p0": ""})
    output = runs.root / "tables.tex"
    arguments = ["--config", json.dumps(values), "--root", str(runs.root)]
    assert main([*arguments, "--output", str(output)]) == 0
    tex = output.read_text()
    assert "Table~9 of the main report" in tex
    references = set(re.findall(r"\\ref{(.*?)}", tex))
    assert references <= set(re.findall(r"\\label{(.*?)}", tex))


def test_source_without_prepared_data_has_no_flawed_problems():
    assert ProblemSource("minif2f", "hub", "data").get_flaws("test") == {}
