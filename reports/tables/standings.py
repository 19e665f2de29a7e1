"""The ranks of the arena's algorithms, and the table of a field, which compares all with PG.

`reports.outcomes` describes the arena, its fields and its end points. The keys of a field's `rates`
(learning rates) are its algorithms.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from rapid.algorithms import PG
from rapid.config.arena import EndPoint
from reports import formats, labels
from reports.formats import Format
from reports.outcomes import METRIC, ClusteredOutcomes, FieldOutcomes, compute_mean_accuracies
from reports.statistics import pairs, resampled, times
from reports.statistics.estimates import Estimate
from reports.tables.layout import build_table, single_group
from reports.tables.notes import collect_run_facts, render_notes
from reports.tables.table import MISSING, NOT_APPLICABLE, Cell, Table, build_estimate_cell

REFERENCE = labels.algorithm(PG.name)
CENSORED = (
    "the interval of Wilcoxon's test ends at 0 or infinity, because some runs never reach the "
    "accuracy: this is the median ratio, with the interval of a sign test"
)


# Ranks --------------------------------------------------------------------------------------------


def describe_rank(outcomes: FieldOutcomes, name: str) -> str:
    """Return a sentence on the rank of an algorithm in a field."""
    names = rank_algorithms(outcomes)
    estimate = estimate_time_ratio(outcomes, name) if name != PG.name else Estimate(None)
    facts = {
        "benchmark": outcomes.label,
        "algorithm": labels.algorithm(name),
        "rank": names.index(name) + 1,
        "algorithms": len(names),
        "target_accuracy": format_target_accuracy(outcomes),
        "ratio": "" if estimate.value is None else formats.ratio(estimate.value),
        "is_median": estimate.reason == CENSORED,
        "baseline": REFERENCE,
    }
    return " ".join(render_notes(["rank"], facts))


def describe_new_ranks(fields: Sequence[FieldOutcomes]) -> str:
    """Return sentences on the ranks of new algorithms (`arena.only`) among the recorded ones."""
    return " ".join(
        f"{describe_rank(outcomes, name)} Its learning rate was set by the user, not tuned."
        for outcomes in fields
        for name in outcomes.data.params.arena.only
        if name != PG.name and name in outcomes.field.rates
    )


def estimate_time_ratio(outcomes: FieldOutcomes, name: str) -> Estimate:
    """Return the ratio of an algorithm's time until the target accuracy to PG's, paired by seed.

    Where the interval of Wilcoxon's test ends at 0 or infinity, it is the median ratio, with the
    interval of a sign test and with a reason.
    """
    ratio = outcomes.compare(name, PG.name, "seconds")
    if ratio.low is None or (ratio.low > 0 and ratio.high < math.inf):
        return ratio
    median = times.median_ratio(*outcomes.pair_seconds(name, PG.name))
    return replace(median, reason=CENSORED)


def rank_algorithms(outcomes: FieldOutcomes) -> list[str]:
    """Return the algorithms of a field, ordered by their median time to the target accuracy.

    If medians are equal (both infinite, for example), the more accurate algorithm comes first.
    Algorithms without runs are last.
    """

    def sort_key(name: str) -> tuple[float, float]:
        outcome = outcomes.outcomes[name]
        median = float(np.median(outcome.seconds)) if len(outcome.seconds) else np.inf
        accuracy = compute_mean_accuracies(outcome).mean() if len(outcome.accuracy) else -1.0
        return (median, -accuracy)

    return sorted(outcomes.field.rates, key=sort_key)


# All algorithms of a field ------------------------------------------------------------------------

# Returns the value of a column from the end points of a field and the name of an algorithm.
EstimateFunction = Callable[[FieldOutcomes, str], Estimate | None]


@dataclass(frozen=True)
class StandingColumn:
    """A column of a field's table.

    Args:
        title: {target} stands for the target accuracy in percent.
        show: prints the estimate.
        estimate: returns the value of an algorithm; None if it cannot be compared with PG, or, with
            `is_comparison=False`, if the value is not defined for the algorithm.
        is_comparison: whether the value compares an algorithm with PG. If so, PG has no value.
    """

    title: str
    show: Format
    estimate: EstimateFunction
    is_comparison: bool = True

    def build_cell(self, outcomes: FieldOutcomes, name: str) -> Cell:
        """Return the cell of an algorithm; a dash if there are fewer than two runs of it or PG."""
        if min(len(outcomes.outcomes[key].seconds) for key in (name, PG.name)) < 2:
            return Cell(MISSING, reason="fewer than two runs have a curve")
        if self.is_comparison and name == PG.name:
            return Cell(NOT_APPLICABLE)
        estimate = self.estimate(outcomes, name)
        if estimate is None and not self.is_comparison:
            return Cell(NOT_APPLICABLE)
        reason = estimate.reason if estimate else ""
        return build_estimate_cell(self.show, estimate, "no seed has runs of both", reason=reason)


def _compare_by(end_point: EndPoint) -> EstimateFunction:
    """Return the function that compares an algorithm with PG by an end point."""
    return lambda outcomes, name: outcomes.compare(name, PG.name, end_point)


def _average(metric: str) -> EstimateFunction:
    """Return the function that averages a metric over an algorithm's runs."""

    def estimate(outcomes: FieldOutcomes, name: str) -> Estimate | None:
        mean = outcomes.outcomes[name].runs[metric].mean()
        return None if np.isnan(mean) else Estimate(mean)

    return estimate


def _estimate_median_seconds(outcomes: FieldOutcomes, name: str) -> Estimate:
    outcome = outcomes.outcomes[name]
    hardware = set(outcome.runs.get("hardware", ())) - {""}  # a missing run has ""
    if len(hardware) > 1:
        return Estimate(None, reason=f"runs on {len(hardware)} kinds of hardware")
    return times.median_time(outcome.seconds)


def _estimate_accuracy(outcomes: FieldOutcomes, name: str) -> Estimate:
    return resampled.interquartile_mean(compute_mean_accuracies(outcomes.outcomes[name]))


def _estimate_probability_of_improvement(outcomes: FieldOutcomes, name: str) -> Estimate:
    both = (outcomes.outcomes[key] for key in (name, PG.name))
    return resampled.probability_of_improvement(*map(compute_mean_accuracies, both))


def _estimate_runtime_ratio(outcomes: FieldOutcomes, name: str) -> Estimate | None:
    return pairs.estimate_ratio(*outcomes.pair_runs(name, PG.name), "runtime")


def _format_seconds(seconds: float) -> str:
    """Return a median time as text. It is infinite if most runs never reach the target accuracy."""
    return "never" if np.isinf(seconds) else f"{seconds:.2f}"


STANDINGS = [
    StandingColumn(
        "Seconds to {target}%", _format_seconds, _estimate_median_seconds, is_comparison=False
    ),
    StandingColumn(f"Ratio to {REFERENCE}", formats.ratio, estimate_time_ratio),
    StandingColumn("Accuracy", formats.percent, _estimate_accuracy, is_comparison=False),
    StandingColumn(f"Difference to {REFERENCE}", formats.points, _compare_by("accuracy")),
    StandingColumn(f"P(above {REFERENCE})", formats.percent, _estimate_probability_of_improvement),
    StandingColumn("Difference in equal time", formats.points, _compare_by("accuracy_in_time")),
    StandingColumn(f"Runtime ratio to {REFERENCE}", formats.ratio, _estimate_runtime_ratio),
    StandingColumn("Clipped", formats.percent, _average("clip_fraction"), is_comparison=False),
    StandingColumn("Staleness", formats.staleness, _average("staleness"), is_comparison=False),
]


def _build_pass_at_column(k: int) -> StandingColumn:
    """Return the column of pass@k, which the record of an earlier arena does not have."""

    def estimate(outcomes: FieldOutcomes, name: str) -> Estimate | None:
        return outcomes.estimate_pass_at(name, k)

    return StandingColumn(f"Pass@{k}", formats.percent, estimate, is_comparison=False)


def build_standings_table(outcomes: FieldOutcomes, number: int) -> Table:
    """Return the table of a field: all algorithms, the fastest to the target accuracy first.

    `number` is the number of the table in the report.
    """
    pass_at = outcomes.data.params.benchmarks[outcomes.benchmark].pass_at
    # The column Accuracy has METRIC, which is pass@1.
    pass_at_columns = [_build_pass_at_column(k) for k in pass_at if f"pass@{k}" != METRIC]
    columns = {
        column.title.format(target=format_target_accuracy(outcomes)): partial(
            column.build_cell, outcomes
        )
        for column in [*STANDINGS, *pass_at_columns]
    }
    return build_table(
        "standings",
        outcomes.data,
        [[(labels.algorithm(name), name) for name in rank_algorithms(outcomes)]],
        single_group(columns),
        benchmarks=[outcomes.benchmark],
        number=number,
        target=_describe_target(outcomes),
        **count_runs({name: len(outcome.seconds) for name, outcome in outcomes.outcomes.items()}),
        **collect_cluster_facts([outcomes]),
        **collect_run_facts(outcomes.trained_runs),
    )


def collect_cluster_facts(fields: Sequence[FieldOutcomes]) -> dict[str, list[str]]:
    """Return the skeletons on each benchmark with clustered errors, for a note.

    `published` has the benchmarks without skeletons, although the parameters ask for clusters.
    """
    clustered = [outcomes for outcomes in fields if isinstance(outcomes, ClusteredOutcomes)]
    published = [
        outcomes.label
        for outcomes in fields
        if outcomes.data.params.arena.clustered
        and outcomes.data.problems[outcomes.benchmark].kind != "made"
    ]
    clusters = [
        f"{len(set(outcomes.skeletons.values()))} skeletons of {len(outcomes.skeletons)} problems "
        f"on {outcomes.label}"
        for outcomes in clustered
    ]
    return {"clusters": clusters, "published": published}


def format_target_accuracy(outcomes: FieldOutcomes) -> str:
    """Return the target accuracy in percent, without the sign; a dash if there are no runs yet."""
    target = outcomes.target_accuracy
    return MISSING if math.isnan(target) else f"{100 * target:g}"


def _describe_target(outcomes: FieldOutcomes) -> dict[str, str]:
    """Return facts about a computed target accuracy (`Target`); {} if the parameters set it."""
    target = outcomes.test_target if outcomes.field.reach is None else None
    if target is None or math.isnan(target.computed):
        return {}
    return {
        "start": formats.percent(target.start),
        "noise": MISSING if math.isnan(target.noise) else formats.percent(target.noise),
        "chance": MISSING
        if math.isnan(target.chance_of_computed)
        else formats.p_value(target.chance_of_computed),
        "gain_share": f"{outcomes.field.gain_share:.0%}",
        "snapshot_samples": str(outcomes.data.params.evaluation.snapshot_samples or ""),
    }


def count_runs(counts: Mapping[str, int]) -> dict[str, Any]:
    """Return the number of runs that most algorithms have, and the exceptions, for a note."""
    ((usual_count, _),) = Counter(counts.values()).most_common(1)
    return {
        "usual_count": usual_count,
        "other_counts": [
            f"{count} of {labels.algorithm(name)}"
            for name, count in counts.items()
            if count != usual_count
        ],
    }
