"""The numbers that the paper prints, from paper.yaml, for comparison with those of runs."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rapid.algorithms import RAPID
from rapid.algorithms.variant_names import parse_variant_name
from reports.statistics import estimates
from reports.statistics.estimates import Estimate

# The baselines and RAPID in the paper's Table 1.
BASELINES, RAPIDS = ["grpo", "pg", "dapo"], [RAPID.format_name(4), RAPID.format_name(8)]
NAIVE = "naive-grpo"  # the baseline of the paper's Figure 1
FILE = Path(__file__).with_name("paper.yaml")


@cache
def load_paper() -> dict[str, Any]:
    """Return paper.yaml, with the numbers as texts."""
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


def parse_number(text: str) -> float:
    """Return the value of a printed number: 12.3% -> 0.123, 4h42m -> 16920 (seconds), 0.06 -> 0.06.

    Raises:
        ValueError: the text has none of these forms.
    """
    if time := re.fullmatch(r"(?:(\d+)h)?([\d.]+)m", text):
        return 3600 * int(time[1] or 0) + 60 * float(time[2])
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def get_main_value(benchmark: str, algorithm: str | None, metric: str) -> float | None:
    """Return a mean of the paper's Table 1, or of Table 3 for RAPID at an H that Table 1 lacks.

    The result is None if the paper has no such number, or if `algorithm` is None, which `find_best`
    may return.
    """
    document = load_paper()
    entry = document["main"].get(benchmark, {}).get(algorithm, {}).get(metric)
    if entry is None and algorithm and RAPID.matches_name(algorithm):
        h = parse_variant_name(algorithm).H
        entry = document["staleness"].get(benchmark, {}).get(h, {}).get(metric)
    return None if entry is None else parse_number(entry[0])  # of [mean, standard deviation]


def get_family_value(model: str, algorithm: str, metric: str) -> float | None:
    """Return a number of the paper's Table 2, for the paper's model of the same family as `model`.

    The family is the first word of a model's name in paper.yaml: Qwen, Llama or Gemma. The result
    is None if the paper has no such model or number.
    """
    for title, rows in load_paper()["families"].items():
        if title != "table" and title.split()[0].lower() in model.lower():
            text = rows.get(algorithm, {}).get(metric)
            return None if text is None else parse_number(text)
    return None


def find_best(benchmark: str, algorithms: list[str], metric: str) -> str | None:
    """Return the algorithm with the best mean in the paper; None if it has a mean of none of them.

    The lowest runtime is best, and the highest value of any other metric.
    """
    means = {name: get_main_value(benchmark, name, metric) for name in algorithms}
    sign = 1 if metric == "runtime" else -1
    candidates = [name for name in algorithms if means[name] is not None]
    return min(candidates, key=lambda name: sign * means[name], default=None)


def get_correlation(benchmark: str, metric: str) -> Estimate | None:
    """Return a correlation of the paper's Table 4, with an interval that the paper does not print.

    The interval follows from the number of runs. The result is None if the paper has no such
    correlation.
    """
    document = load_paper()
    text = document["correlations"].get(benchmark, {}).get(metric)
    if text is None:
        return None
    n = document["runs"] * len(document["staleness"][benchmark])
    return estimates.estimate_correlation(float(text), n)
