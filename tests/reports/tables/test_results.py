"""Tables 1 to 4 as data: layout, marks, missing values, seeds and notes."""

from functools import partial

import numpy as np
import pytest
from scipy.stats import norm, ttest_rel

from rapid.config import specs
from rapid.config.params import load
from reports.labels import algorithm
from reports.report_data import ReportData
from reports.tables import APPENDIX, RESULTS, results, setup
from reports.tables import build_tables as build_tables
from tests.reports.conftest import make_run

REASON_EVALUATION = "not evaluated: no evaluation.json of a finished job"
REASON_SUMMARY = "not trained: no summary.json of a finished job"

make_mbpp_run = partial(make_run, benchmark="mbpp_plus")


def select_column(table, group_title, title):
    """Return the cells of a column by row label."""
    group = [group.title for group in table.groups].index(group_title)
    column = table.groups[group].columns.index(title)
    return {row.label: row.cells[group][column] for row in table.rows}


def build_results(params, runs):
    return build_tables(RESULTS, ReportData.read(params, runs.root))


def build_main(params, runs):
    return results.build_main_table(ReportData.read(params, runs.root))


def test_layout_follows_the_parameters(params, runs):
    main, families, staleness, correlations = build_results(params, runs)
    assert [group.title for group in main.groups] == ["MBPP+ (made)", "MATH (made)"]
    assert main.groups[0].columns == ["Pass@1", "Pass@8", "Runtime"]
    assert main.groups[1].columns == ["Pass@1", "Runtime"]
    assert [row.label for row in main.rows] == [
        "Base", "SFT", "GRPO", "naive GRPO", "PG", "DAPO", "RAPID (H=4)", "RAPID (H=2)",
    ]  # fmt: skip
    assert [group.title for group in families.groups] == ["tiny_qwen", "tiny-llama"]
    assert [row.label for row in families.rows] == ["Base", "SFT", "PG", "RAPID (H=2)"]
    assert [problems.benchmark for problems in families.problems] == ["mbpp_plus"]
    assert [row.label for row in staleness.rows] == ["2", "4"]
    assert staleness.groups[1].columns == ["Pass@1", "Time", "Stale"]
    assert [(row.label, row.cells[0][0].text) for row in correlations.rows] == [
        ("MBPP+ (made)", "Pass@1"), ("", "Pass@8"), ("MATH (made)", "Pass@1"),
    ]  # fmt: skip
    assert all(len(row.cells[0]) == 4 for row in correlations.rows)


@pytest.mark.parametrize(("start", "rows"), [("base", []), ("grpo", ["GRPO (start)"])])
def test_start_run_of_rl_has_a_row_and_a_note(values, runs, start, rows):
    values["tables"]["main"]["algorithms"] = ["pg", "dapo"]
    values["training"]["start"] = start
    runs.write_all(load(values))
    for seed in (0, 1):
        # The start is only a part of a training, so that its short runtime does not count.
        runs.write_summary(make_mbpp_run("grpo", seed), seconds=0.1)
    table = build_main(load(values), runs)
    times = select_column(table, "MBPP+ (made)", "Runtime")
    assert list(times) == ["Base", *rows, "PG", "DAPO"]
    assert {label for label, cell in times.items() if cell.mark} == {"PG", "DAPO"}
    note_start = f"Start: RL starts from the model that {start.upper()} trained with the same seed"
    assert [n.startswith(note_start) for n in table.notes if "Start" in n] == [True] * len(rows)


@pytest.mark.parametrize("algorithms", [["pg"], ["pg", "sft"]])
def test_rows_before_rl_have_only_the_run_that_all_others_start_from(values, runs, algorithms):
    """The run of SFT with seed 7, even if the table has other runs of SFT; Base has its seed."""
    values["tables"]["main"]["algorithms"] = algorithms
    values["training"] |= {"start": "sft", "start_seed": 7}
    params = load(values)
    runs.write_all(params)
    table = build_main(params, runs)
    cells = select_column(table, "MATH (made)", "Pass@1")
    for label in ("Base", "SFT (start)"):
        assert [source.label for source in cells[label].sources] == ["seed 7"]
        assert cells[label].text != "—"
    (note,) = (note for note in table.notes if note.startswith("Start"))
    assert "the model that SFT trained with seed 7; Base is" in note


def test_best_is_the_highest_accuracy_and_the_lowest_runtime_without_base_and_sft(params, runs):
    scores = {"base": 0.9, "sft": 0.8, "grpo": 0.3, "pg": 0.2}
    seconds = {"sft": 1, "grpo": 300, "pg": 200, "dapo": 400}
    for name, score in scores.items():
        runs.write_accuracy(make_mbpp_run(name), score)
    for name, value in seconds.items():
        runs.write_summary(make_mbpp_run(name), seconds=value)
    table = build_main(params, runs)
    for title, expected in (
        ("Pass@1", {"Base": "best", "SFT": "runner-up"}),
        ("Runtime", {"PG": "best", "GRPO": "runner-up"}),
    ):
        cells = select_column(table, "MBPP+ (made)", title)
        assert {label: cell.mark for label, cell in cells.items() if cell.mark} == expected
    assert not any(cell.mark for cell in select_column(table, "MATH (made)", "Pass@1").values())
    assert select_column(table, "MBPP+ (made)", "Runtime")["Base"].text == "N/A"
    notes = " ".join(table.notes)
    assert "Base and SFT are not ranked by runtime. SFT imitates" in notes
    assert "minus PG's, in percentage points, is +60.0 on MBPP+ (made)." in notes


def test_marks_depend_on_unrounded_means(params, runs):
    for name, score in {"grpo": 0.30001, "pg": 0.30002, "dapo": 0.1}.items():
        runs.write_accuracy(make_mbpp_run(name), score)
    cells = select_column(build_main(params, runs), "MBPP+ (made)", "Pass@1")
    assert [cells[label].mark for label in ("GRPO", "PG", "DAPO")] == ["runner-up", "best", ""]


def test_equal_means_share_a_mark_whatever_the_order_of_summation(params, runs):
    for name, seconds in {"grpo": (0.1, 0.2), "pg": (0.15, 0.15), "dapo": (1.0, 1.0)}.items():
        for seed, value in enumerate(seconds):
            runs.write_summary(make_mbpp_run(name, seed), seconds=value)
    cells = select_column(build_main(params, runs), "MBPP+ (made)", "Runtime")
    assert [cells[label].mark for label in ("GRPO", "PG", "DAPO")] == ["best", "best", ""]


def test_runtimes_on_different_hardware_are_not_ranked(params, runs):
    for number, name in enumerate(("grpo", "pg", "dapo")):
        runs.write_summary(make_mbpp_run(name), seconds=10.0 * (number + 1), hardware=f"cpu {name}")
    table = build_main(params, runs)
    cells = select_column(table, "MBPP+ (made)", "Runtime")
    assert not any(cell.mark or cell.tied for cell in cells.values())
    assert any("are not comparable and are not ranked" in note for note in table.notes)


def test_a_mean_over_different_hardware_has_a_footnote(params, runs):
    for seed in (0, 1):
        runs.write_summary(make_mbpp_run("pg", seed), hardware=f"cpu {seed}")
    cells = select_column(build_main(params, runs), "MBPP+ (made)", "Runtime")
    assert cells["PG"].reason == "runs on 2 kinds of hardware"


def test_disturbed_runtimes_are_marked_and_not_ranked(params, runs):
    for name, seconds in {"grpo": 10.0, "pg": 20.0, "dapo": 30.0}.items():
        for seed in (0, 1):
            is_disturbed = name == "grpo" and seed == 1
            runs.write_summary(make_mbpp_run(name, seed), seconds=seconds, disturbed=is_disturbed)
    cells = select_column(build_main(params, runs), "MBPP+ (made)", "Runtime")
    assert "1 of 2 runs, which other programs disturbed" in cells["GRPO"].reason
    assert [cells[label].mark for label in ("GRPO", "PG", "DAPO")] == ["", "best", "runner-up"]


def test_a_single_run_among_several_seeds_says_so(params, runs):
    runs.write_summary(make_mbpp_run("pg", 0), seconds=10.0)
    cells = select_column(build_main(params, runs), "MBPP+ (made)", "Runtime")
    assert cells["PG"].extra_lines == ("n = 1",)


@pytest.mark.parametrize(
    ("seeds", "note"),
    [
        ([0], "1 run per cell would rarely show a difference"),
        ([*range(4)], "4 runs per cell would rarely show a difference"),
        ([*range(5)], "Values of fewer than 5 runs are not compared."),
    ],
)
def test_a_note_says_that_few_runs_lack_power(values, runs, seeds, note):
    values["tables"]["main"]["seeds"] = seeds
    params = load(values)
    runs.write_all(params)
    table = build_main(params, runs)
    assert note in " ".join(table.notes)
    assert not table.has_ties or len(seeds) >= 5


def test_every_table_is_built_without_any_runs(params, runs):
    tables = build_results(params, runs)
    appendix = build_tables(APPENDIX, ReportData.read(params, runs.root))
    assert [table.number for table in [*tables, *appendix]] == list(range(1, 12))
    for table in tables:
        measured_cells = [
            cell for cell in table.iterate_cells() if not cell.text.startswith(("N/A", "Pass@"))
        ]
        assert measured_cells
        assert all(cell.text == "—" and cell.reason and not cell.mark for cell in measured_cells)
        assert "No model has been trained." in table.notes
    assert set(tables[0].footnotes) == {REASON_EVALUATION, REASON_SUMMARY}
    assert set(tables[0].footnotes.values()) == {"a", "b"}


def test_missing_seeds_have_a_footnote_with_every_reason(params, runs):
    runs.write_accuracy(make_mbpp_run("pg", seed=1), 0.5)
    runs.write_evaluation(make_mbpp_run("dapo", seed=1), status="unavailable", note="no Lean")
    cells = select_column(build_main(params, runs), "MBPP+ (made)", "Pass@1")
    one_seed, no_seed = cells["PG"], cells["DAPO"]
    assert (one_seed.text, one_seed.deviation, no_seed.text) == ("50.0%", "", "—")
    assert one_seed.reason == f"leaves out 1 of 2 runs: {REASON_EVALUATION}"
    assert no_seed.reason == f"{REASON_EVALUATION}; not evaluated: no Lean"
    assert [[source.text for source in cell.sources] for cell in (one_seed, no_seed)] == [
        ["—", "50.0%"], ["—", "—"],
    ]  # fmt: skip


def test_correlation_of_equal_values_is_a_dash_with_a_reason(params, runs):
    for table_run in specs.add_base_runs(params, specs.list_table_runs(params)):
        runs.write_accuracy(table_run, 0.0, ks=(1, 8))
    cell = build_results(params, runs)[3].rows[0].cells[0][1]
    assert (cell.text, cell.reason) == ("—", "all runs have the same value: no correlation")


def test_correlation_is_over_the_existing_runs_with_fishers_interval(values, runs):
    values["tables"]["staleness"]["H"] = [2, 4, 8]
    shares = {(2, 0): 0.1, (2, 1): 0.3, (4, 0): 0.2, (4, 1): 0.5, (8, 0): 0.6}
    for (h, seed), share in shares.items():
        runs.write_accuracy(make_mbpp_run(f"rapid-H{h}", seed), share)
    cell = build_results(load(values), runs)[3].rows[0].cells[0][1]
    r = np.corrcoef([h for h, _ in shares], list(shares.values()))[0, 1]
    low, high = np.tanh(np.arctanh(r) + norm.ppf([0.025, 0.975]) / np.sqrt(5 - 3))  # Fisher's
    assert cell.text == f"{r:.3f}"
    assert cell.interval == f"[{low:.3f}, {high:.3f}]".replace("-", "\N{MINUS SIGN}")
    assert cell.reason == f"leaves out 1 of 6 runs: {REASON_EVALUATION}"
    assert {source.label: source.text for source in cell.sources} == {
        f"H = {h}, seed {seed}": f"{shares.get((h, seed), '—')}"
        for h in (2, 4, 8)
        for seed in (0, 1)
    }


def test_one_seed_has_no_deviation_and_a_note(params, runs):
    runs.write_all(params)
    _, families, staleness, _ = build_results(params, runs)
    assert not any(cell.deviation for cell in families.iterate_cells())
    assert "over n = 2 runs (seeds 0 and 1)." in staleness.notes[0]
    assert (
        families.notes[0] == "One run per cell (n = 1, seed 0), so there is no standard deviation."
    )
    stale = select_column(staleness, "MBPP+ (made)", "Stale").values()
    assert all(cell.deviation and not cell.mark for cell in stale)  # staleness is not ranked


def test_each_table_uses_the_seeds_of_its_parameters(values, runs):
    values["tables"]["families"]["seeds"] = [5]
    params = load(values)
    for seed, score in ((0, 0.1), (1, 0.1), (5, 0.7)):
        runs.write_accuracy(make_mbpp_run("pg", seed), score)
    main, families, *_ = build_results(params, runs)
    assert select_column(main, "MBPP+ (made)", "Pass@1")["PG"].text == "10.0%"
    assert select_column(families, "tiny_qwen", "Pass@1")["PG"].text == "70.0%"
    values["tables"]["families"]["models"] = []  # leaves out Table 2
    assert [table.number for table in build_results(load(values), runs)] == [1, 3, 4]


def test_runs_graded_without_sandbox_layers_have_a_note(values, runs):
    """Only tables with such a run, and the table of versions, have the note."""
    strict = load(values)
    runs.write_all(strict)
    values["grading"] = {"unsafe_sandbox": True}
    runs.write_manifest(load(values), make_mbpp_run("grpo"))
    tables = [
        *build_results(strict, runs),
        setup.build_versions_table(ReportData.read(strict, runs.root)),
    ]
    notes_by_table = {
        table.number: [n for n in table.notes if "without the whole sandbox" in n]
        for table in tables
    }
    assert {number for number, table_notes in notes_by_table.items() if table_notes} == {1, 7}
    assert "1 of " in notes_by_table[1][0]
    assert "grading.unsafe_sandbox" in notes_by_table[1][0]


@pytest.mark.parametrize(
    ("name", "label"),
    [("naive-grpo", "naive GRPO"), ("rapid-H16,eta=4", "RAPID (H=16), eta = 4"), ("own", "own")],
)
def test_algorithms_have_labels(name, label):
    assert algorithm(name) == label


@pytest.fixture
def params_with_five_seeds(values):
    values["tables"]["main"]["seeds"] = [*range(5)]
    return load(values)


def test_values_within_noise_of_the_best_are_marked(params_with_five_seeds, runs):
    def write_scores(name: str, correct: list[int]) -> None:
        for seed in range(5):
            runs.write_scores(make_mbpp_run(name, seed), correct)

    def read_cells(title: str) -> dict:
        return select_column(build_main(params_with_five_seeds, runs), "MBPP+ (made)", title)

    write_scores("pg", [5] * 20)
    # DAPO is worse on about half of the problems, always by one completion: this is no noise.
    write_scores("dapo", [5, 4] * 9 + [4, 6])
    write_scores("grpo", [0] * 10 + [1] * 10)
    cells = read_cells("Pass@1")
    assert (cells["PG"].mark, cells["PG"].tied) == ("best", False)
    assert (cells["DAPO"].mark, cells["DAPO"].tied) == ("runner-up", False)
    write_scores("dapo", [8, 1] * 10)
    runs.write_summary(make_mbpp_run("pg"), seconds=10)
    runs.write_summary(make_mbpp_run("dapo"), seconds=10.1)
    cells = read_cells("Pass@1")
    assert cells["DAPO"].tied and not cells["GRPO"].tied
    assert not any(cell.tied for cell in read_cells("Runtime").values())  # one seed has none


def test_runtimes_within_noise_are_decided_by_a_paired_t_test(params_with_five_seeds, runs):
    seconds = {
        "pg": (10.0, 11.0, 10.0, 11.0, 10.5), "dapo": (12.0, 19.0, 9.0, 10.0, 12.0),
        "grpo": (100.0, 111.0, 100.0, 111.0, 105.0),
    }  # fmt: skip
    for name, values_of_seeds in seconds.items():
        for seed, value in enumerate(values_of_seeds):
            runs.write_summary(make_mbpp_run(name, seed), seconds=value)
    cells = select_column(build_main(params_with_five_seeds, runs), "MBPP+ (made)", "Runtime")
    assert (cells["GRPO"].text, cells["GRPO"].deviation) == ("105.4s", "5.5s")
    for name, tied in (("dapo", True), ("grpo", False)):
        p = ttest_rel(np.log(seconds[name]), np.log(seconds["pg"])).pvalue
        assert cells[name.upper()].tied == (p >= 0.05) == tied
