"""Table 12: the paper's claims, each with the rule that decides it and what the runs give.

A rule asks on which side of a limit an estimate lies. Where that is certain, by p after Holm's
adjustment, the claim holds or fails; else it is open. Without runs for an interval it is not
tested. What is compared was
chosen beforehand: RAPID with the H that the paper's claim is about, and PG.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby

import pandas as pd

from rapid.algorithms import RAPID
from rapid.algorithms.names import parse
from rapid.text import listing
from reports import formats, labels, paper
from reports.collect import of_evaluation
from reports.formats import Format
from reports.measured import BASELINE, Contest, Measured
from reports.statistics import estimates
from reports.statistics.decisions import holm
from reports.statistics.estimates import LEVEL, Estimate, correlate
from reports.tables.columns import RATIO, RUNTIME, Column, accuracy
from reports.tables.intervals import Comparison
from reports.tables.table import MISSING, Cell, Group, Row, Source, Table, interval, stacked

HOLDS, FAILS, OPEN, UNTESTED = "holds", "fails", "open", "not tested here"
TOO_FEW = "too few runs for an interval"
TOO_NOISY = "too noisy to decide: the interval has both sides of the limit"
TOO_MANY = "not certain after Holm's adjustment, though its own interval is on one side"
NO_RUNS, NO_SCORES = "no runs to compare", "no scores to compare"
MARGIN = 0.02  # a difference of accuracy that is none: chosen beforehand
LENGTH = Column("", "completion_length", formats.plain, paired=RATIO)


@dataclass(frozen=True)
class Evidence:
    """What runs say of a claim, and the paper's figure; `unknown` is why there is no estimate."""

    where: str
    printed: float | None
    found: Estimate | None
    show: Format
    unknown: str
    sources: tuple[Source, ...] = ()

    @property
    def known(self) -> bool:
        """Whether there is an estimate."""
        return self.found is not None and self.found.value is not None

    @property
    def certain(self) -> bool:
        """Whether there is an interval."""
        return self.known and self.found.p_at is not None


@dataclass(frozen=True)
class Claim:
    """What the paper claims: that an estimate lies above and below two limits."""

    about: str
    rule: str
    evidence: Callable[[Measured, Contest], list[Evidence]]
    above: float = -math.inf
    below: float = math.inf
    benchmark: str = ""  # the paper claims it for this one
    models: bool = False  # and for the models of Table 2
    family: str = ""  # of claims that are judged together; "" is the claim by itself
    unknown: str = ""  # why the report may have no runs for it

    def found(self, measured: Measured) -> list[Evidence]:
        """Return the evidence of each benchmark and model that the claim is about."""
        contests = [*measured.contests.values(), *(measured.families if self.models else [])]
        asked = [one for one in contests if self.benchmark in ("", one.benchmark)]
        found = [one for contest in asked for one in self.evidence(measured, contest)]
        none = Evidence("", None, None, formats.plain, self.unknown)
        return found or ([none] if self.unknown else [])

    def judge(self, found: Estimate) -> tuple[str, float]:
        """Return what the estimate says, and the two-sided p of the truth being at the limit."""
        if self.above < found.value < self.below:
            limits = filter(math.isfinite, (self.above, self.below))
            return HOLDS, max(map(found.p_at, limits))
        return FAILS, found.p_at(self.above if found.value <= self.above else self.below)


# Evidence -----------------------------------------------------------------------------------------


def rapid(contest: Contest, wanted: str | None = None) -> str:
    """Return the RAPID that a claim is about: by default the paper's fastest on the benchmark.

    Where the table has no such RAPID it is the one with the least H.
    """
    wanted = wanted or paper.first(contest.benchmark, paper.RAPIDS, "runtime")
    least = min(contest.rapids, key=lambda name: parse(name).H, default=RAPID.name)
    return wanted if wanted in contest.rapids else least


def compared(contest: Contest, column: Column, ours: str, theirs: str = BASELINE) -> Evidence:
    """Return one algorithm against another, paired, in one column."""
    one, where = Comparison(contest, column, ours, theirs), contest.label
    where += f", {contest.model}" if contest.family else ""
    unknown = NO_RUNS
    if of_evaluation(column.metric):
        where, unknown = f"{where} {column.title}", NO_SCORES
    return Evidence(where, one.printed, one.estimate, column.paired.show, unknown, one.sources)


def faster(measured: Measured, contest: Contest) -> list[Evidence]:
    """Return the runtime of RAPID over the baseline's."""
    return [compared(contest, RUNTIME, rapid(contest))]


def faster_than_naive(measured: Measured, contest: Contest) -> list[Evidence]:
    """Return the runtime of RAPID over naive GRPO's."""
    found = compared(contest, RUNTIME, rapid(contest), paper.NAIVE)
    return [replace(found, printed=1 - paper.said("naive_saving"))]


def accurate(measured: Measured, contest: Contest) -> list[Evidence]:
    """Return the accuracy of RAPID less the baseline's; of a model of Table 2 the first pass@k."""
    columns = accuracy(measured.params, contest.benchmark)
    if contest.family:
        columns = columns[:1]  # the others are a claim of their own
    return [compared(contest, column, rapid(contest)) for column in columns]


def better_at_8(measured: Measured, contest: Contest) -> list[Evidence]:
    """Return Pass@8 of RAPID with H = 4 less the baseline's, where problems are asked 8 times."""
    columns = accuracy(measured.params, contest.benchmark)
    ours = rapid(contest, RAPID.at(4))
    return [compared(contest, column, ours) for column in columns if column.metric == "pass@8"]


def longer(measured: Measured, contest: Contest) -> list[Evidence]:
    """Return the length of completions with H = 8 over that with H = 4."""
    return [compared(contest, LENGTH, RAPID.at(8), RAPID.at(4))]


def beside(theirs: str, measured: Measured, contest: Contest) -> list[Evidence]:
    """Return accuracy of RAPID less that of another algorithm at the same H, where both were run.

    Args:
        theirs: the other's name, with {h} for its H.
    """
    column, found = accuracy(measured.params, contest.benchmark)[0], []
    seeds = list(measured.frame.seed.unique())
    for h in measured.frame.H.dropna().sort_values().astype(int).unique():
        pair = [RAPID.at(h), theirs.format(h=h)]
        both = measured.contest(contest.benchmark, pair, seeds)
        if both.runs.algorithm.nunique() == 2:
            one = compared(both, column, *pair)
            found.append(replace(one, where=f"{one.where}, H={h}"))
    return found


def correlated(metric: str, measured: Measured, contest: Contest) -> list[Evidence]:
    """Return the correlation of H with a metric, over the runs of Table 3."""
    name = contest.benchmark
    printed, runs = paper.correlation(name, metric), measured.sweeps[name]
    found, sources = correlate(runs.H, runs[metric]), _by_h(runs, metric)
    printed, show = printed and printed.value, formats.correlation
    return [Evidence(contest.label, printed, found, show, found.reason, sources)]


def clipped(measured: Measured, contest: Contest) -> list[Evidence]:
    """Return the share of clipped weights, over the runs of Table 3."""
    where, runs = contest.label, measured.sweeps[contest.benchmark]
    found, sources = estimates.mean(runs.clip_fraction), _by_h(runs, "clip_fraction")
    unknown = "no run has a share of weights"
    return [Evidence(where, paper.said("clipped"), found, formats.percent, unknown, sources)]


def _by_h(runs: pd.DataFrame, metric: str) -> tuple[Source, ...]:
    shown = Column("", metric, formats.plain)
    return shown.sources(runs.sort_values("H", kind="stable"), labels.run)


# The claims ---------------------------------------------------------------------------------------


@cache
def claims() -> list[Claim]:
    """Return the paper's claims in the order of the table."""
    text, baseline = paper.load()["text"], labels.algorithm(BASELINE)
    share = paper.said("clipped")
    return [
        Claim(
            "RAPID faster",
            f"RAPID takes less time than {baseline}: the ratio of runtimes is below 1.",
            faster,
            below=1.0,
            models=True,
        ),
        *(
            Claim(
                f"Saves {one['value']}",
                f"the saving that the paper claims on {labels.benchmark(one['benchmark'])}: the "
                f"same ratio is at most {1 - paper.said(name):.2f}.",
                faster,
                below=_saved(name),
                benchmark=one["benchmark"],
                family="savings",
            )
            for name, one in text.items()
            if name.startswith("saving_")
        ),
        Claim(
            f"Saves {text['naive_saving']['value']} of naive",
            "the paper's Figure 1: the ratio of RAPID's runtime to naive GRPO's is at most "
            f"{1 - paper.said('naive_saving'):.2f}.",
            faster_than_naive,
            below=_saved("naive_saving"),
        ),
        Claim(
            "Accuracy kept",
            f"RAPID is less accurate than {baseline} by less than {100 * MARGIN:g} points, which "
            "were chosen beforehand.",
            accurate,
            above=-MARGIN,
            models=True,
        ),
        Claim(
            "Accuracy gained",
            f"RAPID, with H=4 as in the paper's Table 2, has a higher Pass@8 than {baseline}.",
            better_at_8,
            above=0,
            models=True,
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
            "Longer with H",
            "the paper's Figure 2 (a): completions are longer with H=8 than with H=4, the ratio "
            "is above 1.",
            longer,
            above=1.0,
            benchmark=text["clipped"]["benchmark"],
        ),
        Claim(
            f"{text['clipped']['value']} clipped",
            "the mean share of clipped weights, over the runs of all H, is between half and twice "
            f"the paper's: {share / 2:.1%} and {2 * share:.1%}.",
            clipped,
            above=share / 2,
            below=2 * share,
            benchmark=text["clipped"]["benchmark"],
        ),
        Claim(
            "Clipping crucial",
            "RAPID is more accurate than without clipping, at the same H.",
            partial(beside, f"{RAPID.name}-H{{h}},clip=nowhere"),
            above=0,
            unknown="needs runs without clipping, which `make studies` makes and reports",
        ),
        Claim(
            "Weights beat KL",
            "off-policy, RAPID is more accurate than an algorithm with a KL term, GRPO, at the "
            "same H.",
            partial(beside, f"{paper.KL}-H{{h}}"),
            above=0,
            unknown="needs off-policy runs of GRPO, which there are not",
        ),
    ]


def _saved(name: str) -> float:
    """Return the largest ratio whose saving rounds to the paper's, which is in whole percent."""
    return 1 - paper.said(name) + 0.005


def table(measured: Measured) -> Table:
    """Return Table 12."""
    return judged(
        measured,
        claims(),
        number=12,
        label="tab:claims",
        caption=(
            "The paper's claims on this machine's runs: each holds, fails, is open (not certain), "
            "or is not tested here."
        ),
    )


def studied(measured: Measured, number: int) -> Table:
    """Return the table of those claims for which only the studies have runs."""
    asked = [claim for claim in claims() if claim.unknown]
    caption = "The paper's claims that need studies."
    return judged(measured, asked, number=number, label="tab:studied-claims", caption=caption)


def judged(measured: Measured, asked: list[Claim], **named) -> Table:
    """Return a table of claims; those of a family are judged together."""
    parts, every = [], []
    for _, family in groupby(asked, key=lambda claim: claim.family or claim.about):
        found = [(claim, one) for claim in family for one in claim.found(measured)]
        alone = [claim.judge(one.found) if one.certain else None for claim, one in found]
        ps = [one[1] for one in alone if one]
        adjusted, every = iter(holm(ps)), every + ps
        parts.append(
            [
                _row(claim, one, said, float(next(adjusted)) if said else None)
                for (claim, one), said in zip(found, alone, strict=True)
            ]
        )
    decided = sum(row.cells[0][0].text in (HOLDS, FAILS) for part in parts for row in part)
    together = (holm(every) <= 1 - LEVEL).sum()
    return Table(
        stub="Claim",
        groups=[Group("", ["Verdict", "Here", "p", "Paper"])],
        rows=stacked(parts),
        notes=[
            "p: of the truth being at the limit, adjusted by Holm's method for the rows between "
            "two rules. It decides where it is at most 0.05; intervals hold 95 % each "
            f"by itself. Of {decided} verdicts that hold or do not, {together} would stand if all "
            f"{len(every)} comparisons were adjusted for together.",
            f"RAPID has the H with which the paper claims it, and its baseline is "
            f"{labels.algorithm(BASELINE)}: both were chosen before the runs. Models: "
            f"{measured.params.tables.main.model} here, {paper.load()['main']['model']} in the "
            "paper, whose figures are from reports/paper.yaml and on the published problems.",
        ],
        problems=[*measured.problems.values()],
        listed=[(claim.about, claim.rule) for claim in asked],
        **named,
    )


def _row(claim: Claim, one: Evidence, said: tuple[str, float] | None, p: float | None) -> Row:
    """Return a row: verdict, figure here, p after adjustment, figure in the paper."""
    verdict, reason = UNTESTED, TOO_FEW if one.known else one.unknown
    if said:
        verdict, reason = said[0], ""
        if p > 1 - LEVEL:
            verdict, reason = OPEN, TOO_NOISY if said[1] > 1 - LEVEL else TOO_MANY
    here = [one.show(one.found.value), interval(one.show, one.found)] if one.known else [MISSING]
    cells = [
        Cell(verdict),
        Cell(" ".join(here).strip(), reason=reason, sources=one.sources if one.known else ()),
        Cell(MISSING if p is None else formats.p_value(p)),
        Cell(MISSING if one.printed is None else one.show(one.printed)),
    ]
    return Row(": ".join(filter(None, (claim.about, one.where))), [cells])


def verdicts(table: Table) -> str:
    """Return how many claims of Table 12 hold: 9 hold, 3 fail, 8 are open and 2 are not tested."""
    said = [row.cells[0][0].text for row in table.rows]
    words = {HOLDS: "hold", FAILS: "fail", OPEN: "are open", UNTESTED: "are not tested"}
    return listing([f"{said.count(verdict)} {word}" for verdict, word in words.items()])
