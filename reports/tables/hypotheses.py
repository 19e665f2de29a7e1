"""The table of the preregistered hypotheses of studies, each with its tests and verdicts.

A hypothesis (`rapid.config.sections.Hypothesis`) says on which side of a limit a contrast lies: the
sum of a metric over variants, each times a factor. Each study that it names is a test. p is
adjusted for all tests of the table by Holm's method. Generated problems that differ in numbers only
are a cluster.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from rapid.artifacts.metrics import EVALUATION_METRICS
from rapid.config.params import Params
from rapid.config.studies import Hypothesis
from reports import formats
from reports.analyses import draw_skeletons
from reports.collect import file_of
from reports.formats import Format
from reports.measured import Measured
from reports.statistics import pairs
from reports.statistics.decisions import detectable
from reports.statistics.estimates import LEVEL, Estimate
from reports.tables.claims import TOO_FEW, UNTESTED, Tests, decide, locate, p_cell
from reports.tables.layout import build_table, single_group
from reports.tables.study_runs import StudyRuns
from reports.tables.table import MISSING, Cell, Source, Table, estimate_cell


@dataclass(frozen=True)
class Trial:
    """The test of a hypothesis in one study.

    Args:
        estimate: of the contrast; None if no seed has all of its runs.
        seen_from: smallest distance from the limit that the test detects with a power of 80 %.
    """

    hypothesis: Hypothesis
    study: StudyRuns
    estimate: Estimate | None
    p: float | None = None
    verdict: str = UNTESTED
    seen_from: float | None = None

    @property
    def label(self) -> str:
        """The claim and the study."""
        return f"{self.hypothesis.claim}: {self.study.name}"

    @property
    def show(self) -> Format:
        """The format of the estimate."""
        metric = EVALUATION_METRICS.get(self.hypothesis.metric)
        return formats.points if metric is None or metric.unit == "share" else formats.plain

    @property
    def tests(self) -> Tests:
        """The p and verdict of the contrast's limit; none without an interval."""
        if self.estimate is None or self.estimate.p_at is None:
            return []
        return [locate(self.estimate, self.hypothesis.above, self.hypothesis.below)]

    def predicted_cell(self) -> Cell:
        """Return a cell with the limits: > +5.0."""
        limits = (("> ", self.hypothesis.above), ("< ", self.hypothesis.below))
        texts = [f"{sign}{self.show(limit)}" for sign, limit in limits if math.isfinite(limit)]
        return Cell(" and ".join(texts), under=(self.hypothesis.metric,))

    def estimated_cell(self) -> Cell:
        """Return a cell with the estimate, its interval, and the values of the runs."""
        metric = self.hypothesis.metric
        sources = tuple(
            Source(
                f"{factor:g} x {self.study.label(name)}, seed {run.seed}",
                formats.plain(run[metric]),
                file_of(run, metric),
            )
            for name, factor in self.hypothesis.contrast.items()
            for _, run in self.study.contest.of(name).iterrows()
        )
        unknown = "no seed has all runs of the contrast"
        cell = estimate_cell(self.show, self.estimate, unknown, sources=sources)
        return cell if self.tests or cell.reason else replace(cell, reason=TOO_FEW)

    def seen_from_cell(self) -> Cell:
        """Return a cell with the smallest distance from the limit that the test detects."""
        if self.seen_from is None:
            return Cell(MISSING)
        return Cell(self.show(self.seen_from).removeprefix("+"))


def build(measured: Measured, studies: Sequence[StudyRuns], number: int) -> Table:
    """Return the table: a section of rows for each hypothesis, a row for each of its studies."""
    trials = judge(measured, studies)
    cells = {
        "Predicted": Trial.predicted_cell,
        "Estimate": Trial.estimated_cell,
        "p": lambda trial: p_cell(trial.p),
        "Verdict": lambda trial: Cell(trial.verdict),
        "Seen from": Trial.seen_from_cell,
    }
    sections = [
        [(trial.label, trial) for trial in trials if trial.hypothesis is hypothesis]
        for hypothesis in measured.params.studies.hypotheses.values()
    ]
    benchmarks = list(dict.fromkeys(trial.study.contest.benchmark for trial in trials))
    return build_table(
        "hypotheses",
        measured,
        sections,
        single_group(cells),
        benchmarks,
        number,
        tests=count_tests(measured.params),
        clustered=[measured.label(name) for name in benchmarks if is_generated(measured, name)],
    )


def judge(measured: Measured, studies: Sequence[StudyRuns]) -> list[Trial]:
    """Return the test of each hypothesis in each of its studies, with adjusted p and verdict."""
    by_name = {study.name: study for study in studies}

    @cache
    def find_clusters(benchmark: str) -> dict[str, str] | None:
        return draw_skeletons(measured, benchmark) if is_generated(measured, benchmark) else None

    trials = []
    for hypothesis in measured.params.studies.hypotheses.values():
        for study in map(by_name.get, hypothesis.studies):
            terms = [
                (study.contest.of(name), factor) for name, factor in hypothesis.contrast.items()
            ]
            runs_exist = not any(runs.scores.map(len).eq(0).all() for runs, _ in terms)
            clusters = find_clusters(study.contest.benchmark) if runs_exist else None
            estimate = pairs.contrast(terms, hypothesis.metric, clusters) if runs_exist else None
            trials.append(Trial(hypothesis, study, estimate))
    alpha = (1 - LEVEL) / count_tests(measured.params)
    return [
        replace(
            trial,
            p=p,
            verdict=verdict,
            seen_from=detectable(trial.estimate, alpha)
            if trial.tests and trial.estimate.error
            else None,
        )
        for trial, (p, verdict) in zip(trials, decide([t.tests for t in trials]), strict=True)
    ]


def count_tests(params: Params) -> int:
    """Return the number of tests of all hypotheses: one for each of their studies."""
    return sum(len(hypothesis.studies) for hypothesis in params.studies.hypotheses.values())


def is_generated(measured: Measured, benchmark: str) -> bool:
    """Return whether the problems of a benchmark are generated, so that they form clusters."""
    source = measured.problems[benchmark]
    return source.kind == "made" and source.prepared is not None
