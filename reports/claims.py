"""The paper's claims, each with the rule that decides it and the number that the runs give.

A rule asks on which side of a limit a 95 % interval lies: wholly on the claim's side it holds, wholly
on the other it does not hold, and where the interval has both sides the runs do not test it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from scipy import stats

from rapid.benchmarks import BENCHMARKS
from rapid.config.params import Params
from reports import cells, compare, formats, notes, paper
from reports.cells import Metric
from reports.compare import Field
from reports.evidence import field_of
from reports.statistics import LEVEL, correlate, spread
from reports.table import MISSING, Cell, Group, Row, Source, Table
from reports.tables import accuracy

HOLDS, FAILS, UNTESTED = "holds", "does not hold", "not tested here"
TOO_NOISY = "too noisy to decide: the interval has both sides of the limit"
_TEXT = paper.load()["text"]
SAVES = f"Saves {_TEXT['saving']['value']}"
SAVES_OF_NAIVE = f"Saves {_TEXT['naive_saving']['value']} of naive"
CLIPPED = f"{_TEXT['clipped']['value']} clipped"
RUNTIME = Metric("Runtime", "runtime", formats.duration)


@dataclass(frozen=True)
class Finding:
    """One claim on one benchmark. `about` names the claim; paper and here are printed figures."""

    about: str
    where: str
    paper: str
    here: str
    verdict: str
    reason: str = ""
    sources: tuple[Source, ...] = ()


def findings(params: Params, frame: pd.DataFrame) -> list[Finding]:
    """Every claim on every benchmark that it is made of, in the order of `rules`."""
    fields = {name: field_of(params, frame, name) for name in params.benchmarks}
    every = [(name, fields[name]) for name in params.benchmarks]
    clipped = _TEXT["clipped"]["benchmark"]
    return [
        *(_faster("RAPID fastest", params, name, field, 1.0) for name, field in every),
        *(_faster(SAVES, params, name, field, 1 - paper.said("saving"))
          for name, field in every),
        *(_naive(params, name, field) for name, field in every),
        *(_kept(params, name, field, metric)
          for name, field in every for metric in accuracy(params, name)),
        *(_correlated("Staleness grows", name, field, "staleness", 1) for name, field in every),
        *(_correlated("Runtime falls", name, field, "runtime", -1) for name, field in every),
        *(_clipped(name, field) for name, field in every if name == clipped),
    ]  # fmt: skip


def rules() -> list[tuple[str, str]]:
    """What each claim says, and what decides it."""
    saving, naive = paper.said("saving"), paper.said("naive_saving")
    clipped = paper.said("clipped")
    return [
        ("RAPID fastest", "the fastest RAPID of Table 1 takes less time than the fastest RL baseline: "
         "the ratio of runtimes is below 1."),
        (SAVES, f"the least saving that the paper's abstract claims: the same ratio is below "
         f"{1 - saving:.2f}."),
        (SAVES_OF_NAIVE, "the paper's Figure 1: the ratio of the fastest RAPID's runtime to "
         f"naive GRPO's is at most {1 - naive:.2f}."),
        ("Accuracy kept", "the fastest RAPID of Table 1 is less accurate than the most accurate RL "
         f"baseline by less than {100 * margin():.1f} points, the most that the paper's own fastest "
         "RAPID is behind in Pass@1."),
        ("Staleness grows", "the correlation of H with staleness, over runs, is above 0."),
        ("Runtime falls", "the correlation of H with runtime, over runs, is below 0."),
        (CLIPPED, "the mean share of clipped weights, over the runs of all H, is between half "
         f"and twice the paper's: {clipped / 2:.1%} and {2 * clipped:.1%}."),
    ]  # fmt: skip


def margin() -> float:
    """The most that the paper's fastest RAPID is behind its most accurate RL baseline, Pass@1."""
    behind = []
    for benchmark in filter(paper.has, BENCHMARKS):
        rapid = paper.order(benchmark, paper.RAPIDS, "runtime")[0]
        best = paper.order(benchmark, paper.BASELINES, "pass@1")[0]
        behind.append(
            paper.main(benchmark, best, "pass@1") - paper.main(benchmark, rapid, "pass@1")
        )
    return max(behind)


def table(params: Params, frame: pd.DataFrame) -> Table:
    """Table 12."""
    found = findings(params, frame)
    rows = [
        Row(
            f"{one.about}: {one.where}",
            [[
                Cell(one.verdict),
                Cell(one.here, reason=one.reason, sources=one.sources),
                Cell(one.paper),
            ]],
            section=bool(position) and one.about != found[position - 1].about,
        )
        for position, one in enumerate(found)
    ]  # fmt: skip
    return Table(
        number=12,
        label="tab:claims",
        caption=(
            "The paper's claims on this machine's runs: each holds, does not hold, or is not tested "
            "here."
        ),
        stub="Claim",
        groups=[Group("", ["Verdict", "Here", "Paper"])],
        rows=rows,
        notes=[
            "A claim holds where the 95 % interval lies wholly on its side of the limit, does not "
            "hold where it lies wholly on the other, and is not tested where it has both sides or "
            f"where runs are missing. Models: {params.tables.main.model} here, "
            f"{paper.load()['main']['model']} in the paper, whose figures are from reports/paper.yaml.",
        ],
        listed=rules(),
    )


def decide(low: float | None, high: float | None, limit: float, side: int) -> tuple[str, str]:
    """Verdict and reason: on which side of the limit the interval lies (side 1: above, -1: below)."""
    if low is None or high is None:
        return UNTESTED, "too few runs for an interval"
    if side < 0:
        low, high, limit = -high, -low, -limit
    if low > limit:
        return HOLDS, ""
    return (FAILS, "") if high <= limit else (UNTESTED, TOO_NOISY)


# Claims -------------------------------------------------------------------------------------------


def fastest(params: Params, field: Field) -> str | None:
    """The fastest RAPID among those of Table 1."""
    named = [name for name in field.rapids if name in params.tables.main.algorithms]
    return field.first(named, "runtime")


def _faster(about: str, params: Params, benchmark: str, field: Field, limit: float) -> Finding:
    theirs = paper.order(benchmark, paper.BASELINES, "runtime")
    ours = paper.order(benchmark, paper.RAPIDS, "runtime")
    printed = _quotient(benchmark, ours[0], theirs[0]) if ours and theirs else MISSING
    rapid, baseline = fastest(params, field), field.first(field.baselines, "runtime")
    return _ratio(about, benchmark, printed, field, rapid, baseline, limit)


def _naive(params: Params, benchmark: str, field: Field) -> Finding:
    limit = 1 - paper.said("naive_saving")
    printed = formats.ratio(limit)
    naive = paper.NAIVE if field.mean(paper.NAIVE, "runtime") is not None else None
    rapid = fastest(params, field)
    # As printed: the paper's own figure is rounded to a percent.
    return _ratio(SAVES_OF_NAIVE, benchmark, printed, field, rapid, naive, limit + 0.005)


def _quotient(benchmark: str, a: str, b: str) -> str:
    return formats.ratio(paper.main(benchmark, a, "runtime") / paper.main(benchmark, b, "runtime"))


def _ratio(
    about: str,
    benchmark: str,
    printed: str,
    field: Field,
    ours: str | None,
    theirs: str | None,
    limit: float,
) -> Finding:
    where = notes.benchmark(benchmark)
    found = compare.ratio(field.of(ours), field.of(theirs)) if ours and theirs else None
    if found is None:
        return Finding(about, where, printed, MISSING, UNTESTED, "no runs to compare")
    verdict, reason = decide(found.low, found.high, limit, -1)
    return Finding(
        about,
        where,
        printed,
        _with_interval(formats.ratio, found.ratio, found.low, found.high),
        verdict,
        reason,
        _sources(field, [ours, theirs], RUNTIME),
    )


def _kept(params: Params, benchmark: str, field: Field, metric: Metric) -> Finding:
    about, k = "Accuracy kept", metric.column
    where = f"{notes.benchmark(benchmark)} {metric.title}"
    theirs = paper.order(benchmark, paper.BASELINES, k)
    ours = paper.order(benchmark, paper.RAPIDS, "runtime")
    printed = MISSING
    if ours and theirs and paper.main(benchmark, ours[0], k) is not None:
        printed = formats.points(
            paper.main(benchmark, ours[0], k) - paper.main(benchmark, theirs[0], k)
        )
    rapid, best = fastest(params, field), field.first(field.baselines, k)
    found = compare.difference(field.of(rapid), field.of(best), k) if rapid and best else None
    if found is None:
        return Finding(about, where, printed, MISSING, UNTESTED, "no scores to compare")
    verdict, reason = decide(found.low, found.high, -margin(), 1)
    here = _with_interval(formats.points, found.mean, found.low, found.high)
    sources = _sources(field, [rapid, best], metric)
    return Finding(about, where, printed, here, verdict, reason, sources)


def _correlated(about: str, benchmark: str, field: Field, column: str, side: int) -> Finding:
    where, known = notes.benchmark(benchmark), paper.correlation(benchmark, column)
    printed = formats.correlation(known[0]) if known else MISSING
    sweep = field.runs[field.runs.H.notna()]
    found = correlate(sweep.H, sweep[column])
    if found.r is None:
        return Finding(about, where, printed, MISSING, UNTESTED, found.reason)
    verdict, reason = decide(found.low, found.high, 0, side)
    here = _with_interval(formats.correlation, found.r, found.low, found.high)
    shown = Metric(about, column, formats.plain)
    return Finding(
        about, where, printed, here, verdict, reason, _sources(field, field.rapids, shown)
    )


def _clipped(benchmark: str, field: Field) -> Finding:
    about, where, share = CLIPPED, notes.benchmark(benchmark), paper.said("clipped")
    values = field.runs[field.runs.H.notna()].clip_fraction
    found = spread(list(values))
    printed = formats.percent(share)
    if found.mean is None:
        return Finding(about, where, printed, MISSING, UNTESTED, "no run has a share of weights")
    low, high = mean_interval(list(values))
    verdict, reason = decide(low, high, share / 2, 1)
    if verdict == HOLDS:
        verdict, reason = decide(low, high, 2 * share, -1)
    here = _with_interval(formats.percent, found.mean, low, high)
    shown = Metric(about, "clip_fraction", formats.plain)
    return Finding(
        about, where, printed, here, verdict, reason, _sources(field, field.rapids, shown)
    )


def mean_interval(values: Sequence[float]) -> tuple[float, float] | tuple[None, None]:
    """Student's 95 % interval of a mean; none for fewer than two values."""
    found = spread(values)
    if found.deviation is None:
        return None, None
    half = stats.t.ppf((1 + LEVEL) / 2, found.n - 1) * found.deviation / math.sqrt(found.n)
    return found.mean - half, found.mean + half


def _with_interval(
    show: formats.Format, value: float, low: float | None, high: float | None
) -> str:
    return show(value) + ("" if low is None else f" {formats.interval(show, low, high)}")


def _sources(field: Field, algorithms: Sequence[str], metric: Metric) -> tuple[Source, ...]:
    return tuple(
        source for name in algorithms for source in cells.named_sources(field.of(name), metric)
    )
