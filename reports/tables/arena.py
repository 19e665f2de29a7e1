"""The tables of the arena's preregistered claims, with their verdicts.

A claim compares two algorithms by an end point: the time to a target accuracy, the accuracy after
equally many completions, or the accuracy in equal time. `reports.outcomes` describes the arena and
its fields, and computes the end points.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rapid.config.arena import Claim
from reports import formats, labels
from reports.outcomes import NO_EFFECT, FieldOutcomes
from reports.report_data import ReportData
from reports.statistics import times
from reports.statistics.decisions import compute_equivalence_p
from reports.statistics.estimates import CONFIDENCE_LEVEL, Estimate
from reports.tables.claims import (
    FAILS,
    HOLDS,
    UNTESTED,
    Headline,
    Tests,
    build_p_cell,
    build_test,
    count_verdicts,
    decide_claims,
)
from reports.tables.layout import build_table, single_group
from reports.tables.notes import render_notes
from reports.tables.standings import collect_cluster_facts, describe_rank, rank_algorithms
from reports.tables.table import MISSING, NOT_APPLICABLE, Cell, Table, build_estimate_cell

# End point of a claim -> the format of its comparison.
FORMATS = {
    "seconds": formats.ratio, "accuracy": formats.points, "accuracy_in_time": formats.points,
}  # fmt: skip
# End point and expected result of a claim -> the words between its two algorithms.
PHRASES = {
    ("seconds", "better"): "sooner than",
    ("accuracy", "better"): "better than",
    ("accuracy", "same"): "as good as",
    ("accuracy_in_time", "better"): "better in equal time than",
    ("accuracy_in_time", "same"): "as good in equal time as",
}
UNDERPOWERED = ", underpowered"
REACHED_BY_CHANCE = "runs that learn nothing would often reach the target accuracy (see the notes)"


@dataclass(frozen=True)
class JudgedClaim:
    """A preregistered claim with its estimate and verdict.

    Args:
        field: the algorithms that compete on the claim's benchmark, with their end points.
        estimate: the comparison of the claim's two algorithms.
        p: adjusted for all tests of all claims. The null hypothesis is that there is no difference,
            or for a claim of equivalence that the difference is at least the margin.
        detectable: the smallest effect that the test detects with a power of 80 %, see
            `FieldOutcomes.compute_detectable_effect`.
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
        # The algorithm of a variant is not named twice: RAPID (H=8) better than with eta = 4.
        reference = reference.replace(f"{ours}, ", "with ")
        return f"{ours} {PHRASES[self.claim.by, self.claim.expect]} {reference}"

    @property
    def decision(self) -> str:
        """The verdict, and whether a claim of equivalence is underpowered.

        It is underpowered if, for two equal algorithms, the test shows equivalence within the
        margin with a power below 80 %.
        """
        margin = self.field.data.params.arena.margin
        is_equivalence = self.claim.expect == "same" and self.detectable is not None
        return self.verdict + UNDERPOWERED * (is_equivalence and self.detectable > margin)


def judge_claims(fields: Sequence[FieldOutcomes]) -> list[JudgedClaim]:
    """Return the verdict on each claim of the fields, with p adjusted for all of them together."""
    undecided = []
    for outcomes in fields:
        for claim in outcomes.field.claims:  # `outcomes.field` is a section of params.yaml
            estimate = outcomes.compare(claim.ours, claim.theirs, claim.by)
            if claim.by == "seconds" and outcomes.is_target_reached_by_chance:
                estimate = Estimate(None, reason=REACHED_BY_CHANCE)
            tests = list_tests(claim, estimate, outcomes.data.params.arena.margin)
            undecided.append(JudgedClaim(outcomes, claim, estimate, tests))
    test_count = sum(len(judged_claim.tests) for judged_claim in undecided)
    # The level at which Holm's method tests the smallest p. It tests the others at higher levels.
    alpha = (1 - CONFIDENCE_LEVEL) / max(1, test_count)
    judged_claims = decide_claims(undecided)
    for position, judged in enumerate(judged_claims):
        if judged.tests:
            compute = judged.field.compute_detectable_effect
            detectable = compute(judged.claim, judged.estimate, alpha)
            judged_claims[position] = replace(judged, detectable=detectable)
    return judged_claims


def list_tests(claim: Claim, estimate: Estimate, margin: float) -> Tests:
    """Return the tests of a claim, each as its p and the verdict if p is small.

    A claim of a difference has one test. A claim of equivalence has two: of equivalence, and of a
    difference. Without an interval there is no test.
    """
    if estimate.p_at is None:
        return []
    better_side = "below" if claim.by == "seconds" else "above"
    p, verdict = build_test(estimate, **{better_side: NO_EFFECT[claim.by]})
    if claim.expect == "better":
        return [(p, verdict)]
    return [(compute_equivalence_p(estimate, margin), HOLDS), (p, FAILS)]


def build_claims_tables(
    data: ReportData,
    judged_claims: list[JudgedClaim],
    name: str = "arena-claims",
    **facts: Any,
) -> list[Table]:
    """Return a table of claims for each benchmark; only the last has notes."""
    columns = {
        "Estimate": build_claim_estimate_cell,
        "Median ratio": _build_median_ratio_cell,
        "p": lambda judged_claim: build_p_cell(judged_claim.p),
        "Detectable": _build_detectable_cell,
        "Verdict": lambda judged_claim: Cell(judged_claim.decision),
    }
    by_benchmark = group_by_benchmark(judged_claims)
    facts = collect_cluster_facts([rows[0].field for rows in by_benchmark.values()]) | facts
    return [
        build_table(
            name,
            data,
            [[(judged_claim.text, judged_claim) for judged_claim in rows]],
            single_group(columns),
            [benchmark],
            number,
            last=number == len(by_benchmark),
            margin=100 * data.params.arena.margin,
            end_points={judged_claim.claim.by for judged_claim in judged_claims},
            equivalence=any(judged_claim.claim.expect == "same" for judged_claim in judged_claims),
            tests=sum(len(judged_claim.tests) for judged_claim in judged_claims),
            **facts,
        )
        for number, (benchmark, rows) in enumerate(by_benchmark.items(), start=1)
    ]


def group_by_benchmark(judged_claims: list[JudgedClaim]) -> dict[str, list[JudgedClaim]]:
    """Return the claims on each benchmark."""
    by_benchmark: dict[str, list[JudgedClaim]] = {}
    for judged_claim in judged_claims:
        by_benchmark.setdefault(judged_claim.field.benchmark, []).append(judged_claim)
    return by_benchmark


def build_headlines(judged_claims: list[JudgedClaim]) -> list[Headline]:
    """Return the verdicts on each kind of claim, by benchmark: Sooner on MATH (made)."""
    verdicts: dict[str, list[str]] = {}
    for judged_claim in judged_claims:
        claim = judged_claim.claim
        # The phrase without its last word: as good as -> as good.
        phrase, _, _ = PHRASES[claim.by, claim.expect].rpartition(" ")
        kind = f"{phrase.capitalize()} on {judged_claim.field.label}"
        verdicts.setdefault(kind, []).append(judged_claim.verdict)
    return [Headline(kind, verdicts_of_kind) for kind, verdicts_of_kind in verdicts.items()]


def build_claim_estimate_cell(judged_claim: JudgedClaim) -> Cell:
    """Return a cell with the comparison of the claim's algorithms, and its interval."""
    return build_estimate_cell(FORMATS[judged_claim.claim.by], judged_claim.estimate)


def _build_median_ratio_cell(judged_claim: JudgedClaim) -> Cell:
    claim = judged_claim.claim
    if claim.by != "seconds":
        return Cell(NOT_APPLICABLE)
    seconds = judged_claim.field.pair_seconds(claim.ours, claim.theirs)
    return build_estimate_cell(formats.ratio, times.median_ratio(*seconds))


def _build_detectable_cell(judged_claim: JudgedClaim) -> Cell:
    if judged_claim.detectable is None:
        return Cell(MISSING)
    return Cell(FORMATS[judged_claim.claim.by](judged_claim.detectable).lstrip("+"))


def summarize(fields: Sequence[FieldOutcomes], judged_claims: list[JudgedClaim]) -> str:
    """Return the report's first paragraph: ranks of algorithms, and the number of each verdict.

    The algorithms are the best of each field, and the one that the field's first claim is about.
    """
    sentences = []
    for outcomes in fields:
        best = rank_algorithms(outcomes)[0]
        claimed = [claim.ours for claim in outcomes.field.claims[:1]]
        sentences += [
            describe_rank(outcomes, name)
            for name in dict.fromkeys([best, *claimed])
            if len(outcomes.outcomes[name].seconds)  # skips algorithms without runs
        ]
    counts = count_verdicts(judged_claim.verdict for judged_claim in judged_claims).values()
    facts = {
        "claims": len(judged_claims),
        "counts": [text for text in counts if not text.startswith("0 ")],
    }
    return " ".join([*sentences, *render_notes(["arena-summary"], facts)])
