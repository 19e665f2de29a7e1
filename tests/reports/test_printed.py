"""What docs/reproduction-notes.md says of the paper's tables, from the printed tables."""

import numpy as np
import pytest

from reports import paper
from tests.reports import printed
from tests.reports.printed import H

MBPP = [row for row in printed.accuracies() if row[0].startswith("mbpp_plus ")]
OUT_OF_REACH = {("minif2f", "pass@1"), ("minif2f", "runtime")}


def test_deviations_are_the_samples():
    assert len(MBPP) == 18
    assert all(printed.counts(cell, problems) for _, _, cell, problems in MBPP)
    assert sum(not printed.counts(cell, problems, ddof=0) for _, _, cell, problems in MBPP) == 13


def test_one_accuracy_elsewhere_is_not_of_three_runs():
    others = [row for row in printed.accuracies() if row not in MBPP]
    assert [row[0] for row in others if not printed.counts(row[2], row[3])] == ["math grpo"]


def test_table_2_is_one_run_that_answers_each_problem_once():
    models = [rows for model, rows in paper.load()["families"].items() if model != "table"]
    cells = [row[k] for rows in models for row in rows.values() for k in ("pass@1", "pass@8")]
    assert len(cells) == 36
    assert all(printed.in_one_run(cell, 114) for cell in cells)
    assert not printed.in_one_run("9.9%", 114)


def test_correlations_are_with_h_over_runs_but_for_two_cells():
    found = {
        (benchmark, metric)
        for benchmark, metric, r in printed.correlations()
        if not printed.agrees(r, printed.reachable(benchmark, metric, H))
    }
    assert found == OUT_OF_REACH
    for benchmark, metric, r in printed.correlations():
        assert r * printed.of_means(benchmark, metric) > 0, (benchmark, metric)


@pytest.mark.parametrize(("metric", "r"), [("pass@1", 0.311), ("pass@8", -0.559)])
def test_correlations_are_not_with_the_logarithm_nor_over_means(metric, r):
    assert not printed.agrees(r, printed.reachable("mbpp_plus", metric, np.log2(H)))
    assert abs(printed.of_means("mbpp_plus", metric) - r) > 0.02


def test_the_abstracts_savings_mix_two_h():
    for benchmark, pair in {
        "mbpp_plus": ["rapid-H8", "pg"], "minif2f": ["rapid-H8", "pg"], "math": ["rapid-H4", "dapo"],
    }.items():  # fmt: skip
        said = paper.load()["text"][f"saving_{benchmark}"]["value"]
        fastest = [paper.first(benchmark, of, "runtime") for of in (paper.RAPIDS, paper.BASELINES)]
        assert (fastest, f"{printed.saving(benchmark, *pair):.0%}") == (pair, said)
    assert min(printed.family_savings().values()) < 0.11


def test_5_percent_clipped_make_up_the_staleness_of_h_2_on_math():
    assert printed.most_clipped("math", 2) == pytest.approx(0.0505, abs=1e-4)
