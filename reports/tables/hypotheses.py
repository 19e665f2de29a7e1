"""The table of the preregistered hypotheses of studies, each with its tests and verdicts.

A hypothesis (`rapid.config.studies.Hypothesis`) says on which side of a limit, or between which two
limits, a contrast lies. A contrast is the sum of a metric over variants, each times a factor. The
hypothesis is tested in each study that it names. p is adjusted for all tests of the table by Holm's
method. Generated problems that differ only in numbers are a cluster.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import pandas as pd

from rapid.artifacts.metrics import EVALUATION_METRICS
from rapid.config.params import Params
from rapid.config.studies import Hypothesis
from reports import formats
from reports.collect import get_result_path
from reports.formats import Format
from reports.report_data import ReportData
from reports.skeletons import is_generated, regenerate_skeletons
from reports.statistics import pairs
from reports.statistics.decisions import compute_detectable_difference
from reports.statistics.estimates import CONFIDENCE_LEVEL, Estimate
from reports.tables.claims import TOO_FEW, UNTESTED, Tests, build_p_cell, build_test, decide_claims
from reports.tables.layout import build_table, single_group
from reports.tables.study_runs import StudyRuns
from reports.tables.table import MISSING, Cell, Source, Table, build_estimate_cell


@dataclass(frozen=True)
class HypothesisTest:
    """The test of a hypothesis in one study.

    Args:
        name: the key of the hypothesis in the parameters.
        estimate: the estimated contrast; None if no seed has all of its runs.
        detectable_distance: the smallest distance from the limit that the test detects with a power
            of 80 %.
    """

    name: str
    hypothesis: Hypothesis
    study: StudyRuns
    estimate: Estimate | None
    p: float | None = None
    verdict: str = UNTESTED
    detectable_distance: float | None = None

    @property
    def label(self) -> str:
        """The names of the hypothesis and of the study."""
        return f"{self.name}: {self.study.name}"

    @property
    def show(self) -> Format:
        """The format of the estimate."""
        metric = EVALUATION_METRICS.get(self.hypothesis.metric)
        return formats.points if metric is None or metric.unit == "share" else formats.plain

    @property
    def tests(self) -> Tests:
        """The test, with p and verdict, in a list; [] if the estimate has no interval."""
        if self.estimate is None or self.estimate.p_at is None:
            return []
        return [build_test(self.estimate, self.hypothesis.above, self.hypothesis.below)]

    def build_limit_cell(self) -> Cell:
        """Return a cell with the limits, > +5.0, and the metric."""
        limits = (("> ", self.hypothesis.above), ("< ", self.hypothesis.below))
        texts = [f"{sign}{self.show(limit)}" for sign, limit in limits if math.isfinite(limit)]
        return Cell(" and ".join(texts), extra_lines=(self.hypothesis.metric,))

    def build_estimate_cell(self) -> Cell:
        """Return a cell with the estimate, its interval, and the values of the runs."""
        metric = self.hypothesis.metric
        sources = tuple(
            Source(
                f"{factor:g} x {self.study.label_variant(name)}, seed {run.seed}",
                MISSING if pd.isna(run[metric]) else formats.plain(run[metric]),
                get_result_path(run, metric),
            )
            for name, factor in self.hypothesis.contrast.items()
            for _, run in self.study.runs.select(name).iterrows()
        )
        missing_reason = "no seed has all runs of the contrast"
        cell = build_estimate_cell(self.show, self.estimate, missing_reason, sources=sources)
        return cell if self.tests or cell.reason else replace(cell, reason=TOO_FEW)

    def build_distance_cell(self) -> Cell:
        """Return a cell with the smallest distance from the limit that the test detects."""
        if self.detectable_distance is None:
            return Cell(MISSING)
        return Cell(self.show(self.detectable_distance).removeprefix("+"))


def build_hypotheses_table(data: ReportData, studies: Sequence[StudyRuns], number: int) -> Table:
    """Return the table: a section of rows for each hypothesis, a row for each of its studies."""
    tests, declared = judge_hypotheses(data, studies), data.params.studies.hypotheses
    cells = {
        "Predicted": HypothesisTest.build_limit_cell,
        "Estimate": HypothesisTest.build_estimate_cell,
        "p": lambda test: build_p_cell(test.p),
        "Verdict": lambda test: Cell(test.verdict),
        "Detectable": HypothesisTest.build_distance_cell,
    }
    sections = [[(test.label, test) for test in tests if test.name == name] for name in declared]
    benchmarks = list(dict.fromkeys(test.study.runs.benchmark for test in tests))
    return build_table(
        "hypotheses",
        data,
        sections,
        single_group(cells),
        benchmarks,
        number,
        named_notes=[(name, f"{hypothesis.claim}.") for name, hypothesis in declared.items()],
        tests=count_tests(data.params),
        clustered=[data.label_benchmark(name) for name in benchmarks if is_generated(data, name)],
    )


def judge_hypotheses(data: ReportData, studies: Sequence[StudyRuns]) -> list[HypothesisTest]:
    """Return the test of each hypothesis in each of its studies, with adjusted p and verdict."""
    study_by_name = {study.name: study for study in studies}

    @cache
    def find_clusters(benchmark: str) -> dict[str, str] | None:
        """Return the cluster of each problem by id; None if problems are not generated."""
        return regenerate_skeletons(data, benchmark) if is_generated(data, benchmark) else None

    undecided = []
    for name, hypothesis in data.params.studies.hypotheses.items():
        for study in map(study_by_name.get, hypothesis.studies):
            terms = [
                (study.runs.select(variant), factor)
                for variant, factor in hypothesis.contrast.items()
            ]
            estimate = None  # unless each variant has an evaluated run
            if not any(runs.scores.map(len).eq(0).all() for runs, _ in terms):
                clusters = find_clusters(study.runs.benchmark)
                estimate = pairs.estimate_contrast(terms, hypothesis.metric, clusters)
            undecided.append(HypothesisTest(name, hypothesis, study, estimate))
    alpha = (1 - CONFIDENCE_LEVEL) / count_tests(data.params)
    decided = decide_claims(undecided)
    for position, test in enumerate(decided):
        if test.tests and test.estimate.error:
            distance = compute_detectable_difference(test.estimate, alpha)
            decided[position] = replace(test, detectable_distance=distance)
    return decided


def count_tests(params: Params) -> int:
    """Return the number of tests of all hypotheses: one for each study that a hypothesis names."""
    return sum(len(hypothesis.studies) for hypothesis in params.studies.hypotheses.values())
