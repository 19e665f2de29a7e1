"""paper.yaml: its figures agree with each other, and with the paper's source if it is given."""

import os
import re
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest

from reports import paper

TEX = os.environ.get("RAPID_PAPER_TEX")
FIGURE = re.compile(r"-?\d+h\d+m|-?\d+\.?\d*[m%]|-?\d+\.\d+")


@pytest.mark.parametrize(
    ("text", "value"),
    [("12.3%", 0.123), ("4h42m", 16920), ("4h8m", 14880), ("12.7m", 762), ("-0.5", -0.5)],
)
def test_printed_figures_are_parsed(text, value):
    assert paper.parse_number(text) == pytest.approx(value)


def list_leaves(value):
    """Return the values in nested dicts and lists, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    return (
        [leaf for part in value for leaf in list_leaves(part)]
        if isinstance(value, list)
        else [value]
    )


def test_every_figure_of_the_tables_can_be_parsed():
    document = paper.load_paper()
    for name in ("main", "families", "staleness", "correlations"):
        parts = {k: v for k, v in document[name].items() if k not in ("table", "model")}
        assert all(np.isfinite(paper.parse_number(text)) for text in list_leaves(parts))


def test_tables_1_and_3_share_the_rows_of_h_4_and_8():
    document = paper.load_paper()
    for benchmark in ("mbpp_plus", "math", "minif2f"):
        for h in (4, 8):
            table_1, table_3 = document["main"][benchmark], document["staleness"][benchmark][h]
            for metric, (mean, _) in table_1[f"rapid-H{h}"].items():
                assert mean == table_3[metric][0]


def test_family_figures_are_looked_up_by_model_name():
    assert paper.get_family_value("tiny-llama", "pg", "pass@8") == pytest.approx(0.421)
    assert paper.get_family_value("Qwen2.5-1.5B", "rapid-H4", "runtime") == pytest.approx(22.8 * 60)
    assert paper.get_family_value("tiny-llama", "rapid-H8", "pass@1") is None
    assert paper.get_family_value("mine", "pg", "pass@1") is None


@pytest.mark.parametrize(
    ("benchmark", "algorithm", "metric", "value"),
    [
        ("math", "pg", "pass@1", 0.306),
        ("math", "rapid-H16", "runtime", 14880),  # only in Table 3
        ("math", "rapid-H32", "runtime", None),
        ("math", "rloo", "runtime", None),
        ("math", None, "runtime", None),
        ("mine", "rapid-H4", "runtime", None),
    ],
)
def test_mean_comes_from_table_1_or_else_table_3(benchmark, algorithm, metric, value):
    assert paper.get_main_value(benchmark, algorithm, metric) == (value and pytest.approx(value))


def test_best_algorithm_is_one_that_the_paper_has():
    names = ["rloo", "grpo", "pg", "dapo"]
    best = [paper.find_best("math", names, metric) for metric in ("pass@1", "runtime", "staleness")]
    assert best == ["pg", "dapo", None]


def test_correlation_is_over_three_runs_at_each_h():
    correlation = paper.get_correlation("math", "runtime")
    assert (correlation.value, correlation.sample) == (-0.666, "Pearson's r over n = 12 runs")
    assert paper.get_correlation("math", "pass@8") is None


def flatten_figures(rows) -> list[str]:
    """Return the figures of table rows in reading order, each mean followed by its deviation."""
    return [text for row in rows for group in row for text in list_leaves(list(group.values()))]


def read_table_figures(label: str) -> list[str]:
    """Return the figures of the paper's table with this label, in reading order."""
    source = Path(TEX).read_text(encoding="utf-8")
    end = source.index(rf"\label{{{label}}}")
    body = source[source.rindex(r"\begin{tabular", 0, end) : end]
    body = body[body.index(r"\midrule") : body.index(r"\end{tabular")]  # without its head
    body = re.sub(r"\\boxit\{.*?\}\{.*?\}|\\(multirow|multicolumn|cmidrule\S*)\{[^}]*\}", "", body)
    body = re.sub(r"\\textbf\{([\d.]+)\}", r"\1", body).replace("\\%", "%").replace("}%", "%")
    body = re.sub(r"\\makecell|\\(textbf|underline|scriptsize|,)|[{}$\\]", " ", body)
    return FIGURE.findall(body)


@pytest.mark.skipif(not TEX, reason="RAPID_PAPER_TEX does not name the paper's source")
@pytest.mark.parametrize("name", ["main", "families", "staleness", "correlations"])
def test_figures_match_the_papers_tables_in_order(name):
    document = paper.load_paper()[name]
    groups = [part for key, part in document.items() if key not in ("table", "model")]
    if name == "correlations":  # a row for each pass@k, with the rest of its benchmark
        rows = [
            [{k: v, "runtime": group["runtime"], "staleness": group["staleness"]}]
            for group in groups
            for k, v in group.items()
            if k.startswith("pass@")
        ]
    else:
        rows = [[group[key] for group in groups] for key in groups[0]]
    pairs = list(zip_longest(flatten_figures(rows), read_table_figures(document["table"])))
    assert [(ours, papers) for ours, papers in pairs if ours != papers] == []


@pytest.mark.skipif(not TEX, reason="RAPID_PAPER_TEX does not name the paper's source")
def test_numbers_of_the_text_are_in_the_papers_source():
    source = Path(TEX).read_text(encoding="utf-8").replace("\\%", "%")
    for entry in paper.load_paper()["text"].values():
        assert entry["value"] in source
