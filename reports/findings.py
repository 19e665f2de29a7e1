"""The numbers in the first sentences of a report, for the templates in contents.yaml.

They are the same estimates as in the tables, so that sentences and tables agree.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from reports import labels
from reports.measured import Measured
from reports.statistics.decisions import holm
from reports.statistics.estimates import LEVEL
from reports.tables.claims import select_rapid
from reports.tables.columns import RUNTIME, accuracy
from reports.tables.intervals import Comparison
from reports.tables.notes import run_facts
from reports.tables.study_runs import studies
from reports.tables.table import interval

NO_BREAK = "\N{NO-BREAK SPACE}"


def compare_with_baseline(measured: Measured) -> dict[str, Any]:
    """Return the facts of the main report's first paragraphs: RAPID compared with the baseline.

    H is the number of optimizer steps that RAPID takes on one inference batch. On each benchmark,
    RAPID is compared at the H at which it is fastest in the paper.
    """
    pairs = [(contest, select_rapid(contest)) for contest in measured.contests.values()]
    runtimes = [Comparison(contest, RUNTIME, rapid) for contest, rapid in pairs]
    accuracies = [
        Comparison(contest, accuracy(measured.params, contest.benchmark)[0], rapid)
        for contest, rapid in pairs
    ]
    origin = run_facts(measured.frame)
    return {key: origin[key] for key in ("machines", "trained", "disturbed")} | {
        "runtimes": _describe_known(runtimes),
        "no_runtimes": _list_unknown(runtimes),
        "accuracies": _describe_known(accuracies),
        "no_accuracies": _list_unknown(accuracies),
        "metrics": list(dict.fromkeys(comparison.column.title for comparison in accuracies)),
        "tested": len(_list_ps(accuracies)),
        "significant": [
            comparison.contest.label
            for comparison in accuracies
            if comparison.p is not None and comparison.p <= 1 - LEVEL
        ],
    }


def compare_variants(measured: Measured) -> dict[str, Any]:
    """Return the facts of the first paragraphs of the report on the studies (ablations).

    Each variant of a study is compared with the study's first variant.
    """
    comparisons = {
        (study.title, study.label(variant)): Comparison(
            study.contest,
            accuracy(measured.params, study.contest.benchmark)[0],
            variant,
            study.reference,
        )
        for study in studies(measured)
        for variant in study.contest.algorithms[1:]
    }
    ps = _list_ps(comparisons.values())
    estimates = {names: pair.estimate for names, pair in comparisons.items() if pair.estimate}
    largest = max(estimates, key=lambda names: abs(estimates[names].value), default=None)
    return {
        "variants": len(comparisons),
        "tested": len(ps),
        "significant": (ps <= 1 - LEVEL).sum(),
        "significant_together": (holm(ps) <= 1 - LEVEL).sum(),
        "largest": largest and (*largest, _show_estimate(comparisons[largest])),
    }


def _list_ps(comparisons: Iterable[Comparison]) -> np.ndarray:
    return np.array([comparison.p for comparison in comparisons if comparison.p is not None])


def _list_unknown(comparisons: Iterable[Comparison]) -> list[str]:
    """Return the labels of the benchmarks without an estimate."""
    return [comparison.contest.label for comparison in comparisons if not comparison.estimate]


def _describe_known(comparisons: Iterable[Comparison]) -> list[str]:
    """Return each estimate with benchmark and H: 0.60 [0.49, 0.73] on MBPP+ (made) with H=8."""
    return [
        f"{_show_estimate(comparison)} on {comparison.contest.label} "
        f"with {labels.ratio(comparison.ours)}"
        for comparison in comparisons
        if comparison.estimate
    ]


def _show_estimate(comparison: Comparison) -> str:
    """Return an estimate with its interval, joined by no-break spaces: 0.60 [0.49, 0.73]."""
    show, estimate = comparison.column.paired.show, comparison.estimate
    bounds = interval(show, estimate).replace(" ", NO_BREAK)
    text = show(estimate.value)
    return f"{text}{NO_BREAK}{bounds}" if bounds else f"{text} (one pair of runs, no interval)"
