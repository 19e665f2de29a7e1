"""The tables of the arena: preregistered claims with verdicts, and all algorithms of each field.

The arena compares many algorithms, each with a tuned learning rate (docs/arena.md). A field of the
arena has the algorithms that are compared on one benchmark. All are compared with policy gradient,
PG (policy gradient). `reports.outcomes` computes the end points that are compared.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from rapid.algorithms import PG
from rapid.config.arena import Claim, Measure
from reports import formats, labels
from reports.formats import Format
from reports.measured import Measured
from reports.outcomes import (
    EQUAL,
    METRIC,
    FieldOutcomes,
    Outcome,
    by_run,
    compare,
    fields,
    keep_timed,
)
from reports.statistics import pairs, resampled, times
from reports.statistics.decisions import equivalence
from reports.statistics.estimates import LEVEL, Estimate
from reports.tables.claims import (
    FAILS,
    HOLDS,
    UNTESTED,
    Headline,
    Tests,
    count_verdicts,
    decide,
    locate,
    p_cell,
)
from reports.tables.layout import build_table, single_group
from reports.tables.notes import render_notes, run_facts
from reports.tables.table import MISSING, NOT_APPLICABLE, Cell, Table, estimate_cell
from reports.tables.target import describe_reach, describe_target

# By the end point that a claim is about: the format of its comparison.
FORMATS = {
    "seconds": formats.ratio, "accuracy": formats.points, "accuracy_in_time": formats.points,
}  # fmt: skip
# By end point and expected result: what stands between the two algorithms of a claim.
PHRASES = {
    ("seconds", "better"): "sooner than",
    ("accuracy", "better"): "better than",
    ("accuracy", "same"): "as good as",
    ("accuracy_in_time", "better"): "better in equal time than",
    ("accuracy_in_time", "same"): "as good in equal time as",
}
REFERENCE = labels.algorithm(PG.name)
UNDERPOWERED = ", underpowered"


# Claims -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ArenaVerdict:
    """A preregistered claim with its estimate and verdict.

    Args:
        p: adjusted for all tests of all claims. The null hypothesis is that there is no difference,
            or for a claim of equivalence that the difference is at least the margin.
        detectable: the smallest effect that the test detects with a power of 80 %, see
            `FieldOutcomes.compute_detectable`.
    """

    field: FieldOutcomes
    claim: Claim
    estimate: Estimate
    tests: Tests = ()
    p: float | None = None
    verdict: str = UNTESTED
    detectable: float | None = None

    @property
    def text(self) -> str:
        """The claim in words: RAPID (H=8) sooner than PG."""
        ours, reference = (labels.algorithm(name) for name in (self.claim.ours, self.claim.theirs))
        # "RAPID (H=8) better than with eta = 4" does not name the algorithm of a variant twice.
        reference = reference.replace(f"{ours}, ", "with ")
        return f"{ours} {PHRASES[self.claim.by, self.claim.expect]} {reference}"

    @property
    def decision(self) -> str:
        """The verdict, and whether a claim of equivalence is underpowered.

        It is if the margin is smaller than the smallest one that the test shows with a power of
        80 % for equal algorithms.
        """
        margin = self.field.measured.params.arena.margin
        is_equivalence = self.claim.expect == "same" and self.detectable is not None
        return self.verdict + UNDERPOWERED * (is_equivalence and self.detectable > margin)


def judge(of_fields: Sequence[FieldOutcomes]) -> list[ArenaVerdict]:
    """Return the verdict on each claim of the fields, with p adjusted for all of them together."""
    claims = []
    for outcomes in of_fields:
        for claim in outcomes.field.claims:
            estimate = outcomes.compare(claim.ours, claim.theirs, claim.by)
            tests = list_tests(claim, estimate, outcomes.measured.params.arena.margin)
            claims.append(ArenaVerdict(outcomes, claim, estimate, tests))
    alpha = (1 - LEVEL) / max(1, sum(len(judged.tests) for judged in claims))
    return [
        replace(
            judged,
            p=p,
            verdict=verdict,
            detectable=judged.field.compute_detectable(judged.claim, judged.estimate, alpha)
            if judged.tests
            else None,
        )
        for judged, (p, verdict) in zip(claims, decide([c.tests for c in claims]), strict=True)
    ]


def list_tests(claim: Claim, estimate: Estimate, margin: float) -> Tests:
    """Return the tests of a claim, each as its p and the verdict if that p is small.

    A claim of a difference has one test. A claim of equivalence has two: of equivalence, and of a
    difference. Without an interval there is no test.
    """
    if estimate.p_at is None:
        return []
    limit = "below" if claim.by == "seconds" else "above"
    p, verdict = locate(estimate, **{limit: EQUAL[claim.by]})
    if claim.expect == "better":
        return [(p, verdict)]
    return [(equivalence(estimate, margin), HOLDS), (p, FAILS)]


def claims(
    measured: Measured,
    verdicts: list[ArenaVerdict],
    name: str = "arena-claims",
    **facts: Any,
) -> list[Table]:
    """Return a table of claims for each benchmark; only the last has notes.

    Args:
        name: the name of the table in arena.yaml.
        facts: further variables of the table's texts.
    """
    columns = {
        "Estimate": lambda judged: estimate_cell(FORMATS[judged.claim.by], judged.estimate),
        "Median ratio": _median_ratio,
        "p": lambda judged: p_cell(judged.p),
        "Detectable": _detectable,
        "Verdict": lambda judged: Cell(judged.decision),
    }
    by_benchmark = group_by_benchmark(verdicts)
    return [
        build_table(
            name,
            measured,
            [[(judged.text, judged) for judged in rows]],
            single_group(columns),
            [benchmark],
            number,
            last=number == len(by_benchmark),
            margin=100 * measured.params.arena.margin,
            tests=sum(len(judged.tests) for judged in verdicts),
            **facts,
        )
        for number, (benchmark, rows) in enumerate(by_benchmark.items(), start=1)
    ]


def group_by_benchmark(verdicts: list[ArenaVerdict]) -> dict[str, list[ArenaVerdict]]:
    """Return the verdicts on each benchmark."""
    by_benchmark: dict[str, list[ArenaVerdict]] = {}
    for judged in verdicts:
        by_benchmark.setdefault(judged.field.benchmark, []).append(judged)
    return by_benchmark


def headlines(verdicts: list[ArenaVerdict]) -> list[Headline]:
    """Return the verdicts on each kind of claim, by benchmark: Sooner on MATH (made)."""
    by_kind: dict[str, list[str]] = {}
    for judged in verdicts:
        phrase, _, _ = PHRASES[judged.claim.by, judged.claim.expect].rpartition(" ")
        kind = f"{phrase.capitalize()} on {judged.field.label}"
        by_kind.setdefault(kind, []).append(judged.verdict)
    return [Headline(text, of_kind) for text, of_kind in by_kind.items()]


def _median_ratio(judged: ArenaVerdict) -> Cell:
    if judged.claim.by != "seconds":
        return Cell(NOT_APPLICABLE)
    pairs_of_seconds = judged.field.pair_seconds(judged.claim.ours, judged.claim.theirs)
    return estimate_cell(formats.ratio, times.median_ratio(*pairs_of_seconds))


def _detectable(verdict: ArenaVerdict) -> Cell:
    if verdict.detectable is None:
        return Cell(MISSING)
    return Cell(FORMATS[verdict.claim.by](verdict.detectable).lstrip("+"))


# Ranking ------------------------------------------------------------------------------------------


def summarize(measured: Measured, verdicts: list[ArenaVerdict]) -> str:
    """Return the report's first paragraph: the best algorithms, and how many claims hold."""
    sentences = []
    for outcomes in fields(measured):
        first = order(outcomes)[0]
        claimed = [claim.ours for claim in outcomes.field.claims[:1]]
        sentences += [
            describe_place(outcomes, name)
            for name in dict.fromkeys([first, *claimed])
            if len(outcomes.outcomes[name].seconds)  # skips algorithms without runs
        ]
    counts = count_verdicts(judged.verdict for judged in verdicts).values()
    facts = {
        "claims": len(verdicts),
        "counted": [text for text in counts if not text.startswith("0 ")],
    }
    return " ".join([*sentences, *render_notes(["arena-summary"], facts)])


def describe_place(outcomes: FieldOutcomes, name: str) -> str:
    """Return a sentence on the rank of an algorithm in a field."""
    names = order(outcomes)
    speed = outcomes.compare(name, PG.name, "seconds").value if name != PG.name else None
    facts = {
        "benchmark": outcomes.label,
        "algorithm": labels.algorithm(name),
        "place": names.index(name) + 1,
        "places": len(names),
        "reach": describe_reach(outcomes),
        "ratio": "" if speed is None else formats.ratio(speed),
        "baseline": REFERENCE,
    }
    return " ".join(render_notes(["place"], facts))


def describe_places(measured: Measured) -> str:
    """Return the ranks of new algorithms (`arena.only`) among those of an earlier arena."""
    return " ".join(
        f"{describe_place(outcomes, name)} Its learning rate was set by the user, not tuned."
        for outcomes in fields(measured)
        for name in measured.params.arena.only
        if name != PG.name and name in outcomes.field.rates
    )


def order(outcomes: FieldOutcomes) -> list[str]:
    """Return the algorithms of a field, ordered by their median time to the target accuracy.

    If medians are equal (both infinite, for example), the more accurate algorithm comes first.
    Algorithms without runs are last.
    """

    def key(name: str) -> tuple[float, float]:
        outcome = outcomes.outcomes[name]
        median = float(np.median(outcome.seconds)) if len(outcome.seconds) else np.inf
        accuracy = by_run(outcome).mean() if len(outcome.accuracy) else -1.0
        return (median, -accuracy)

    return sorted(outcomes.field.rates, key=key)


# All algorithms of a field ------------------------------------------------------------------------


@dataclass(frozen=True)
class StandingColumn:
    """A column of a field's table.

    Args:
        title: {reach} stands for the target accuracy in percent.
        show: prints the estimate.
        estimate: returns the column's value from the end points of an algorithm and of PG.
        is_compared: whether the value compares an algorithm with PG; PG itself then has no value.
    """

    title: str
    show: Format
    estimate: Callable[[Outcome, Outcome], Estimate | None]
    is_compared: bool = True

    def cell(self, outcomes: FieldOutcomes, name: str) -> Cell:
        """Return the cell of an algorithm; a dash if it or PG has fewer than two runs."""
        outcome, reference = outcomes.outcomes[name], outcomes.outcomes[PG.name]
        if len(outcome.seconds) < 2 or len(reference.seconds) < 2:
            return Cell(MISSING, reason="fewer than two runs have a curve")
        if self.is_compared and name == PG.name:
            return Cell(NOT_APPLICABLE)
        estimate = self.estimate(outcome, reference)
        if estimate is None and not self.is_compared:
            return Cell(NOT_APPLICABLE)
        return estimate_cell(self.show, estimate, "no seed has runs of both")


def _compare_by(measure: Measure) -> Callable[[Outcome, Outcome], Estimate]:
    return lambda outcome, reference: compare(outcome, reference, measure)


def _mean_of(metric: str) -> Callable[[Outcome, Outcome], Estimate | None]:
    def estimate(outcome: Outcome, _: Outcome) -> Estimate | None:
        mean = outcome.runs[metric].mean()
        return None if np.isnan(mean) else Estimate(mean)

    return estimate


def _median_seconds(outcome: Outcome) -> Estimate:
    machines = set(outcome.runs.get("hardware", ())) - {""}  # "" if a run is missing
    if len(machines) > 1:
        return Estimate(None, reason=f"runs on {len(machines)} kinds of hardware")
    return times.median(outcome.seconds)


def _divide_runtimes(ours: Outcome, reference: Outcome) -> Estimate | None:
    shared = pd.Index(ours.runs.seed).intersection(reference.runs.seed)
    seeds = keep_timed(shared, ours, reference)
    return pairs.ratio(ours.runs[ours.runs.seed.isin(seeds)], reference.runs, "runtime")


def _show_seconds(value: float) -> str:  # a median; infinite if most runs never reach the accuracy
    return "never" if np.isinf(value) else f"{value:.2f}"


STANDINGS = [
    StandingColumn("Seconds to {reach}%", _show_seconds, lambda a, b: _median_seconds(a), False),
    StandingColumn(f"Ratio to {REFERENCE}", formats.ratio, _compare_by("seconds")),
    StandingColumn(
        "Accuracy", formats.percent, lambda a, b: resampled.interquartile_mean(by_run(a)), False
    ),
    StandingColumn(f"Difference to {REFERENCE}", formats.points, _compare_by("accuracy")),
    StandingColumn(
        f"P(above {REFERENCE})",
        formats.percent,
        lambda a, b: resampled.improvement(by_run(a), by_run(b)),
    ),
    StandingColumn("Difference in equal time", formats.points, _compare_by("accuracy_in_time")),
    StandingColumn(
        f"Runtime ratio to {REFERENCE}",
        formats.ratio,
        _divide_runtimes,
    ),
    StandingColumn("Clipped", formats.percent, _mean_of("clip_fraction"), False),
    StandingColumn("Staleness", formats.staleness, _mean_of("staleness"), False),
]


def _show_pass_at(k: int) -> StandingColumn:
    """Return the column of pass@k; records of an earlier arena have none."""

    def estimate(outcome: Outcome, _: Outcome) -> Estimate | None:
        return pairs.accuracy(outcome.runs, f"pass@{k}") if "scores" in outcome.runs else None

    return StandingColumn(f"Pass@{k}", formats.percent, estimate, False)


def standings(outcomes: FieldOutcomes, number: int) -> Table:
    """Return the table of a field: all algorithms, the fastest to the target accuracy first."""
    field = outcomes.field
    pass_at = outcomes.measured.params.benchmarks[outcomes.benchmark].pass_at
    more = [_show_pass_at(k) for k in pass_at if f"pass@{k}" != METRIC]
    columns = {
        column.title.format(reach=describe_reach(outcomes)): partial(column.cell, outcomes)
        for column in [*STANDINGS, *more]
    }
    counts = {name: len(outcome.seconds) for name, outcome in outcomes.outcomes.items()}
    # A note states the number of seeds of most algorithms, and the exceptions.
    usual = Counter(counts.values()).most_common(1)[0][0]
    return build_table(
        "standings",
        outcomes.measured,
        [[(labels.algorithm(name), name) for name in order(outcomes)]],
        single_group(columns),
        [outcomes.benchmark],
        number,
        usual_count=usual,
        other_counts=[
            f"{n} of {labels.algorithm(name)}" for name, n in counts.items() if n != usual
        ],
        target=describe_target(outcomes),
        **run_facts(outcomes.runs(field.run_name(PG.name))),
    )
