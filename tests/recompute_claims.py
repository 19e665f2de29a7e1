"""The paper's claims in Table 11, tested again without the code of the reports."""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.arena_statistics import adjust_by_holm
from tests.recompute_statistics import (
    DASH,
    Result,
    adjust_minus,
    estimate_share,
    format_p,
    format_percent,
    format_points,
    format_ratio,
    format_result,
)

if TYPE_CHECKING:
    from tests.recompute import Results

UNTESTED = "not tested here"


def read_number(text: str) -> float:
    """Return a number of paper.yaml: 12.3% -> 0.123, 4h42m -> 16920 (seconds)."""
    if match := re.fullmatch(r"(?:(\d+)h)?([\d.]+)m", text):
        return 3600 * int(match[1] or 0) + 60 * float(match[2])
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def compare_paper(paper: dict, benchmark: str, metric: str, ours: str, theirs: str) -> float | None:
    """Return the ratio or difference of two means in the paper; None if it lacks one of them."""
    means = []
    for name in (ours, theirs):
        texts = paper["main"].get(benchmark, {}).get(name, {}).get(metric)
        if texts is None and name.startswith("rapid-H"):
            texts = paper["staleness"].get(benchmark, {}).get(int(name[7:]), {}).get(metric)
        means.append(texts and read_number(texts[0]))
    return _contrast(means, metric)


def compare_family(paper: dict, model: str, metric: str, ours: str, theirs: str) -> float | None:
    """Return the ratio or difference in the paper's Table 2, for its model of the same family."""
    for title, rows in paper["families"].items():
        if title != "table" and title.split()[0].lower() in model.lower():
            texts = [rows.get(name, {}).get(metric) for name in (ours, theirs)]
            return _contrast([text and read_number(text) for text in texts], metric)
    return None


def _contrast(means: list[float | None], metric: str) -> float | None:
    first, second = means
    if first is None or second is None:
        return None
    return first - second if metric.startswith("pass@") else first / second


@dataclass
class Row:
    """A row of the table: a claim, with its estimate from the runs.

    Args:
        show: formats values.
        paper_value: the paper's value; None if it has none.
        above, below: the limits between which the true value lies according to the claim.
    """

    result: Result
    show: Callable[[float], str]
    paper_value: float | None
    above: float = -math.inf
    below: float = math.inf

    def test(self) -> tuple[float, str] | None:
        """Return p, and the verdict if p is small; None without an interval."""
        value, p = self.result.value, self.result.p
        if p is None:
            return None
        if self.above < value < self.below:
            return max(p(x) for x in (self.above, self.below) if math.isfinite(x)), "holds"
        return p(self.above if value <= self.above else self.below), "fails"


def judge(results: "Results") -> Iterator[dict[str, str]]:
    """Yield the cells of each row, in the order of the table."""
    for rows in _list_claim_families(results):
        tested = [row.test() for row in rows]
        adjusted = iter(adjust_by_holm([test[0] for test in tested if test]))
        for row, test in zip(rows, tested, strict=True):
            p = next(adjusted) if test else None
            verdict = UNTESTED if p is None else test[1] if p <= 0.05 else "open"
            yield {
                "Verdict": verdict,
                "Here": format_result(row.show, row.result),
                "p": DASH if p is None else format_p(p),
                "Paper": DASH if row.paper_value is None else row.show(row.paper_value),
            }
    for _ in range(2):  # claims on runs that the default experiment does not have
        yield {"Verdict": UNTESTED, "Here": DASH, "p": DASH, "Paper": DASH}


def _list_claim_families(results: "Results") -> Iterator[list[Row]]:
    """Yield lists of claims; the p-values of a list are adjusted for their number."""
    paper, texts, benchmarks = results.paper, results.paper["text"], results.benchmarks

    def compare(
        metric, benchmark, ours="", theirs="pg", model="", paper_value=None, **limits
    ) -> Row:
        algorithms = results.tables["families"]["algorithms"] if model else results.algorithms
        rapid = sorted((n for n in algorithms if n.startswith("rapid-H")), key=lambda n: int(n[7:]))
        fastest = min(
            ("rapid-H4", "rapid-H8"),
            key=lambda n: read_number(paper["main"][benchmark][n]["runtime"][0]),
        )
        preferred = ours or fastest
        ours = preferred if preferred in rapid else [*rapid, "rapid-H4"][0]
        if paper_value is None:
            arguments = (paper, model or benchmark, metric, ours, theirs)
            paper_value = compare_family(*arguments) if model else compare_paper(*arguments)
        show = format_points if metric.startswith("pass@") else format_ratio
        result = results.compare(benchmark, metric, ours, theirs, model)
        return Row(result, show, paper_value, **limits)

    family = results.tables["families"]
    models = [(family["benchmark"], model) for model in family["models"]]
    # RAPID takes less time than PG, on each benchmark and with each model of Table 2.
    yield [compare("runtime", b, below=1.0) for b in benchmarks] + [
        compare("runtime", b, model=model, below=1.0) for b, model in models
    ]
    # RAPID saves the shares in Section 4.2 of the paper, which are printed as whole percentages.
    savings = [texts[name] for name in ("saving_mbpp_plus", "saving_minif2f", "saving_math")]
    yield [
        compare("runtime", s["benchmark"], below=1.005 - read_number(s["value"]))
        for s in savings
        if s["benchmark"] in benchmarks
    ]
    # RAPID saves the share of Figure 1 in comparison with naive GRPO.
    naive = 1 - read_number(texts["naive_saving"]["value"])
    yield [
        compare("runtime", b, theirs="naive-grpo", paper_value=naive, below=naive + 0.005)
        for b in benchmarks
    ]
    # RAPID's accuracy is less than two points below PG's.
    yield [
        compare(f"pass@{k}", b, above=-0.02) for b in benchmarks for k in benchmarks[b]["pass_at"]
    ] + [
        compare(f"pass@{benchmarks[b]['pass_at'][0]}", b, model=model, above=-0.02)
        for b, model in models
    ]
    # RAPID's Pass@8 with H = 4 is higher than PG's.
    benchmark_models = [*((b, "") for b in benchmarks), *models]  # "" is the main model
    yield [
        compare("pass@8", b, "rapid-H4", model=model, above=0.0)
        for b, model in benchmark_models
        if 8 in benchmarks[b]["pass_at"]
    ]
    # Staleness rises with H, and runtime falls.
    for metric, limits in (("staleness", {"above": 0.0}), ("runtime", {"below": 0.0})):
        yield [
            Row(
                results.correlate(b, metric),
                lambda r: adjust_minus(f"{r:.3f}"),
                float(paper["correlations"][b][metric]),
                **limits,
            )
            for b in benchmarks
        ]
    if "math" in benchmarks:
        # Completions are longer with H = 8 than with H = 4.
        result = results.compare("math", "completion_length", "rapid-H8", "rapid-H4")
        yield [Row(result, format_ratio, None, above=1.0)]
        # The share of clipped weights is within a factor of 2 of the paper's.
        clipped = read_number(texts["clipped"]["value"])
        clipped_runs = results.read_sweep("math", "clip_fraction")
        shares = [run.values["clip_fraction"] for _, run in clipped_runs]
        limits = {"above": clipped / 2, "below": 2 * clipped}
        yield [Row(estimate_share(shares), format_percent, clipped, **limits)]
