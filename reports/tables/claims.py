"""Table 11: the paper's claims (claims.yaml), tested on the runs.

A claim says on which side of a limit an estimate lies. If p, after Holm's adjustment, is at most
0.05, the claim holds or fails; otherwise it is open. With too few runs for an interval it is not
tested. The compared algorithms are preregistered: RAPID with the H (optimizer steps per inference
batch) of the paper's claim, and PG, policy gradient.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rapid.algorithms import RAPID
from rapid.algorithms.variant_names import parse
from rapid.text import join_words
from reports import formats, labels, paper
from reports.formats import Format
from reports.measured import BASELINE, Contest, Measured
from reports.statistics import estimates, pairs
from reports.statistics.decisions import holm
from reports.statistics.estimates import LEVEL, Estimate, correlate
from reports.tables.columns import RATIO, RUNTIME, Column, accuracy
from reports.tables.intervals import Comparison
from reports.tables.layout import build_table, single_group
from reports.tables.notes import fill_template
from reports.tables.table import MISSING, Cell, Source, Table, interval

FILE = Path(__file__).with_name("claims.yaml")
HOLDS, FAILS, OPEN, UNTESTED = "holds", "fails", "open", "not tested here"
# Verdict -> the words after a number of claims.
COUNTED = {HOLDS: "hold", FAILS: "fail", OPEN: "are open", UNTESTED: "are not tested"}
TOO_FEW = "too few runs for an interval"
TOO_NOISY = "undecided: the interval contains the limit"
TOO_MANY = "not significant after Holm's adjustment, although its own interval excludes the limit"
# The metric of the claim that completions get longer with H; no table has this column.
LENGTH = Column("", "completion_length", formats.plain, paired=RATIO)
Tests = Sequence[tuple[float, str]]  # tests of a claim: p, and the verdict if p is small


# Verdicts -----------------------------------------------------------------------------------------


def locate(
    estimate: Estimate, above: float = -math.inf, below: float = math.inf
) -> tuple[float, str]:
    """Return the two-sided p of a claim's limit, and the verdict if that p is small.

    The claim is that the true value lies between `above` and `below`. p is for the hypothesis that
    the true value is at the limit. If the estimate lies between two limits, it is the larger p.
    """
    if above < estimate.value < below:
        return max(estimate.p_at(limit) for limit in (above, below) if math.isfinite(limit)), HOLDS
    return estimate.p_at(above if estimate.value <= above else below), FAILS


def decide(claims: Sequence[Tests]) -> list[tuple[float | None, str]]:
    """Return p and verdict of each claim, with p adjusted for all tests by Holm's method.

    The first test of a claim with p <= 0.05 decides. If there is none the claim is open, with the p
    of its first test. A claim without tests has no p and is untested.
    """
    adjusted = iter(holm([p for tests in claims for p, _ in tests]))
    decisions: list[tuple[float | None, str]] = []
    for tests in claims:
        ps = [(float(next(adjusted)), verdict) for _, verdict in tests]
        small = [(p, verdict) for p, verdict in ps if p <= 1 - LEVEL]
        first = (ps[0][0], OPEN) if ps else (None, UNTESTED)
        decisions.append(small[0] if small else first)
    return decisions


def count_verdicts(verdicts: Iterable[str]) -> dict[str, str]:
    """Return the number of claims with each verdict, in words: 9 hold, 3 fail, ..."""
    verdicts = list(verdicts)
    return {verdict: f"{verdicts.count(verdict)} {word}" for verdict, word in COUNTED.items()}


@dataclass(frozen=True)
class Headline:
    """A main claim for the first screen of the page, with its verdicts by benchmark and model."""

    text: str
    verdicts: list[str]

    @property
    def counts(self) -> list[tuple[str, str]]:
        """Each verdict that occurs, with its number in words: 2 hold, 1 fails, 3 open."""
        if len(self.verdicts) == 1:
            return [(verdict, verdict) for verdict in self.verdicts]
        plurals = {HOLDS: "hold", FAILS: "fail"}
        counts = {verdict: self.verdicts.count(verdict) for verdict in COUNTED}
        return [
            (verdict, f"{count} {verdict if count == 1 else plurals.get(verdict, verdict)}")
            for verdict, count in counts.items()
            if count
        ]


def p_cell(p: float | None) -> Cell:
    """Return a cell with a p, or a dash for a claim without tests."""
    return Cell(MISSING if p is None else formats.p_value(p))


# Evidence -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """A row of the table of claims.

    Args:
        estimate: from the runs.
        show: prints the estimate and the paper's value.
        printed: the paper's value; None if the paper has none.
        sources: the values of the runs.
        p: adjusted by Holm's method.
    """

    label: str
    estimate: Estimate
    show: Format = formats.plain
    printed: float | None = None
    sources: tuple[Source, ...] = ()
    tests: Tests = ()
    p: float | None = None
    verdict: str = UNTESTED

    @property
    def reason(self) -> str:
        """The reason why the claim is untested or open; "" for a claim that holds or fails."""
        if not self.tests:
            return self.estimate.reason or TOO_FEW
        ((p, _),) = self.tests
        return {OPEN: TOO_NOISY if p > 1 - LEVEL else TOO_MANY}.get(self.verdict, "")

    def measured_cell(self) -> Cell:
        """Return a cell with the estimate and its interval."""
        if self.estimate.value is None:
            return Cell(MISSING, reason=self.reason)
        text = f"{self.show(self.estimate.value)} {interval(self.show, self.estimate)}"
        return Cell(text.strip(), reason=self.reason, sources=self.sources)


@dataclass(frozen=True)
class PaperClaim:
    """A claim of the paper. The head of claims.yaml documents the fields."""

    about: str
    rule: str
    above: float = -math.inf
    below: float = math.inf
    compare: str = ""
    prefer: str = ""
    ours: str = ""
    reference: str = BASELINE
    correlate: str = ""
    average: str = ""
    benchmark: str = ""
    models: bool = False
    figure: float | None = None
    unknown: str = ""
    headline: str = ""

    def collect_evidence(self, measured: Measured) -> list[Evidence]:
        """Return a row for each benchmark and model that the claim is about."""
        contests = [*measured.contests.values(), *(measured.families if self.models else [])]
        rows = [
            row
            for contest in contests
            if self.benchmark in ("", contest.benchmark)
            for row in self._of_contest(measured, contest)
        ]
        if self.unknown and not rows:
            return [Evidence(self.about, Estimate(None, reason=self.unknown))]
        return [replace(row, tests=self._tests(row.estimate)) for row in rows]

    def _tests(self, estimate: Estimate) -> Tests:
        return [locate(estimate, self.above, self.below)] if estimate.p_at else []

    def _of_contest(self, measured: Measured, contest: Contest) -> list[Evidence]:
        if metric := self.correlate or self.average:
            return [self._over_h(measured, contest, metric)]
        if "{h}" in self.reference:
            return self._at_each_h(measured, contest)
        ours = self.ours or select_rapid(contest, self.prefer)
        columns = self._columns(measured, contest)
        return [self._paired(contest, column, ours, self.reference) for column in columns]

    def _columns(self, measured: Measured, contest: Contest) -> list[Column]:
        shown = accuracy(measured.params, contest.benchmark)
        if self.compare == "accuracy":
            return shown[:1] if contest.family else shown
        return [column for column in (*shown, RUNTIME, LENGTH) if column.metric == self.compare]

    def _paired(
        self, contest: Contest, column: Column, ours: str, reference: str, suffix: str = ""
    ) -> Evidence:
        """Return the row of a paired comparison of two algorithms in one metric.

        Args:
            column: the metric.
            suffix: of the row's label.
        """
        comparison = Comparison(contest, column, ours, reference)
        is_accuracy = column.metric.startswith(pairs.PASS_AT)
        title = f" {column.title}" if is_accuracy else ""
        model = f", {contest.model}" if contest.family else ""
        unknown = f"no {'scores' if is_accuracy else 'runs'} to compare"
        return Evidence(
            f"{self.about}: {contest.label}{model}{title}{suffix}",
            comparison.estimate or Estimate(None, reason=unknown),
            column.paired.show,
            comparison.printed if self.figure is None else self.figure,
            comparison.sources,
        )

    def _at_each_h(self, measured: Measured, contest: Contest) -> list[Evidence]:
        """Return a row for each H (steps per inference batch) with runs of RAPID and reference."""
        column, rows = accuracy(measured.params, contest.benchmark)[0], []
        seeds = list(measured.frame.seed.unique())
        for h in measured.frame.H.dropna().sort_values().astype(int).unique():
            pair = [RAPID.format_name(h), self.reference.format(h=h)]
            contest_of_pair = measured.contest(contest.benchmark, pair, seeds)
            if contest_of_pair.runs.algorithm.nunique() == 2:
                rows.append(self._paired(contest_of_pair, column, *pair, suffix=f", H={h}"))
        return rows

    def _over_h(self, measured: Measured, contest: Contest, metric: str) -> Evidence:
        """Return the row of a metric's correlation with H, or of its mean, over runs of Table 3."""
        runs = measured.sweeps[contest.benchmark]
        if self.average:
            no_value = Estimate(None, reason="no run has a share of weights")
            estimate = estimates.mean(runs[metric], pairs.SHARES) or no_value
            show = formats.percent
            printed = self.figure
        else:
            estimate, show = correlate(runs.H, runs[metric]), formats.correlation
            r = paper.correlation(contest.benchmark, metric)
            printed = r and r.value
        ordered = runs.sort_values("H", kind="stable")
        sources = Column("", metric, formats.plain).sources(ordered, labels.run)
        return Evidence(f"{self.about}: {contest.label}", estimate, show, printed, sources)


def select_rapid(contest: Contest, preferred: str = "") -> str:
    """Return the RAPID that a claim compares: the preferred one, or the one with the smallest H.

    If RAPID is not among the runs, the paper's RAPID with the smallest H is returned.

    Args:
        preferred: by default the RAPID that is fastest on the benchmark in the paper.
    """
    preferred = preferred or paper.first(contest.benchmark, paper.RAPIDS, "runtime")
    smallest = min(contest.rapids, key=lambda name: parse(name).H, default=paper.RAPIDS[0])
    return preferred if preferred in contest.rapids else smallest


# The claims ---------------------------------------------------------------------------------------


@cache
def load_claims() -> list[list[PaperClaim]]:
    """Return the claims of claims.yaml in families: p is adjusted for all claims of a family."""
    return [_expand(**row) for row in yaml.safe_load(FILE.read_text(encoding="utf-8"))]


def _expand(paper_numbers: Sequence[str] = ("",), **row: Any) -> list[PaperClaim]:
    """Return the claims that an entry of claims.yaml makes, one for each of its paper_numbers."""
    claims = []
    for name in paper_numbers:
        facts = {"baseline": labels.algorithm(BASELINE)}
        if name:
            number = paper.load()["text"][name]
            facts |= {"printed": number["value"], "number": paper.paper_value(name)}
            row["benchmark"] = number.get("benchmark", "")
            facts["benchmark"] = row["benchmark"] and labels.benchmark(row["benchmark"])
        fields = {k: fill_template(v, facts) if isinstance(v, str) else v for k, v in row.items()}
        numbers = {k: float(fields[k]) for k in ("above", "below", "figure") if k in fields}
        claims.append(PaperClaim(**fields | numbers))
    return claims


def table(measured: Measured) -> Table:
    """Return Table 11."""
    return claims_table("claims", measured, load_claims())


def studied(measured: Measured, number: int) -> Table:
    """Return the table of the claims that only the runs of the studies can test."""
    families = [[claim for claim in family if claim.unknown] for family in load_claims()]
    return claims_table("studied-claims", measured, families, number=number)


def claims_table(
    name: str, measured: Measured, families: list[list[PaperClaim]], **named: Any
) -> Table:
    """Return a table of claims, with a section for each family.

    Args:
        name: the name of the table in texts.yaml.
        families: p is adjusted for all claims of a family.
        named: further arguments of `build_table`.
    """
    sections = []
    for family in families:
        rows = [row for claim in family for row in claim.collect_evidence(measured)]
        decisions = zip(rows, decide([row.tests for row in rows]), strict=True)
        sections.append([replace(row, p=p, verdict=verdict) for row, (p, verdict) in decisions])
    judged = [row for section in sections for row in section]
    ps = [p for row in judged for p, _ in row.tests]
    columns = {
        "Verdict": lambda row: Cell(row.verdict),
        "Here": Evidence.measured_cell,
        "p": lambda row: p_cell(row.p),
        "Paper": lambda row: Cell(MISSING if row.printed is None else row.show(row.printed)),
    }
    return build_table(
        name,
        measured,
        [[(row.label, row) for row in section] for section in sections],
        single_group(columns),
        listed=[(claim.about, claim.rule) for family in families for claim in family],
        decided=sum(row.verdict in (HOLDS, FAILS) for row in judged),
        decided_together=(holm(ps) <= 1 - LEVEL).sum(),
        tests=len(ps),
        paper_model=paper.load()["main"]["model"],
        **named,
    )


def summarize(table: Table) -> str:
    """Return the verdicts of Table 11 in words: 9 hold, 3 fail, 8 are open and 2 are not tested."""
    return join_words([*count_verdicts(row.cells[0][0].text for row in table.rows).values()])


def headlines(table: Table) -> list[Headline]:
    """Return the main claims of a table of claims (those with a headline), with their verdicts."""
    headline_of = {claim.about: claim.headline for family in load_claims() for claim in family}
    verdicts: dict[str, list[str]] = {}
    for row in table.rows:
        if headline := headline_of[row.label.partition(": ")[0]]:
            verdicts.setdefault(headline, []).append(row.cells[0][0].text)
    return [Headline(text, of_rows) for text, of_rows in verdicts.items()]
