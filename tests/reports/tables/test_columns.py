"""Column: value, deviation, rank, notes and sources of cells follow from one declaration."""

import pytest

from reports import formats
from reports.report_data import ReportData
from reports.tables.columns import RATIO, RUNTIME, Block, Column, build_algorithm_table
from tests.reports.conftest import make_run

REWARD = Column(
    "Reward",
    "reward_last",
    formats.percent,
    best="highest",
    paired=RATIO,
    note="{title}: of the last tenth of the steps.",
    applies=lambda name: name != "sft",
    is_ranked=lambda name, runs: name not in ("grpo", "base"),
)
ROWS = {"sft": "SFT", "grpo": "GRPO", "pg": "PG", "dapo": "DAPO", "base": "Base"}


@pytest.fixture
def table(params, runs):
    """A table with this column, over rewards of two seeds."""
    rewards = {"grpo": (0.9, 0.9), "pg": (0.5, 0.6), "dapo": (0.2, 0.21)}
    for name, pair in rewards.items():
        for seed, value in enumerate(pair):
            runs.write_summary(make_run(name, seed), reward_last=value)
    block = Block("MATH", "math", "tiny_qwen", [REWARD])
    return build_algorithm_table("main", ReportData.read(params, runs.root), ROWS, [block], [0, 1])


def test_the_note_names_the_blocks_in_which_an_algorithm_is_not_ranked(params, runs):
    """Each block ranks its own runs: here GRPO was disturbed on MATH only."""
    for benchmark in ("mbpp_plus", "math"):
        for name in ("grpo", "pg"):
            run = make_run(name, 0, benchmark=benchmark)
            is_disturbed = (name, benchmark) == ("grpo", "math")
            runs.write_summary(run, 60.0 if name == "pg" else 50.0, disturbed=is_disturbed)
    blocks = [Block(name, name, "tiny_qwen", [RUNTIME]) for name in ("mbpp_plus", "math")]
    rows = {"sft": "SFT", "grpo": "GRPO", "pg": "PG"}
    table = build_algorithm_table("main", ReportData.read(params, runs.root), rows, blocks, [0])
    assert [[group[0].mark for group in row.cells] for row in table.rows[1:]] == [
        ["best", ""], ["runner-up", ""],
    ]  # fmt: skip
    text = " ".join(table.notes)
    assert "SFT is not ranked by runtime." in text
    assert "Not ranked by runtime: GRPO on MATH" in text


def test_any_number_of_a_summary_can_be_a_column(table):
    """The ranking leaves out rows that do not compete."""
    cells = [row.cells[0][0] for row in table.rows]
    assert [row.label for row in table.rows] == [*ROWS.values()]
    assert [cell.text for cell in cells] == ["N/A", "90.0%", "55.0%", "20.5%", "—"]
    assert [cell.mark for cell in cells] == ["", "", "best", "runner-up", ""]
    assert cells[2].deviation == "7.1%"
    assert [source.path for source in cells[2].sources] == [
        f"runs/math/tiny_qwen/pg/seed{seed}/summary.json" for seed in (0, 1)
    ]


def test_table_has_the_notes_of_its_columns(table):
    _, column_note, *_ = table.notes
    reward_note, noise_note, rounding_note, unranked_note = column_note.split(". ")
    assert reward_note == "Reward: of the last tenth of the steps"
    assert noise_note.startswith("No value is marked as within noise of the best: 2 runs per cell")
    assert rounding_note == "Marks are decided by the values before rounding"
    assert unranked_note == "GRPO and Base are not ranked by Reward."
