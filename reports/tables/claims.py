"""Table 11: the paper's claims, by claims.yaml, each with what the runs give.

A rule asks on which side of a limit an estimate lies. Where that is certain, by p after Holm's
adjustment, the claim holds or fails; else it is open. Without runs for an interval it is not
tested. What is compared was chosen beforehand: RAPID with the H that the paper's claim is about,
and PG.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rapid.algorithms import RAPID
from rapid.algorithms.names import parse
from rapid.text import join_words
from reports import formats, labels, paper
from reports.collect import of_evaluation
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
COUNTED = {HOLDS: "hold", FAILS: "fail", OPEN: "are open", UNTESTED: "are not tested"}
TOO_FEW = "too few runs for an interval"
TOO_NOISY = "undecided: the interval contains the limit"
TOO_MANY = "not significant after Holm's adjustment, although its own interval excludes the limit"
LENGTH = Column("", "completion_length", formats.plain, paired=RATIO)
Tests = Sequence[tuple[float, str]]  # the p of each test of a claim, and the verdict if it is small


# Verdicts -----------------------------------------------------------------------------------------


def locate(
    estimate: Estimate, above: float = -math.inf, below: float = math.inf
) -> tuple[float, str]:
    """Return the two-sided p of the truth being at the limit, and on which side the estimate is."""
    if above < estimate.value < below:
        return max(estimate.p_at(limit) for limit in (above, below) if math.isfinite(limit)), HOLDS
    return estimate.p_at(above if estimate.value <= above else below), FAILS


def decide(claims: Sequence[Tests]) -> list[tuple[float | None, str]]:
    """Return p and verdict of each claim, with all tests adjusted by Holm's method.

    The first test of a claim whose p is small decides. Where none is small the claim is open, and
    the p is that of its first test. A claim without tests is untested.
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
    """Return how many claims there are of each verdict, in words: 9 hold, 3 fail, ..."""
    verdicts = list(verdicts)
    return {verdict: f"{verdicts.count(verdict)} {word}" for verdict, word in COUNTED.items()}


@dataclass(frozen=True)
class Headline:
    """A main claim and the verdicts on it, of each benchmark and model."""

    text: str
    verdicts: list[str]

    @property
    def counts(self) -> list[tuple[str, str]]:
        """The verdicts that there are, with their numbers in words: 2 hold, 1 fails, 3 open."""
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
    """Return a cell of a p, which a claim without tests does not have."""
    return Cell(MISSING if p is None else formats.p_value(p))


# Evidence -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """A row of the table: what runs say of a claim, the paper's figure, and later the verdict."""

    label: str
    estimate: Estimate
    show: Format = formats.plain
    printed: float | None = None
    sources: tuple[Source, ...] = ()
    tests: Tests = ()
    p: float | None = None  # adjusted
    verdict: str = UNTESTED

    @property
    def reason(self) -> str:
        """Why there is no verdict."""
        if not self.tests:
            return self.estimate.reason or TOO_FEW
        ((p, _),) = self.tests
        return {OPEN: TOO_NOISY if p > 1 - LEVEL else TOO_MANY}.get(self.verdict, "")

    def here(self) -> Cell:
        """Return the estimate with its interval."""
        if self.estimate.value is None:
            return Cell(MISSING, reason=self.reason)
        text = f"{self.show(self.estimate.value)} {interval(self.show, self.estimate)}"
        return Cell(text.strip(), reason=self.reason, sources=self.sources)


@dataclass(frozen=True)
class PaperClaim:
    """A claim of the paper. claims.yaml documents the fields."""

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
        """Return the evidence of each benchmark and model that the claim is about."""
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
        """Return one algorithm against another, paired, in one column."""
        comparison = Comparison(contest, column, ours, reference)
        title = f" {column.title}" if (is_accuracy := of_evaluation(column.metric)) else ""
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
        """Return RAPID against the other algorithm at the same H, where both were run."""
        column, rows = accuracy(measured.params, contest.benchmark)[0], []
        seeds = list(measured.frame.seed.unique())
        for h in measured.frame.H.dropna().sort_values().astype(int).unique():
            pair = [RAPID.at(h), self.reference.format(h=h)]
            contest_of_pair = measured.contest(contest.benchmark, pair, seeds)
            if contest_of_pair.runs.algorithm.nunique() == 2:
                rows.append(self._paired(contest_of_pair, column, *pair, suffix=f", H={h}"))
        return rows

    def _over_h(self, measured: Measured, contest: Contest, metric: str) -> Evidence:
        """Return the correlation of H with a metric, or its mean, over the runs of Table 3."""
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
    """Return the RAPID that a claim is about: by default the paper's fastest on the benchmark.

    Where the table has no such RAPID it is the one with the least H, and without any the paper's.
    """
    preferred = preferred or paper.first(contest.benchmark, paper.RAPIDS, "runtime")
    least = min(contest.rapids, key=lambda name: parse(name).H, default=paper.RAPIDS[0])
    return preferred if preferred in contest.rapids else least


# The claims ---------------------------------------------------------------------------------------


@cache
def load_claims() -> list[list[PaperClaim]]:
    """Return the paper's claims in the order of the table; those of a list are judged together."""
    return [_expand(**row) for row in yaml.safe_load(FILE.read_text(encoding="utf-8"))]


def _expand(paper_numbers: Sequence[str] = ("",), **row: Any) -> list[PaperClaim]:
    """Return a row of claims.yaml as a claim for each of its numbers in the paper."""
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
    """Return the table of those claims for which only the studies have runs."""
    families = [[claim for claim in family if claim.unknown] for family in load_claims()]
    return claims_table("studied-claims", measured, families, number=number)


def claims_table(
    name: str, measured: Measured, families: list[list[PaperClaim]], **named: Any
) -> Table:
    """Return a table of claims; those of a family are judged together."""
    sections = []
    for family in families:
        rows = [row for claim in family for row in claim.collect_evidence(measured)]
        decisions = zip(rows, decide([row.tests for row in rows]), strict=True)
        sections.append([replace(row, p=p, verdict=verdict) for row, (p, verdict) in decisions])
    judged = [row for section in sections for row in section]
    ps = [p for row in judged for p, _ in row.tests]
    columns = {
        "Verdict": lambda row: Cell(row.verdict),
        "Here": Evidence.here,
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
    """Return how many claims of Table 11 hold: 9 hold, 3 fail, 8 are open and 2 are not tested."""
    return join_words([*count_verdicts(row.cells[0][0].text for row in table.rows).values()])


def headlines(table: Table) -> list[Headline]:
    """Return the main claims of a table of claims, with the verdicts of their rows."""
    headline_of = {claim.about: claim.headline for family in load_claims() for claim in family}
    verdicts: dict[str, list[str]] = {}
    for row in table.rows:
        if headline := headline_of[row.label.partition(": ")[0]]:
            verdicts.setdefault(headline, []).append(row.cells[0][0].text)
    return [Headline(text, of_rows) for text, of_rows in verdicts.items()]
