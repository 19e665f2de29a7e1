"""The figures of the reports. To add a figure to the main report, add a module to `figures`.

The module's name becomes the figure's name. The module has a function `figure(measured)` that
returns a `style.Figure`, most easily by `panels.by_h` (metrics by H) or `panels.panel_figure` (any
panels, one per benchmark). contents.yaml gives the figure its place in report.html; without an
entry it stands at the end. A `Figure` has a caption, a list of missing runs and a function that
draws it, so that caption and missing runs are known without drawing.

There are three kinds of reports:

report    the main report: the paper's tables and figures
studies   ablations: each study compares variants of an algorithm on one benchmark (docs/studies.md)
arena     a preregistered comparison of many algorithms, each with a tuned learning rate
          (docs/arena.md); the trials of learning rates have a report of their own, with tables only

This module does not import matplotlib, because the workflow needs the names of figures only.
"""

from importlib import import_module
from pathlib import Path

from rapid.config.params import Params

_MODULES = sorted(path.stem for path in Path(__file__).with_name("figures").glob("[a-z]*.py"))
FIGURES = [name.replace("_", "-") for name in _MODULES]


def build(kind: str, measured) -> dict:
    """Return all figures of a report, by name.

    Args:
        kind: "report" (the main report), "studies" or "arena".
        measured: a `reports.measured.Measured`.
    """
    if kind != "report":
        return import_module(f"{__name__}.{kind}").figures(measured)
    modules = (import_module(f"{__name__}.figures.{name}") for name in _MODULES)
    return {name: module.figure(measured) for name, module in zip(FIGURES, modules, strict=True)}


def arena_figures(params: Params) -> list[str]:
    """Return the names of the arena's figures: one for each benchmark, and a map of N_step and H.

    The report on the trials of learning rates (`arena.tuning` is set) has no figures.
    """
    arena = params.arena
    if not arena or arena.tuning:
        return []
    return [
        *(f"arena-{name}" for name in arena.fields),  # the keys are names of benchmarks
        *(["arena-map"] if arena.planned_maps else []),
    ]


def study_figures(params: Params) -> list[str]:
    """Return the names of the figures in the report on the studies.

    Each study has one figure. If its runs saved snapshots (the model at several points of
    training), it has a second one, with the accuracy by training time.
    """
    from reports.statistics.curves import with_snapshots

    return [
        f"{name}{part}"
        for name, study in (params.studies.compared.items() if params.studies else [])
        for part in ("", "-curves")
        if not part or with_snapshots(study.algorithms)
    ]
