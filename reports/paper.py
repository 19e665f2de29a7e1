"""The paper's figures, by paper.yaml: they stand beside measured ones and never among them."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rapid.algorithms import RAPID
from rapid.algorithms.names import parse
from reports.statistics import estimates
from reports.statistics.estimates import Estimate

BASELINES, RAPIDS = ["grpo", "pg", "dapo"], [RAPID.at(4), RAPID.at(8)]  # of Table 1
NAIVE = "naive-grpo"  # of Figure 1
FILE = Path(__file__).with_name("paper.yaml")


@cache
def load() -> dict[str, Any]:
    """Return the document, with its figures as the paper prints them."""
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


def number(text: str) -> float:
    """Return a printed figure as a number: 12.3% -> 0.123, 4h42m -> 16920 (seconds), 0.06 -> 0.06.

    Raises:
        ValueError: it is none of these.
    """
    if time := re.fullmatch(r"(?:(\d+)h)?([\d.]+)m", text):
        return 3600 * int(time[1] or 0) + 60 * float(time[2])
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def main(benchmark: str, algorithm: str | None, metric: str) -> float | None:
    """Return a mean of Table 1; RAPID at an H that is only in Table 3 is from there."""
    document = load()
    entry = document["main"].get(benchmark, {}).get(algorithm, {}).get(metric)
    if entry is None and algorithm and RAPID.named(algorithm):
        h = parse(algorithm).H
        entry = document["staleness"].get(benchmark, {}).get(h, {}).get(metric)
    return None if entry is None else number(entry[0])


def family(model: str, algorithm: str, metric: str) -> float | None:
    """Return a figure of Table 2, of the family whose name is in a model's name."""
    for title, rows in load()["families"].items():
        if title != "table" and title.split()[0].lower() in model.lower():
            text = rows.get(algorithm, {}).get(metric)
            return None if text is None else number(text)
    return None


def first(benchmark: str, algorithms: list[str], metric: str) -> str | None:
    """Return the best of the algorithms that Table 1 has."""
    means = {name: main(benchmark, name, metric) for name in algorithms}
    sign = 1 if metric == "runtime" else -1
    having = [name for name in algorithms if means[name] is not None]
    return min(having, key=lambda name: sign * means[name], default=None)


def correlation(benchmark: str, metric: str) -> Estimate | None:
    """Return r of Table 4 with an interval over the paper's runs, which it does not print."""
    document = load()
    text = document["correlations"].get(benchmark, {}).get(metric)
    if text is None:
        return None
    n = document["runs"] * len(document["staleness"][benchmark])
    return estimates.correlation(float(text), n)


def paper_value(name: str) -> float:
    """Return a number of the running text."""
    return number(load()["text"][name]["value"])
