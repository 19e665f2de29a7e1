"""Table 11: the paper's claims (claims.yaml), tested on the runs.

A claim says on which side of a limit, or between which two limits, a statistic lies. If p, after
Holm's adjustment, is at most 0.05, the claim holds or fails; otherwise it is open. With too few
runs for an interval it is not tested. The compared algorithms are preregistered: RAPID with the H
(optimizer steps per inference batch) of the paper's claim, and PG, policy gradient.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rapid.algorithms import RAPID
from rapid.algorithms.variant_names import parse_variant_name
from rapid.text import join_words
from reports import formats, labels, paper
from reports.formats import Format
from reports.report_data import BASELINE, BenchmarkRuns, ReportData
from reports.statistics import estimates, pairs
from reports.statistics.decisions import adjust_by_holm
from reports.statistics.estimates import CONFIDENCE_LEVEL, Estimate
from reports.tables.columns import RATIO, RUNTIME, Column, list_accuracy_columns
from reports.tables.intervals import Comparison
from reports.tables.layout import build_table, single_group
from reports.tables.notes import fill_template
from reports.tables.table import MISSING, Cell, Source, Table, format_interval

FILE = Path(__file__).with_name("claims.yaml")
HOLDS, FAILS, OPEN, UNTESTED = "holds", "fails", "open", "not tested here"
# Verdict -> the words after a number of claims: 9 hold.
VERDICT_VERBS = {HOLDS: "hold", FAILS: "fail", OPEN: "are open", UNTESTED: "are not tested"}
TOO_FEW = "too few runs for an interval"
TOO_NOISY = "undecided: the interval contains the limit"
NOT_SIGNIFICANT = (
    "not significant after Holm's adjustment, although its own interval excludes the limit"
)
# The column of the claim that completions get longer with H; no table shows it.
COMPLETION_LENGTH = Column("", "completion_length", formats.plain, paired=RATIO)
Tests = Sequence[tuple[float, str]]  # tests of a claim: p, and the verdict if p is small


# Verdicts -----------------------------------------------------------------------------------------


def build_test(
    estimate: Estimate, above: float = -math.inf, below: float = math.inf
) -> tuple[float, str]:
    """Return the test of a claim: its two-sided p, and the verdict if p is small.

    The claim is that the true value lies between `above` and `below`. p is for the hypothesis that
    the true value is at the limit. If the estimate lies between two limits, the larger of their two
    p is returned.
    """
    if above < estimate.value < below:
        return max(estimate.p_at(limit) for limit in (above, below) if math.isfinite(limit)), HOLDS
    return estimate.p_at(above if estimate.value <= above else below), FAILS


def decide_claims(claims: Sequence[Any]) -> list[Any]:
    """Return these claims, objects with the field `tests`, with their p and verdict.

    p is adjusted for the tests of all claims by Holm's method. The first test of a claim with
    p <= 0.05 decides. If there is none the claim is open, with the p of its first test. A claim
    without tests has no p and is untested.
    """
    adjusted_ps = iter(adjust_by_holm([p for claim in claims for p, _ in claim.tests]))
    decided_claims = []
    for claim in claims:
        adjusted = [(float(next(adjusted_ps)), verdict) for _, verdict in claim.tests]
        significant = [(p, verdict) for p, verdict in adjusted if p <= 1 - CONFIDENCE_LEVEL]
        undecided = (adjusted[0][0], OPEN) if adjusted else (None, UNTESTED)
        p, verdict = significant[0] if significant else undecided
        decided_claims.append(replace(claim, p=p, verdict=verdict))
    return decided_claims


def count_verdicts(verdicts: Iterable[str]) -> dict[str, str]:
    """Return the number of claims with each verdict, in words: 9 hold, 3 fail, ..."""
    verdicts = list(verdicts)
    return {verdict: f"{verdicts.count(verdict)} {word}" for verdict, word in VERDICT_VERBS.items()}


@dataclass(frozen=True)
class Headline:
    """A main claim on the first screen of report.html, with its verdicts by benchmark and model."""

    text: str
    verdicts: list[str]

    @property
    def counts(self) -> list[tuple[str, str]]:
        """Each verdict that occurs, with its number in words: 2 hold, 1 fails, 3 open."""
        if len(self.verdicts) == 1:
            return [(verdict, verdict) for verdict in self.verdicts]
        plurals = {HOLDS: "hold", FAILS: "fail"}
        counts = {verdict: self.verdicts.count(verdict) for verdict in VERDICT_VERBS}
        return [
            (verdict, f"{count} {verdict if count == 1 else plurals.get(verdict, verdict)}")
            for verdict, count in counts.items()
            if count
        ]


def build_p_cell(p: float | None) -> Cell:
    """Return a cell with a p, or a dash for a claim without tests."""
    return Cell(MISSING if p is None else formats.p_value(p))


# Evidence -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """A row of the table of claims: what the runs, and the paper, say about a claim.

    Args:
        show: prints the estimate and the paper's value.
        p: adjusted by Holm's method.
    """

    label: str
    estimate: Estimate
    show: Format = formats.plain
    paper_value: float | None = None
    sources: tuple[Source, ...] = ()
    tests: Tests = ()
    p: float | None = None
    verdict: str = UNTESTED

    @property
    def reason(self) -> str:
        """The reason why the claim is untested or open; "" for a claim that holds or fails."""
        if not self.tests:
            return self.estimate.reason or TOO_FEW
        ((unadjusted_p, _),) = self.tests
        if self.verdict != OPEN:
            return ""
        return TOO_NOISY if unadjusted_p > 1 - CONFIDENCE_LEVEL else NOT_SIGNIFICANT

    def build_cell(self) -> Cell:
        """Return a cell with the estimate and its interval."""
        if self.estimate.value is None:
            return Cell(MISSING, reason=self.reason)
        text = f"{self.show(self.estimate.value)} {format_interval(self.show, self.estimate)}"
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
    all_models: bool = False
    paper_value: float | None = None
    missing_reason: str = ""
    headline: str = ""

    def collect_evidence(self, data: ReportData) -> list[Evidence]:
        """Return a row for each benchmark and model that the claim is about."""
        selections = [*data.runs_by_benchmark.values()]
        selections += data.family_runs if self.all_models else []
        rows = [
            row
            for runs in selections
            if self.benchmark in ("", runs.benchmark)
            for row in self._collect_from(data, runs)
        ]
        if self.missing_reason and not rows:
            return [Evidence(self.about, Estimate(None, reason=self.missing_reason))]
        return [replace(row, tests=self._list_tests(row.estimate)) for row in rows]

    def _list_tests(self, estimate: Estimate) -> Tests:
        return [build_test(estimate, self.above, self.below)] if estimate.p_at else []

    def _collect_from(self, data: ReportData, runs: BenchmarkRuns) -> list[Evidence]:
        """Return the rows for one benchmark and model, still without tests."""
        if self.correlate or self.average:
            return [self._summarize_over_h(data, runs)]
        if "{h}" in self.reference:
            return self._compare_at_each_h(data, runs)
        ours = self.ours or select_rapid(runs, self.prefer)
        columns = self._list_columns(data, runs)
        return [self._compare(runs, column, ours, self.reference) for column in columns]

    def _list_columns(self, data: ReportData, runs: BenchmarkRuns) -> list[Column]:
        """Return the columns with the metrics that the claim compares."""
        accuracies = list_accuracy_columns(data.params, runs.benchmark)
        if self.compare == "accuracy":
            return accuracies if runs.is_main_model else accuracies[:1]
        columns = (*accuracies, RUNTIME, COMPLETION_LENGTH)
        return [column for column in columns if column.metric == self.compare]

    def _compare(
        self, runs: BenchmarkRuns, column: Column, ours: str, reference: str, suffix: str = ""
    ) -> Evidence:
        """Return the row of a paired comparison of two algorithms in the metric of a column."""
        comparison = Comparison(runs, column, ours, reference)
        is_accuracy = column.metric.startswith(pairs.PASS_AT)
        title = f" {column.title}" if is_accuracy else ""
        model = "" if runs.is_main_model else f", {runs.model}"
        return Evidence(
            f"{self.about}: {runs.label}{model}{title}{suffix}",
            comparison.estimate or Estimate(None, reason=comparison.missing_reason),
            column.paired.show,
            comparison.paper_value if self.paper_value is None else self.paper_value,
            comparison.sources,
        )

    def _compare_at_each_h(self, data: ReportData, runs: BenchmarkRuns) -> list[Evidence]:
        """Return a row for each H (steps per inference batch) at which RAPID and reference ran."""
        column, rows = list_accuracy_columns(data.params, runs.benchmark)[0], []
        seeds = list(data.frame.seed.unique())
        for h in data.frame.H.dropna().sort_values().astype(int).unique():
            pair = [RAPID.format_name(h), self.reference.format(h=h)]
            runs_of_pair = data.select_runs(runs.benchmark, pair, seeds)
            if runs_of_pair.frame.algorithm.nunique() == 2:
                rows.append(self._compare(runs_of_pair, column, *pair, suffix=f", H={h}"))
        return rows

    def _summarize_over_h(self, data: ReportData, runs: BenchmarkRuns) -> Evidence:
        """Return the row of a metric's correlation with H, or of its mean, over runs of Table 3."""
        metric = self.correlate or self.average
        column, sweep = Column("", metric, formats.plain), data.h_sweeps[runs.benchmark]
        if self.average:
            no_value = Estimate(None, reason="no run has a share of clipped weights")
            estimate = estimates.estimate_mean(sweep[metric], pairs.SHARE_BOUNDS) or no_value
            show, paper_value = formats.percent, self.paper_value
        else:
            estimate, show = column.correlate_with_h(sweep), formats.correlation
            r = paper.get_correlation(runs.benchmark, metric)
            paper_value = r and r.value
        ordered = sweep.sort_values("H", kind="stable")
        sources = column.list_sources(ordered, labels.run)
        return Evidence(f"{self.about}: {runs.label}", estimate, show, paper_value, sources)


def select_rapid(runs: BenchmarkRuns, preferred: str = "") -> str:
    """Return the name of the RAPID variant that a claim compares.

    It is the preferred variant (by default the one that is fastest on the benchmark in the paper)
    if the runs have it, or else their variant with the smallest H. If the runs have no RAPID, it is
    the paper's variant with the smallest H.
    """
    preferred = preferred or paper.find_best(runs.benchmark, paper.RAPIDS, "runtime")
    names = runs.rapid_algorithms
    smallest = min(names, key=lambda name: parse_variant_name(name).H, default=paper.RAPIDS[0])
    return preferred if preferred in names else smallest


# The claims ---------------------------------------------------------------------------------------


@cache
def load_claims() -> list[list[PaperClaim]]:
    """Return the claims of claims.yaml in families, for each of which p is adjusted together."""
    return [_expand_claim(**row) for row in yaml.safe_load(FILE.read_text(encoding="utf-8"))]


def _expand_claim(paper_numbers: Sequence[str] = ("",), **row: Any) -> list[PaperClaim]:
    """Return the claims that an entry of claims.yaml makes, one for each of its paper_numbers."""
    claims = []
    for name in paper_numbers:
        facts = {"baseline": labels.algorithm(BASELINE)}
        if name:
            entry = paper.load_paper()["text"][name]
            facts |= {"paper_text": entry["value"], "number": paper.parse_number(entry["value"])}
            row["benchmark"] = entry.get("benchmark", "")
            facts["benchmark"] = row["benchmark"] and labels.benchmark(row["benchmark"])
        fields = {k: fill_template(v, facts) if isinstance(v, str) else v for k, v in row.items()}
        numbers = {k: float(fields[k]) for k in ("above", "below", "paper_value") if k in fields}
        claims.append(PaperClaim(**fields | numbers))
    return claims


def build_paper_claims_table(data: ReportData) -> Table:
    """Return Table 11."""
    return build_claims_table("claims", data, load_claims())


def build_study_claims_table(data: ReportData, number: int) -> Table:
    """Return the table of the claims that only the runs of the studies can test."""
    families = [[claim for claim in family if claim.missing_reason] for family in load_claims()]
    return build_claims_table("studied-claims", data, families, number=number)


def build_claims_table(
    name: str, data: ReportData, families: list[list[PaperClaim]], **arguments: Any
) -> Table:
    """Return a table of claims, with a section for each family, whose p are adjusted together."""
    sections = [
        decide_claims([row for claim in family for row in claim.collect_evidence(data)])
        for family in families
    ]
    all_rows = [row for section in sections for row in section]
    ps = [p for row in all_rows for p, _ in row.tests]
    columns = {
        "Verdict": lambda row: Cell(row.verdict),
        "Here": Evidence.build_cell,
        "p": lambda row: build_p_cell(row.p),
        "Paper": lambda row: Cell(
            MISSING if row.paper_value is None else row.show(row.paper_value)
        ),
    }
    return build_table(
        name,
        data,
        [[(row.label, row) for row in section] for section in sections],
        single_group(columns),
        named_notes=[(claim.about, claim.rule) for family in families for claim in family],
        decided=sum(row.verdict in (HOLDS, FAILS) for row in all_rows),
        # How many would still hold or fail if p were adjusted for all sections together.
        decided_adjusted=(adjust_by_holm(ps) <= 1 - CONFIDENCE_LEVEL).sum(),
        tests=len(ps),
        paper_model=paper.load_paper()["main"]["model"],
        **arguments,
    )


def summarize_verdicts(table: Table) -> str:
    """Return the verdicts of Table 11 in words: 9 hold, 3 fail, 8 are open and 2 are not tested."""
    counts = count_verdicts(row.cells[0][0].text for row in table.rows)
    return join_words([*counts.values()])


def build_headlines(table: Table) -> list[Headline]:
    """Return the main claims of a table of claims (those with a headline), with their verdicts."""
    headlines = {claim.about: claim.headline for family in load_claims() for claim in family}
    verdicts: dict[str, list[str]] = {}
    for row in table.rows:
        if headline := headlines[row.label.partition(": ")[0]]:
            verdicts.setdefault(headline, []).append(row.cells[0][0].text)
    return [Headline(text, verdicts_of_rows) for text, verdicts_of_rows in verdicts.items()]
