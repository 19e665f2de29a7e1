"""The numbers in the first sentences of a report, for the templates in contents.yaml.

The tables have the same estimates, so that sentences and tables agree.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from reports import labels
from reports.formats import NO_BREAK
from reports.report_data import ReportData
from reports.statistics.decisions import adjust_by_holm
from reports.statistics.estimates import CONFIDENCE_LEVEL
from reports.tables.claims import select_rapid
from reports.tables.columns import RUNTIME, list_accuracy_columns
from reports.tables.intervals import Comparison
from reports.tables.notes import collect_run_facts
from reports.tables.study_runs import list_studies
from reports.tables.table import format_interval


def compare_with_baseline(data: ReportData) -> dict[str, Any]:
    """Return the facts of the main report's first paragraphs: RAPID compared with the baseline.

    H is the number of optimizer steps that RAPID takes on one inference batch. On each benchmark,
    RAPID is compared at the H at which it is fastest in the paper, or at the smallest H of the runs
    if they lack that H.
    """
    runtimes, accuracies = [], []
    for benchmark_runs in data.runs_by_benchmark.values():
        rapid = select_rapid(benchmark_runs)
        accuracy = list_accuracy_columns(data.params, benchmark_runs.benchmark)[0]
        runtimes.append(Comparison(benchmark_runs, RUNTIME, rapid))
        accuracies.append(Comparison(benchmark_runs, accuracy, rapid))
    run_facts = collect_run_facts(data.frame)
    return {key: run_facts[key] for key in ("machines", "trained", "disturbed")} | {
        "runtimes": _describe_estimates(runtimes),
        "no_runtimes": _list_benchmarks_without_estimate(runtimes),
        "accuracies": _describe_estimates(accuracies),
        "no_accuracies": _list_benchmarks_without_estimate(accuracies),
        "metrics": list(dict.fromkeys(comparison.column.title for comparison in accuracies)),
        "tested_count": len(_list_p_values(accuracies)),
        "significant_benchmarks": [
            comparison.runs.label
            for comparison in accuracies
            if comparison.p is not None and comparison.p <= 1 - CONFIDENCE_LEVEL
        ],
    }


def compare_variants(data: ReportData) -> dict[str, Any]:
    """Return the facts of the first paragraphs of the report on the studies (ablations).

    Each variant of a study is compared with the study's first variant.
    """
    comparisons = {}  # by the title of the study and the label of the variant
    for study in list_studies(data):
        accuracy = list_accuracy_columns(data.params, study.runs.benchmark)[0]
        for variant in study.runs.algorithms[1:]:
            comparison = Comparison(study.runs, accuracy, variant, study.reference)
            comparisons[study.title, study.label_variant(variant)] = comparison
    p_values = _list_p_values(comparisons.values())
    differences = {
        key: comparison.estimate.value
        for key, comparison in comparisons.items()
        if comparison.estimate
    }
    largest = max(differences, key=lambda key: abs(differences[key]), default=None)
    return {
        "variant_count": len(comparisons),
        "tested_count": len(p_values),
        "significant_count": (p_values <= 1 - CONFIDENCE_LEVEL).sum(),
        "significant_adjusted_count": (adjust_by_holm(p_values) <= 1 - CONFIDENCE_LEVEL).sum(),
        "largest": largest and (*largest, _format_estimate(comparisons[largest])),
    }


def _list_p_values(comparisons: Iterable[Comparison]) -> np.ndarray:
    """Return the p values of the comparisons that have one."""
    return np.array([comparison.p for comparison in comparisons if comparison.p is not None])


def _list_benchmarks_without_estimate(comparisons: Iterable[Comparison]) -> list[str]:
    """Return the labels of the benchmarks without an estimate."""
    return [comparison.runs.label for comparison in comparisons if not comparison.estimate]


def _describe_estimates(comparisons: Iterable[Comparison]) -> list[str]:
    """Return each estimate with benchmark and H: 0.60 [0.49, 0.73] on MBPP+ (made) with H=8."""
    return [
        f"{_format_estimate(comparison)} on {comparison.runs.label} "
        f"with {labels.h_label(comparison.ours)}"
        for comparison in comparisons
        if comparison.estimate
    ]


def _format_estimate(comparison: Comparison) -> str:
    """Return an estimate with its interval, joined by no-break spaces: 0.60 [0.49, 0.73]."""
    show, estimate = comparison.column.paired.show, comparison.estimate
    bounds = format_interval(show, estimate).replace(" ", NO_BREAK)
    text = show(estimate.value)
    return f"{text}{NO_BREAK}{bounds}" if bounds else f"{text} (one pair of runs, no interval)"
