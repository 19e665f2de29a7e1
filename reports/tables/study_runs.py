"""The runs of each study.

A study compares algorithms, or variants of one algorithm, on a benchmark. Both are called variants
here.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from rapid.algorithms.variant_names import parse_variant_name
from reports import labels
from reports.report_data import BenchmarkRuns, ReportData
from reports.statistics import curves
from reports.statistics.curves import AccuracyCurve
from reports.tables.columns import explain_missing_runs, list_accuracy_columns
from reports.tables.notes import load_descriptions


@dataclass(frozen=True)
class StudyRuns:
    """The runs of one study.

    Args:
        start: the algorithm whose trained model RL starts from; "base" if RL starts from the model
            before all training.
        untrained: rows of the data frame with evaluations of the model before RL, that of `start`.
        metric: the first pass@k of the benchmark.
        root: the folder that contains runs/ and evaluations/.
        sweep: the parameter by whose value a figure shows the variants; "" for none.
    """

    name: str
    runs: BenchmarkRuns
    start: str
    untrained: pd.DataFrame
    metric: str
    root: Path
    sweep: str = ""

    @property
    def title(self) -> str:
        """The title of the study in captions.yaml; the study's name if it has no title there."""
        return load_descriptions()["tables"]["variants"]["titles"].get(self.name, self.name)

    @property
    def reference(self) -> str:
        """The variant with which the others are compared: the first one."""
        return self.runs.algorithms[0]

    @cached_property
    def curves(self) -> dict[str, dict[int, AccuracyCurve]]:
        """The accuracy curves of variants that saved snapshots, by variant and seed."""
        return {
            name: curves.read_curves(self.runs.select(name), self.untrained, self.metric, self.root)
            for name in curves.select_with_snapshots(self.runs.algorithms)
        }

    @property
    def shared_changes(self) -> dict[str, str]:
        """The parameters that all variants change to the same value, each with its value."""
        changes = set.intersection(
            *(set(self.parse_changes(name)) for name in self.runs.algorithms)
        )
        return dict(change for change in self.parse_changes(self.reference) if change in changes)

    @staticmethod
    def parse_changes(algorithm: str) -> list[tuple[str, str]]:
        """Return the changes of a variant: rapid-H4,eta=4 -> [("eta", "4")]."""
        return [tuple(part.split("=")) for part in algorithm.split(",")[1:]]

    def label_variant(self, algorithm: str) -> str:
        """Return a variant's label: the parameters that it changes, without `shared_changes`.

        The algorithm's name is added in front if the variant is the first, is a variant of another
        algorithm than the first, or would have an empty label otherwise.
        """
        base_name, shared_changes = parse_variant_name(algorithm).base_name, self.shared_changes
        changes = [
            f"{key} = {value}"
            for key, value in self.parse_changes(algorithm)
            if key not in shared_changes
        ]
        is_other_algorithm = base_name != parse_variant_name(self.reference).base_name
        if algorithm == self.reference or is_other_algorithm or not changes:
            changes.insert(0, labels.algorithm(base_name))
        return ", ".join(changes)

    def list_missing_runs(self) -> list[str]:
        """Return a line for each variant that has runs without the metric, with the reason."""
        return [
            f"{self.label_variant(name)}: {reason}"
            for name in self.runs.algorithms
            if (reason := explain_missing_runs(self.runs.select(name), [self.metric]))
        ]


def list_studies(data: ReportData) -> list[StudyRuns]:
    """Return the runs of each study."""
    seeds, start = data.params.studies.seeds, data.params.training.start
    return [
        StudyRuns(
            name=name,
            runs=data.select_runs(spec.benchmark, spec.algorithms, seeds, spec.model),
            start=start,
            untrained=data.select_runs(spec.benchmark, [start], seeds, spec.model).frame,
            metric=list_accuracy_columns(data.params, spec.benchmark)[0].metric,
            root=data.root,
            sweep=spec.sweep,
        )
        for name, spec in data.params.studies.compared.items()
    ]
