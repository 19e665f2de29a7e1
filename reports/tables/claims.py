"""Table 12: the paper's claims, each with the rule that decides it and what the runs give.

A rule asks on which side of a limit a 95 % interval lies. Wholly on the claim's side the claim
holds, wholly on the other it does not hold. Where the interval has both sides the runs do not test
it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

from rapid.artifacts.text import listing
from rapid.benchmarks import BENCHMARKS
from reports import formats, labels, paper
from reports.formats import Format
from reports.measured import Contest, Measured
from reports.statistics import estimates
from reports.statistics.estimates import Estimate, correlate
from reports.tables.columns import RUNTIME, Column, accuracy
from reports.tables.table import MISSING, Cell, Group, Row, Source, Table, interval, stacked

HOLDS, FAILS, UNTESTED = "holds", "does not hold", "not tested here"
TOO_NOISY = "too noisy to decide: the interval has both sides of the limit"


@dataclass(frozen=True)
class Evidence:
    """What runs say of a claim, and the paper's figure; `unknown` is why there is no estimate."""

    where: str
    printed: float | None
    found: Estimate | None
    show: Format
    unknown: str
    sources: tuple[Source, ...]

    @property
    def paper(self) -> str:
        """The paper's figure as it is printed."""
        return MISSING if self.printed is None else self.show(self.printed)

    @property
    def here(self) -> str:
        """The estimate of these runs as it is printed, with its interval."""
        if self.found is None or self.found.value is None:
            return MISSING
        shown = (self.show(self.found.value), interval(self.show, self.found))
        return " ".join(filter(None, shown))


@dataclass(frozen=True)
class Claim:
    """What the paper claims: that an estimate lies above and below two limits."""

    about: str
    rule: str
    evidence: Callable[[Measured, Contest], list[Evidence]]
    above: float = -math.inf
    below: float = math.inf

    def rows(self, measured: Measured) -> list[Row]:
        """Return a row for each benchmark: verdict, figure here, figure in the paper."""
        rows = []
        for contest in measured.contests.values():
            for one in self.evidence(measured, contest):
                known = one.here != MISSING
                verdict, reason = UNTESTED, one.unknown
                if known:
                    verdict, reason = decide(one.found, self.above, self.below)
                here = Cell(one.here, reason=reason, sources=one.sources if known else ())
                cells = [Cell(verdict), here, Cell(one.paper)]
                rows.append(Row(f"{self.about}: {one.where}", [cells]))
        return rows


def decide(found: Estimate, above: float = -math.inf, below: float = math.inf) -> tuple[str, str]:
    """Return verdict and reason: whether the interval lies above and below these limits."""
    if found.low is None:
        return UNTESTED, "too few runs for an interval"
    if found.low > above and found.high < below:
        return HOLDS, ""
    return (FAILS, "") if found.high <= above or found.low >= below else (UNTESTED, TOO_NOISY)


# Evidence -----------------------------------------------------------------------------------------


def fastest(measured: Measured, contest: Contest) -> str | None:
    """Return the fastest RAPID among those of Table 1."""
    of_table = measured.params.tables.main.algorithms
    return contest.first([name for name in contest.rapids if name in of_table], "runtime")


def faster(measured: Measured, contest: Contest) -> list[Evidence]:
    """Return the runtime of the fastest RAPID over the fastest RL baseline's."""
    times = [
        paper.main(contest.benchmark, paper.first(contest.benchmark, names, "runtime"), "runtime")
        for names in (paper.RAPIDS, paper.BASELINES)
    ]
    printed = None if None in times else times[0] / times[1]
    baseline = contest.first(contest.baselines, "runtime")
    return [_against(measured, contest, RUNTIME, baseline, printed, "no runs to compare")]


def faster_than_naive(measured: Measured, contest: Contest) -> list[Evidence]:
    """Return the runtime of the fastest RAPID over naive GRPO's."""
    naive = None if contest.mean(paper.NAIVE, "runtime") is None else paper.NAIVE
    printed = 1 - paper.said("naive_saving")
    return [_against(measured, contest, RUNTIME, naive, printed, "no runs to compare")]


def accurate(measured: Measured, contest: Contest) -> list[Evidence]:
    """Return the accuracy of the fastest RAPID less the most accurate RL baseline's."""
    found, benchmark = [], contest.benchmark
    for column in accuracy(measured.params, benchmark):
        ours = paper.first(benchmark, paper.RAPIDS, "runtime")
        theirs = paper.first(benchmark, paper.BASELINES, column.metric)
        shares = [paper.main(benchmark, name, column.metric) for name in (ours, theirs)]
        printed = None if None in shares else shares[0] - shares[1]
        best = contest.first(contest.baselines, column.metric)
        found.append(_against(measured, contest, column, best, printed, "no scores to compare"))
    return found


def correlated(metric: str, measured: Measured, contest: Contest) -> list[Evidence]:
    """Return the correlation of H with a metric."""
    printed = paper.correlation(contest.benchmark, metric)
    found = correlate(contest.sweep.H, contest.sweep[metric])
    return [
        Evidence(
            labels.benchmark(contest.benchmark),
            printed and printed.value,
            found,
            formats.correlation,
            found.reason,
            _sources(contest, metric),
        )
    ]


def clipped(measured: Measured, contest: Contest) -> list[Evidence]:
    """Return the share of clipped weights, on the benchmark for which the paper says it."""
    if contest.benchmark != paper.load()["text"]["clipped"]["benchmark"]:
        return []
    return [
        Evidence(
            labels.benchmark(contest.benchmark),
            paper.said("clipped"),
            estimates.mean(contest.sweep.clip_fraction),
            formats.percent,
            "no run has a share of weights",
            _sources(contest, "clip_fraction"),
        )
    ]


def _against(
    measured: Measured,
    contest: Contest,
    column: Column,
    theirs: str | None,
    printed: float | None,
    unknown: str,
) -> Evidence:
    """Return the fastest RAPID against a baseline, paired, in one column."""
    ours, found, sources = fastest(measured, contest), None, ()
    where = labels.benchmark(contest.benchmark)
    if column.metric != RUNTIME.metric:
        where += f" {column.title}"
    if ours and theirs:
        found = column.paired.of_runs(contest.of(ours), contest.of(theirs), column.metric)
        sources = column.sources(contest.of(ours, theirs), labels.run)
    return Evidence(where, printed, found, column.paired.show, unknown, sources)


def _sources(contest: Contest, metric: str) -> tuple[Source, ...]:
    return Column("", metric, formats.plain).sources(contest.of(*contest.rapids), labels.run)


# The claims ---------------------------------------------------------------------------------------


def margin() -> float:
    """Return the most that the paper's fastest RAPID is behind in Pass@1."""
    behind = []
    for benchmark in filter(paper.has, BENCHMARKS):
        rapid = paper.first(benchmark, paper.RAPIDS, "runtime")
        best = paper.first(benchmark, paper.BASELINES, "pass@1")
        behind.append(
            paper.main(benchmark, best, "pass@1") - paper.main(benchmark, rapid, "pass@1")
        )
    return max(behind)


@cache
def claims() -> list[Claim]:
    """Return the paper's claims in the order of the table."""
    text = {name: one["value"] for name, one in paper.load()["text"].items()}
    least, naive = 1 - paper.said("saving"), 1 - paper.said("naive_saving")
    share = paper.said("clipped")
    return [
        Claim(
            "RAPID fastest",
            "the fastest RAPID of Table 1 takes less time than the fastest RL baseline: the ratio "
            "of runtimes is below 1.",
            faster,
            below=1.0,
        ),
        Claim(
            f"Saves {text['saving']}",
            "the least saving that the paper's abstract claims: the same ratio is below "
            f"{least:.2f}.",
            faster,
            below=least,
        ),
        Claim(
            f"Saves {text['naive_saving']} of naive",
            "the paper's Figure 1: the ratio of the fastest RAPID's runtime to naive GRPO's is at "
            f"most {naive:.2f}.",
            faster_than_naive,
            below=naive + 0.005,  # as printed: the paper's own figure is rounded to a percent
        ),
        Claim(
            "Accuracy kept",
            "the fastest RAPID of Table 1 is less accurate than the most accurate RL baseline by "
            f"less than {100 * margin():.1f} points, the most that the paper's own fastest RAPID "
            "is behind in Pass@1.",
            accurate,
            above=-margin(),
        ),
        Claim(
            "Staleness grows",
            "the correlation of H with staleness, over runs, is above 0.",
            partial(correlated, "staleness"),
            above=0,
        ),
        Claim(
            "Runtime falls",
            "the correlation of H with runtime, over runs, is below 0.",
            partial(correlated, "runtime"),
            below=0,
        ),
        Claim(
            f"{text['clipped']} clipped",
            "the mean share of clipped weights, over the runs of all H, is between half and twice "
            f"the paper's: {share / 2:.1%} and {2 * share:.1%}.",
            clipped,
            above=share / 2,
            below=2 * share,
        ),
    ]


def table(measured: Measured) -> Table:
    """Return Table 12."""
    return Table(
        number=12,
        label="tab:claims",
        caption=(
            "The paper's claims on this machine's runs: each holds, does not hold, or is not "
            "tested here."
        ),
        stub="Claim",
        groups=[Group("", ["Verdict", "Here", "Paper"])],
        rows=stacked(claim.rows(measured) for claim in claims()),
        notes=[
            "A claim holds where the 95 % interval lies wholly on its side of the limit, does not "
            "hold where it lies wholly on the other, and is not tested where it has both sides or "
            f"where runs are missing. Models: {measured.params.tables.main.model} here, "
            f"{paper.load()['main']['model']} in the paper, whose figures are from "
            "reports/paper.yaml.",
        ],
        listed=[(claim.about, claim.rule) for claim in claims()],
    )


def verdicts(table: Table) -> str:
    """Return how many claims of Table 12 hold: 9 hold, 3 do not hold and 8 are not tested."""
    said = [row.cells[0][0].text for row in table.rows]
    words = {HOLDS: "hold", FAILS: "do not hold", UNTESTED: "are not tested"}
    return listing([f"{said.count(verdict)} {word}" for verdict, word in words.items()])
