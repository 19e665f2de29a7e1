"""The studies as tables: one thing changed at a time, each variant beside the study's first.

1. `variants`  accuracy, its difference from the reference, runtime, staleness, clipping, memory
2. `reach`     seconds of training until an accuracy is reached
"""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rapid.algorithms import RAPID
from rapid.algorithms.names import parse
from rapid.config.params import Params
from rapid.config.specs import BASE
from reports import cells, compare, curves, formats, notes
from reports.cells import Metric
from reports.compare import Field
from reports.curves import Curve
from reports.statistics import spread
from reports.table import MISSING, NOT_APPLICABLE, Cell, Group, Row, Table
from reports.tables import accuracy, runtime

TITLES = {
    "eta": "Sensitivity to eta, the bound of importance weights",
    "weights-and-baseline": "Importance weights and group baseline, switched on and off",
    "clip": "Where importance weights are clipped",
    "group-size": "Completions a prompt",
    "time-to-accuracy": "Accuracy on the test problems by time of training",
}
REST = [
    Metric("Stale", "staleness", formats.staleness),
    Metric("Clipped", "clip_fraction", formats.percent),
    Metric("Memory", "peak_memory_mb", formats.megabytes),
]


@dataclass(frozen=True)
class Study:
    """One study's runs."""

    name: str
    benchmark: str
    field: Field
    before: pd.DataFrame  # evaluations of the model before training

    @property
    def title(self) -> str:
        return TITLES.get(self.name, self.name)

    @property
    def reference(self) -> str:
        """What the others are held against."""
        return self.field.algorithms[0]

    def label(self, algorithm: str) -> str:
        """What tells it apart within the study; of the reference all that it is, but what all share."""
        found, shared = parse(algorithm), self._shared()
        changes = [f"{key} = {value}" for key, value in pairs(algorithm) if key not in shared]
        plain = parse(self.reference).plain
        if algorithm == self.reference or found.plain != plain or not changes:
            changes.insert(0, notes.algorithm(found.plain))
        return ", ".join(changes)

    def _shared(self) -> set[str]:
        """The changes that all have alike."""
        of_all = [set(pairs(name)) for name in self.field.algorithms]
        return {key for key, _ in set.intersection(*of_all)}

    def shared(self) -> str:
        """What all have alike, in words; "" where that is nothing."""
        shared = self._shared()
        return formats.listing([f"{k} = {v}" for k, v in pairs(self.reference) if k in shared])


def pairs(algorithm: str) -> list[tuple[str, str]]:
    """The changes of a variant: rapid-H4,eta=4 -> [("eta", "4")]."""
    return [tuple(part.split("=")) for part in algorithm.split(",")[1:]]


def studies(params: Params, frame: pd.DataFrame) -> list[Study]:
    model, seeds = params.tables.main.model, params.studies.seeds
    return [
        Study(
            name,
            spec.benchmark,
            compare.field(frame, spec.benchmark, model, spec.algorithms, seeds),
            compare.field(frame, spec.benchmark, model, [BASE], seeds).runs,
        )
        for name, spec in params.studies.compared.items()
    ]


def tables(params: Params, frame: pd.DataFrame, root: Path) -> list[Table]:
    """A table for each study, and one of times for those that kept models on the way."""
    found = []
    for study in studies(params, frame):
        found.append(variants(params, study, len(found) + 1))
        if curves.kept(study.field.algorithms):
            found.append(reach(params, study, root, len(found) + 1))
    return found


# Variants -----------------------------------------------------------------------------------------


def variants(params: Params, study: Study, number: int) -> Table:
    """A row a variant."""
    field, benchmark = study.field, study.benchmark
    metrics = accuracy(params, benchmark)
    columns = {metric.title: _means(field, metric) for metric in metrics}
    columns["Difference"] = [_difference(study, name, metrics[0]) for name in field.algorithms]
    columns |= {metric.title: _means(field, metric) for metric in [runtime("Time"), *REST]}
    rows = [
        Row(study.label(name), [[column[position] for column in columns.values()]])
        for position, name in enumerate(field.algorithms)
    ]
    shared = study.shared()
    return Table(
        number=number,
        label=f"tab:{study.name}",
        caption=f"{study.title}: {params.tables.main.model} on {notes.benchmark(benchmark)}.",
        stub="Variant",
        groups=[Group("", list(columns))],
        rows=rows,
        notes=[
            notes.seeds(params.studies.seeds),
            *([f"All with {shared}."] if shared else []),
            f"What is not said here is as in the parameters: {_defaults(params, benchmark)}.",
            f"Difference: {metrics[0].title} less the first row's, in points, paired by problem and "
            "seed, with its 95 % interval.",
            notes.evaluation(field.runs),
            notes.resolution(field.runs),
            notes.runtime("Time"),
            notes.STALENESS,
            notes.MEMORY,
            *notes.provenance(field.runs),
        ],
    )


def _defaults(params: Params, benchmark: str) -> str:
    """RAPID's parameters and those of all."""
    rapid = RAPID.objective(params).model_dump()
    training = {
        name: getattr(params.training, name) for name in ("group_size", "epochs", "learning_rate")
    }
    n_step = {"n_step": params.benchmarks[benchmark].n_step}
    said = (rapid | n_step | training).items()
    return formats.listing([f"{name} = {str(value).lower()}" for name, value in said])


def _means(field: Field, metric: Metric) -> list[Cell]:
    if metric.column in ("staleness", "clip_fraction"):  # the baselines have none
        ours = set(field.rapids)
        return [
            cells.mean_cell(field.of(name), metric) if name in ours else Cell(NOT_APPLICABLE)
            for name in field.algorithms
        ]
    return [cells.mean_cell(field.of(name), metric) for name in field.algorithms]


def _difference(study: Study, algorithm: str, metric: Metric) -> Cell:
    if algorithm == study.reference:
        return Cell(NOT_APPLICABLE)
    ours, theirs = study.field.of(algorithm), study.field.of(study.reference)
    found = compare.difference(ours, theirs, metric.column)
    if found is None:
        return Cell(MISSING, reason="no seed has both with scores by problem")
    return Cell(
        formats.points(found.mean),
        under=(formats.interval(formats.points, found.low, found.high),),
        detail=f"n = {found.seeds} seeds and {found.problems} problems.",
        sources=cells.named_sources(ours, metric) + cells.named_sources(theirs, metric),
    )


# Time to an accuracy ------------------------------------------------------------------------------


def reach(params: Params, study: Study, root: Path, number: int) -> Table:
    """A row an algorithm, a column a level of accuracy."""
    metric = accuracy(params, study.benchmark)[0]
    names = curves.kept(study.field.algorithms)
    found = {
        name: curves.read(study.field.of(name), study.before, metric.column, root) for name in names
    }
    levels = curves.levels([curve for of in found.values() for curve in of.values()])
    rows = [
        Row(study.label(name), [[_reached(found[name], level) for level in levels]])
        for name in names
    ]
    return Table(
        number=number,
        label=f"tab:{study.name}-reach",
        caption=(
            f"Training time until {metric.title} is reached: {params.tables.main.model} on "
            f"{notes.benchmark(study.benchmark)}."
        ),
        stub="Algorithm",
        groups=[Group("", [f"{100 * level:.0f}%" for level in levels])],
        rows=rows,
        notes=[
            notes.seeds(params.studies.seeds),
            "Accuracy is that of the model before training, of the models kept on the way and of the "
            "last one, on the test problems, with straight lines between. The time is the training "
            "loop's; keeping and evaluating models is not in it.",
            notes.evaluation(study.field.runs),
            *notes.provenance(study.field.runs),
        ],
    )


def _reached(of: dict[int, Curve], level: float) -> Cell:
    """The mean over seeds, where all reach it."""
    if not of:
        return Cell(MISSING, reason="no run has a curve")
    times = {seed: curve.reaches(level) for seed, curve in of.items()}
    late = sum(time is None for time in times.values())
    if late:
        return Cell(MISSING, reason=f"{late} of {len(times)} runs did not get there")
    found = spread(list(times.values()))
    deviation = "" if found.deviation is None else formats.duration(found.deviation, found.mean)
    return Cell(formats.duration(found.mean), deviation, detail=f"n = {found.n} runs.")
