"""The runs of each study, which compares variants of an algorithm on one benchmark."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from rapid.algorithms.variant_names import parse
from reports import labels
from reports.measured import Contest, Measured
from reports.statistics import curves
from reports.statistics.curves import AccuracyCurve
from reports.tables.columns import accuracy
from reports.tables.notes import load_descriptions


@dataclass(frozen=True)
class StudyRuns:
    """The runs of one study.

    Args:
        start: algorithm whose trained model the runs start from.
        before: rows of that algorithm in the data frame.
        metric: the first pass@k of the benchmark.
        root: the folder that contains runs/ and evaluations/.
        sweep: the parameter by whose value a figure shows the variants; "" for none.
    """

    name: str
    contest: Contest
    start: str
    before: pd.DataFrame
    metric: str
    root: Path
    sweep: str = ""

    @property
    def title(self) -> str:
        """The title of the study in texts.yaml, or its name."""
        return load_descriptions()["tables"]["variants"]["titles"].get(self.name, self.name)

    @property
    def reference(self) -> str:
        """The variant with which the others are compared: the first one."""
        return self.contest.algorithms[0]

    @cached_property
    def curves(self) -> dict[str, dict[int, AccuracyCurve]]:
        """The accuracy curves of variants that saved snapshots, by variant and seed."""
        return {
            name: curves.read(self.contest.of(name), self.before, self.metric, self.root)
            for name in curves.with_snapshots(self.contest.algorithms)
        }

    @property
    def shared(self) -> dict[str, str]:
        """The parameters that all variants change, with their values in the first variant."""
        changes = [set(self.changes(name)) for name in self.contest.algorithms]
        keys = {key for key, _ in set.intersection(*changes)}
        return {key: value for key, value in self.changes(self.reference) if key in keys}

    @staticmethod
    def changes(algorithm: str) -> list[tuple[str, str]]:
        """Return the changes of a variant: rapid-H4,eta=4 -> [("eta", "4")]."""
        return [tuple(part.split("=")) for part in algorithm.split(",")[1:]]

    def label(self, algorithm: str) -> str:
        """Return a variant's label: the parameters that it changes and `shared` does not have.

        The algorithm's name stands first in the label of the first variant, of a variant of another
        algorithm, and if the label would be empty otherwise.
        """
        plain, shared = parse(algorithm).base_name, self.shared
        changes = [
            f"{key} = {value}" for key, value in self.changes(algorithm) if key not in shared
        ]
        if algorithm == self.reference or plain != parse(self.reference).base_name or not changes:
            changes.insert(0, labels.algorithm(plain))
        return ", ".join(changes)


def studies(measured: Measured) -> list[StudyRuns]:
    """Return the runs of each study."""
    seeds, start = measured.params.studies.seeds, measured.params.training.start
    return [
        StudyRuns(
            name,
            measured.contest(spec.benchmark, spec.algorithms, seeds, spec.model),
            start,
            measured.contest(spec.benchmark, [start], seeds, spec.model).runs,
            accuracy(measured.params, spec.benchmark)[0].metric,
            measured.root,
            spec.sweep,
        )
        for name, spec in measured.params.studies.compared.items()
    ]
