"""The first sentences of a report: true for any results, and the same numbers as in its tables."""

import re

import pytest

from rapid.config.params import load
from reports import contents
from reports.report_data import ReportData
from reports.tables import intervals
from tests.reports.conftest import make_run

MADE_ON = "on MATH (made) with H=4"


def read_lead(params, runs) -> list[str]:
    return with_plain_spaces(contents.build_report(ReportData.read(params, runs.root)).lead)


def with_plain_spaces(paragraphs: list[str]) -> list[str]:
    """Return paragraphs without no-break spaces, which keep intervals together."""
    return [paragraph.replace("\N{NO-BREAK SPACE}", " ") for paragraph in paragraphs]


def leave_pair(runs, seed: int, seconds: tuple[float, float], correct: tuple, **fields) -> None:
    """Leave the runs of PG and of RAPID with the paper's H on MATH."""
    for algorithm, length, scores in zip(("pg", "rapid-H4"), seconds, correct, strict=True):
        runs.write_summary(make_run(algorithm, seed), seconds=length, **fields)
        runs.write_scores(make_run(algorithm, seed), scores)


def test_sentences_have_the_estimates_of_the_tables(params, runs):
    runs.write_all(params)
    data = ReportData.read(params, runs.root)
    time, accuracy, _ = with_plain_spaces(contents.build_report(data).lead)
    table = intervals.build_comparisons_table(data)
    row = next(row for row in table.rows if row.label == "H=4")
    of_math = row.cells[[group.title for group in table.groups].index("MATH (made)")]
    assert f"{of_math[-1].text} {of_math[-1].extra_lines[0]} {MADE_ON}" in time
    assert f"{of_math[0].text} {of_math[0].extra_lines[0]} {MADE_ON}" in accuracy


def test_a_clear_difference_is_called_significant(params, runs):
    for seed in (0, 1):
        leave_pair(runs, seed, (60.0, 30.0 + seed), ([0, 1] * 20, [7, 8] * 20))
    time, accuracy, _ = read_lead(params, runs)
    assert re.search(r"by PG\'s is 0\.51 \[0\.\d\d, 0\.\d\d\] on MATH", time)
    assert "No seed has runtimes of both RAPID and PG on MBPP+ (made)." in time
    assert "is +87.5 [+" in accuracy
    assert accuracy.endswith(
        "; significant (p ≤ 0.05, unadjusted) on MATH (made). "
        "No seed has scores by problem of both RAPID and PG on MBPP+ (made)."
    )


def test_noise_is_not_called_significant(params, runs):
    for seed in (0, 1):
        scores = [3, 5] * 10, [5, 3] * 10
        leave_pair(runs, seed, (60.0, 60.0), scores if seed else scores[::-1])
    _, accuracy, _ = read_lead(params, runs)
    assert "; no difference is significant (p > 0.05)." in accuracy


def test_one_seed_has_no_intervals(values, runs):
    values["tables"]["main"]["seeds"] = [0]
    leave_pair(runs, 0, (60.0, 30.0), ([1, 2] * 10, [1, 3] * 10))
    time, accuracy, _ = read_lead(load(values), runs)
    assert f"0.50 (one pair of runs, no interval) {MADE_ON} (" in time
    assert "+6.3 (one pair of runs, no interval)" in accuracy and "significant" not in accuracy


def test_without_runs_nothing_is_compared(params, runs):
    time, accuracy, claims = read_lead(params, runs)
    assert time == "No seed has runtimes of both RAPID and PG on MBPP+ (made) and MATH (made)."
    assert (
        accuracy
        == "No seed has scores by problem of both RAPID and PG on MBPP+ (made) and MATH (made)."
    )
    assert "0 hold, 0 fail, 0 are open" in claims


def test_runs_of_several_machines_and_disturbed_runs_are_named(params, runs):
    for seed, hardware in enumerate(("a CPU", "a GPU")):
        leave_pair(runs, seed, (60.0, 30.0), ([1] * 9, [2] * 9), hardware=hardware, disturbed=True)
    time, _, _ = read_lead(params, runs)
    assert "The runs are from 2 kinds of hardware, whose runtimes are not comparable." in time
    assert time.endswith("Other programs slowed 4 of 4 training runs.")


def test_runtimes_of_different_machines_are_not_compared(params, runs):
    leave_pair(runs, 0, (60.0, 30.0), ([1] * 9, [2] * 9))
    runs.write_summary(make_run("pg", 0), hardware="another processor")
    time, _, _ = read_lead(params, runs)
    assert "PG on MBPP+ (made) and MATH (made) from the same hardware." in time


@pytest.mark.parametrize("seeds", [[0, 1], [0], []])
def test_studies_say_how_many_variants_differ(params, runs, seeds):
    study = params.studies.compared["clip"]
    for seed in seeds:
        for number, name in enumerate(study.algorithms):
            run = make_run(name, seed, study.benchmark)
            runs.write_scores(run, [8 if number == 1 else 1 + seed % 2, 1] * 16)
    frame = [make_run(name, seed, study.benchmark) for name in study.algorithms for seed in (0, 1)]
    lead = with_plain_spaces(contents.build_studies(ReportData.read(params, runs.root, frame)).lead)
    if len(seeds) < 2:
        assert re.fullmatch(
            r"None of \d+ variants can be compared.*: no two seeds have runs of both\.", lead[1]
        )
        return
    compared = len(study.algorithms) - 1
    assert lead[1].startswith(f"Of {compared} variants that can be compared, 1 differs")
    assert re.search(r"is that of the variant clip = \w+: \+\d\d\.\d \[", lead[2])
