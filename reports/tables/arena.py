"""The arena as tables: the claims and whether they hold, and every algorithm of each field."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from rapid.algorithms import PLAIN, RAPID
from rapid.algorithms.names import parse
from rapid.config.arena import Claim
from rapid.text import duration, listing
from reports import formats, labels
from reports.measured import Measured
from reports.outcomes import EQUAL, FieldOutcomes, by_run, fields
from reports.statistics import resampled, times
from reports.statistics.decisions import equivalence, holm
from reports.statistics.estimates import LEVEL, Estimate
from reports.statistics.pairs import ratio
from reports.tables import notes
from reports.tables.claims import FAILS, HOLDS, OPEN, UNTESTED
from reports.tables.table import (
    MISSING,
    NOT_APPLICABLE,
    Cell,
    Group,
    Row,
    Table,
    estimate_cell,
)

SHOWN = {
    "seconds": formats.ratio, "accuracy": formats.points, "accuracy_in_time": formats.points,
}  # fmt: skip
SAID = {
    ("seconds", "better"): "sooner than",
    ("accuracy", "better"): "better than",
    ("accuracy", "same"): "as good as",
    ("accuracy_in_time", "better"): "better in equal time than",
    ("accuracy_in_time", "same"): "as good in equal time as",
}
REFERENCE = labels.algorithm(PLAIN.name)


@dataclass(frozen=True)
class Verdict:
    """A claim with what was found, and what that means among all claims."""

    field: FieldOutcomes
    claim: Claim
    found: Estimate
    p: float | None  # adjusted; of no difference, or of one beyond the margin
    verdict: str
    seen: float | None  # the least difference, or the ratio nearest to 1, that would be seen

    @property
    def text(self) -> str:
        """The claim in words."""
        ours, theirs = (labels.algorithm(name) for name in (self.claim.ours, self.claim.theirs))
        theirs = theirs.replace(f"{ours}, ", "with ")
        return f"{ours} {SAID[self.claim.by, self.claim.expect]} {theirs}"


def judge(measured: Measured) -> list[Verdict]:
    """Return the verdict on each claim of all fields."""
    found = [
        (field, claim, field.compare(claim.ours, claim.theirs, claim.by))
        for field in fields(measured)
        for claim in field.field.claims
    ]
    decided, tests = decide([pair for _, *pair in found], measured.params.arena.margin)
    verdicts = []
    for (field, claim, one), (p, word) in zip(found, decided, strict=True):
        seen = None if p is None else field.seen(claim, one, (1 - LEVEL) / tests)
        verdicts.append(Verdict(field, claim, one, p, word, seen))
    return verdicts


def decide(
    claims: list[tuple[Claim, Estimate]], margin: float
) -> tuple[list[tuple[float | None, str]], int]:
    """Return p and verdict of each claim, and how many tests they are, adjusted by Holm's method.

    A claim of more has one test: where its p is small, it holds if its sign is right, else fails. A
    claim of the same has two: it holds if two one-sided tests say so, else fails if there is a
    difference. What neither holds nor fails is open. The p is that of the test which decided.
    """
    tested = [(claim, one) for claim, one in claims if one.p_at is not None]
    differ = [one.p_at(EQUAL[claim.by]) for claim, one in tested]
    same = [equivalence(one, margin) for claim, one in tested if claim.expect == "same"]
    adjusted = [float(p) for p in holm([*differ, *same])]
    of_difference, of_margin = iter(adjusted[: len(differ)]), iter(adjusted[len(differ) :])
    decided: list[tuple[float | None, str]] = []
    for claim, one in claims:
        if one.p_at is None:
            decided.append((None, UNTESTED))
            continue
        p = next(of_difference)
        is_right = (one.value > EQUAL[claim.by]) != (claim.by == "seconds")
        word = HOLDS if is_right else FAILS
        if claim.expect == "same":
            beyond, word = next(of_margin), FAILS
            if beyond <= 1 - LEVEL or p > 1 - LEVEL:
                p, word = beyond, HOLDS
        decided.append((p, word if p <= 1 - LEVEL else OPEN))
    return decided, len(adjusted)


def summary(measured: Measured, verdicts: list[Verdict]) -> str:
    """Return in a few sentences who is first, and what came of the claims."""
    said = []
    for one in fields(measured):
        first, *_ = names = order(one)
        ours = one.field.claims[0].ours if one.field.claims else first
        for name in dict.fromkeys([first, ours]):
            if len(one.outcomes[name].seconds):  # else nobody has run, or not this one
                said.append(place(one, names, name))
    counts = Counter(one.verdict for one in verdicts)
    words = {HOLDS: "hold", FAILS: "fail", OPEN: "are open", UNTESTED: "are not tested"}
    counted = listing([f"{counts[word]} {text}" for word, text in words.items() if counts[word]])
    parts = Counter(one.verdict for one in verdicts if _is_without_a_part(one.claim))
    if parts:
        said.append(
            f"Comparisons with RAPID without one of its parts: {parts[HOLDS]} miss it, "
            f"{parts[FAILS]} are better without it, {parts[OPEN]} open, {parts[UNTESTED]} untested."
        )
    return " ".join([*said, f"Of {len(verdicts)} claims written down beforehand {counted}."])


def _is_without_a_part(claim: Claim) -> bool:
    """Return whether theirs is ours with further changes, or PG, which is RAPID without weights."""
    ours, theirs = (parse(name) for name in (claim.ours, claim.theirs))
    if claim.by != "accuracy" or claim.expect != "better" or ours.H != theirs.H:
        return False
    left, right = ({*one.name.split(",")[1:]} for one in (ours, theirs))
    without = (ours.algorithm, theirs.algorithm) == (RAPID, PLAIN) and left == right
    return without or (ours.algorithm == theirs.algorithm and left < right)


def place(one: FieldOutcomes, names: list[str], name: str) -> str:
    """Return which place an algorithm has among all, in a sentence."""
    text = (
        f"On {one.label} {labels.algorithm(name)} is number "
        f"{names.index(name) + 1} of {len(names)} by seconds to {100 * one.field.reach:g}%"
    )
    found = one.compare(name, PLAIN.name, "seconds")
    if name == PLAIN.name or found.value is None:
        return f"{text}."
    return f"{text}: {formats.ratio(found.value)} of {REFERENCE}'s."


def claims(measured: Measured, verdicts: list[Verdict]) -> list[Table]:
    """Return a table of claims for each benchmark; the notes are below the last."""
    by_field: dict[str, list[Row]] = {}
    for one in verdicts:
        seen = MISSING if one.seen is None else SHOWN[one.claim.by](one.seen).lstrip("+")
        cells = [
            estimate_cell(SHOWN[one.claim.by], one.found),
            Cell(MISSING if one.p is None else formats.p_value(one.p)),
            Cell(seen),
            Cell(one.verdict),
        ]
        by_field.setdefault(one.field.benchmark, []).append(Row(one.text, [cells]))
    margin = 100 * measured.params.arena.margin
    tests = sum(1 + (one.claim.expect == "same") for one in verdicts if one.p is not None)
    explained = [
        "Sooner: the ratio of seconds until an accuracy is reached, by Wilcoxon's signed ranks. "
        "Better: the paired difference of accuracy in points, with seeds and problems random. "
        f"As good: two one-sided tests of a difference of {margin:g} points. Intervals "
        "hold 95 % and are not adjusted.",
        f"p: adjusted for all {tests} tests of all claims as one family, by Holm's method. As good "
        "has two tests: p is of the margin, or, where the claim fails, of the difference. What "
        "neither holds nor fails is open.",
        "In equal time, and where DAPO's accuracy is read on the way, there is one score for each "
        "seed: such intervals and p are for these test problems.",
        "Seen from: the difference in points, or the ratio below 1, that such a test of this "
        "family would have seen with a power of 80 %; of as good, the margin that such tests would "
        "have shown if there were no difference.",
    ]
    return [
        Table(
            number=number,
            label=f"tab:arena-claims-{benchmark}",
            caption=f"The claims on {measured.label(benchmark)}, written down before the runs.",
            stub="Claim",
            groups=[Group("", ["Found", "p", "Seen from", "Verdict"])],
            rows=rows,
            notes=explained if number == len(by_field) else [],
            problems=[measured.problems[benchmark]],
        )
        for number, (benchmark, rows) in enumerate(by_field.items(), start=1)
    ]


def standings(outcomes: FieldOutcomes, number: int) -> Table:
    """Return the table of a field: its algorithms, those that reach the accuracy first on top."""
    field = outcomes.field
    plain = outcomes.runs(field.entry(PLAIN.name))
    group = [
        f"Seconds to {100 * field.reach:g}%", f"over {REFERENCE}", "Accuracy",
        f"less {REFERENCE}", f"P(above {REFERENCE})", "in equal time", f"Time over {REFERENCE}",
        "Clipped", "Staleness",
    ]  # fmt: skip
    return Table(
        number=number,
        label=f"tab:arena-{outcomes.benchmark}",
        caption=f"The field on {outcomes.label}, by the median of seconds to the accuracy.",
        stub="Algorithm",
        groups=[Group("", group)],
        rows=[Row(labels.algorithm(name), [_standing(outcomes, name)]) for name in order(outcomes)],
        notes=[
            f"Runs: {_counted(outcomes)}. Seconds: median, a run that never gets there counts "
            f"as infinite. Accuracy: interquartile mean over seeds after as many completions as "
            f"{REFERENCE} samples. Differences in points and ratios of seconds are paired by seed. "
            f"P: the probability that a run is more accurate than one of {REFERENCE}. In equal "
            f"time: less {REFERENCE}, in points, after half of {REFERENCE}'s mean time. Intervals "
            "hold 95 % and are not adjusted: they describe. Clipped: share of weights, or ratios. "
            "Staleness: mean of the clipped log weight's absolute value, in nats.",
            notes.evaluation(plain),
            *notes.provenance(plain),
        ],
        problems=[outcomes.measured.problems[outcomes.benchmark]],
    )


def places(measured: Measured) -> str:
    """Return which places the algorithms have that were run against those on record."""
    return " ".join(
        f"{place(one, order(one), name)} Its learning rate was given, not tuned."
        for one in fields(measured)
        for name in measured.params.arena.only
        if name != PLAIN.name and name in one.field.rates
    )


def _counted(outcomes: FieldOutcomes) -> str:
    """Return how many runs were found of the algorithms."""
    counts = {name: len(one.seconds) for name, one in outcomes.outcomes.items()}
    usual = Counter(counts.values()).most_common(1)[0][0]
    more = [f"{n} of {labels.algorithm(name)}" for name, n in counts.items() if n != usual]
    return f"{usual} of each" + (f", but {listing(more)}" if more else "")


def order(outcomes: FieldOutcomes) -> list[str]:
    """Return the algorithms of a field by their median of seconds; those without runs at the end.

    Where medians are equal, as where no run gets there, the more accurate come first.
    """

    def key(name: str) -> tuple[float, float]:
        found = outcomes.outcomes[name]
        median = float(np.median(found.seconds)) if len(found.seconds) else np.inf
        accuracy = by_run(found).mean() if len(found.accuracy) else -1.0
        return (median, -accuracy)

    return sorted(outcomes.field.rates, key=key)


def _standing(outcomes: FieldOutcomes, name: str) -> list[Cell]:
    one, reference = outcomes.outcomes[name], outcomes.outcomes[PLAIN.name]
    if len(one.seconds) < 2 or len(reference.seconds) < 2:
        return [Cell(MISSING, reason="fewer than two runs have a curve")] * 9
    first, *against = [Cell(NOT_APPLICABLE)] * 5
    if name != PLAIN.name:
        found = {measure: outcomes.compare(name, PLAIN.name, measure) for measure in EQUAL}
        above = resampled.improvement(by_run(one), by_run(reference))
        time = ratio(one.runs, reference.runs, "runtime")
        first = estimate_cell(formats.ratio, found["seconds"])
        against = [
            estimate_cell(formats.points, found["accuracy"]),
            estimate_cell(formats.percent, above),
            estimate_cell(formats.points, found["accuracy_in_time"]),
            estimate_cell(formats.ratio, time, "no seed has both"),
        ]
    weights = [
        Cell(NOT_APPLICABLE) if np.isnan(value := one.runs[metric].mean()) else Cell(show(value))
        for metric, show in (("clip_fraction", formats.percent), ("staleness", formats.staleness))
    ]
    accuracy = estimate_cell(formats.percent, resampled.interquartile_mean(by_run(one)))
    seconds = estimate_cell(_seconds, times.median(one.seconds))
    return [seconds, first, accuracy, *against, *weights]


def _seconds(value: float) -> str:
    return "never" if np.isinf(value) else duration(value)
