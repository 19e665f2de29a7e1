"""The figures of the reports. To add a figure to the main report, add a module to `figures`.

The module's name, with hyphens, becomes the figure's name. The module has a function `figure(data)`
that returns a `style.Figure`, most easily by `panels.by_h` (metrics by H, the number of optimizer
steps per inference batch) or `panels.panel_figure` (any panels, one per benchmark). contents.yaml
gives the figure its place in report.html; a figure that is not named there stands at the end. A
`Figure` has a caption, a list of missing runs and a function that draws it, so that caption and
missing runs are known without drawing.

This module does not import matplotlib, because the workflow needs the names of figures only.
"""

from importlib import import_module
from pathlib import Path

from rapid.config.arena import ArenaField
from rapid.config.params import Params

_MODULES = sorted(path.stem for path in Path(__file__).with_name("figures").glob("[a-z]*.py"))
MAX_CURVES = 8  # largest number of algorithms in a figure of curves
FIGURES = [name.replace("_", "-") for name in _MODULES]


def build_figures(kind: str, data) -> dict:
    """Return all figures of the main "report", of the "studies" or of the "arena", by name."""
    if kind != "report":
        return import_module(f"{__name__}.{kind}").build_figures(data)
    modules = (import_module(f"{__name__}.figures.{name}") for name in _MODULES)
    return {name: module.figure(data) for name, module in zip(FIGURES, modules, strict=True)}


def list_arena_figures(params: Params) -> list[str]:
    """Return the names of the arena's figures.

    Each benchmark has a figure, and a second one with curves if it has at most MAX_CURVES
    algorithms. Another figure is a map of N_step (completions per optimizer step) and H. The report
    on the trials of learning rates (`arena.tuning` is set) has no figures.
    """
    arena = params.arena
    if not arena or arena.tuning:
        return []
    return [
        *(f"arena-{name}" for name in arena.fields),  # the keys are names of benchmarks
        *(f"arena-{name}-curves" for name, field in arena.fields.items() if has_curves(field)),
        *(["arena-map"] if arena.planned_maps else []),
    ]


def has_curves(field: ArenaField) -> bool:
    """Return whether a field (algorithms compared on a benchmark) is small enough for curves."""
    return len(field.rates) <= MAX_CURVES  # a learning rate for each algorithm


def list_study_figures(params: Params) -> list[str]:
    """Return the names of the figures in the report on the studies.

    Each study has one figure. If its runs saved snapshots (the model at several points of
    training), it has another one, with the accuracy by training time. If it sweeps a parameter, it
    has one with metrics by its value.
    """
    from reports.statistics.curves import select_with_snapshots

    names = []
    for name, study in params.studies.compared.items() if params.studies else ():
        names.append(name)
        names += [f"{name}-curves"] if select_with_snapshots(study.algorithms) else []
        names += [f"{name}-sweep"] if study.sweep else []
    return names
