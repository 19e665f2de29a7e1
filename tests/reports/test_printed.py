"""Statements of docs/reproduction-notes.md about the tables of the paper, derived from them."""

import numpy as np
import pytest

from reports import paper
from tests.reports import printed
from tests.reports.printed import H

ON_MBPP = [
    accuracy for accuracy in printed.iterate_accuracies() if accuracy[0].startswith("mbpp_plus ")
]
IMPOSSIBLE = {("minif2f", "pass@1"), ("minif2f", "runtime")}


def test_mbpp_deviations_are_sample_deviations():
    assert len(ON_MBPP) == 18
    assert all(printed.find_solved_counts(cell, problems) for _, _, cell, problems in ON_MBPP)
    by_population = [printed.find_solved_counts(cell, n, ddof=0) for _, _, cell, n in ON_MBPP]
    assert by_population.count([]) == 13


def test_one_other_accuracy_is_impossible_for_three_runs():
    elsewhere = [accuracy for accuracy in printed.iterate_accuracies() if accuracy not in ON_MBPP]
    impossible = [row for row, _, cell, n in elsewhere if not printed.find_solved_counts(cell, n)]
    assert impossible == ["math grpo"]


def test_table_2_shows_one_run_with_one_answer_per_problem():
    models = [rows for model, rows in paper.load_paper()["families"].items() if model != "table"]
    cells = [row[k] for rows in models for row in rows.values() for k in ("pass@1", "pass@8")]
    assert len(cells) == 36
    assert all(printed.is_share_of_problems(cell, 114) for cell in cells)
    assert not printed.is_share_of_problems("9.9%", 114)


def test_table_4_correlates_h_over_runs_except_in_two_cells():
    impossible = {
        (benchmark, metric)
        for benchmark, metric, r in printed.iterate_correlations()
        if not printed.can_round_to(r, printed.correlation_range(benchmark, metric, H))
    }
    assert impossible == IMPOSSIBLE
    for benchmark, metric, r in printed.iterate_correlations():
        assert r * printed.correlate_means_with_h(benchmark, metric) > 0, (benchmark, metric)


@pytest.mark.parametrize(("metric", "r"), [("pass@1", 0.311), ("pass@8", -0.559)])
def test_table_4_does_not_correlate_log_h_or_means(metric, r):
    assert not printed.can_round_to(r, printed.correlation_range("mbpp_plus", metric, np.log2(H)))
    assert abs(printed.correlate_means_with_h("mbpp_plus", metric) - r) > 0.02


def test_savings_in_the_abstract_are_of_different_h():
    for benchmark, pair in {
        "mbpp_plus": ["rapid-H8", "pg"], "minif2f": ["rapid-H8", "pg"], "math": ["rapid-H4", "dapo"],
    }.items():  # fmt: skip
        printed_saving = paper.load_paper()["text"][f"saving_{benchmark}"]["value"]
        fastest = [
            paper.find_best(benchmark, names, "runtime")
            for names in (paper.RAPIDS, paper.BASELINES)
        ]
        assert fastest == pair
        assert f"{printed.runtime_saving(benchmark, *pair):.0%}" == printed_saving
    assert min(printed.family_runtime_savings().values()) < 0.11


def test_printed_staleness_of_h_2_on_math_allows_5_percent_clipped_weights():
    assert printed.max_clipped_share("math", 2) == pytest.approx(0.0505, abs=1e-4)
