"""The figures. To add one to the report, add a module to `figures`: it is found there by its name.

Such a module has one function, `figure(measured)`, that returns a `style.Figure`;
`panels.panel_figure` makes one of the runs that it shows. contents.yaml gives its place in
report.html; by default it is at the end. A figure is described first and drawn later, so that its
caption and what it lacks are known without drawing it.

This module does not import matplotlib, because the workflow reads the names of figures too.
"""

from importlib import import_module
from pathlib import Path

from rapid.config.params import Params

_MODULES = sorted(path.stem for path in Path(__file__).with_name("figures").glob("[a-z]*.py"))
FIGURES = [name.replace("_", "-") for name in _MODULES]


def build(kind: str, measured) -> dict:
    """Return all figures of a kind of report, by name."""
    if kind != "report":
        return import_module(f"{__name__}.{kind}").figures(measured)
    modules = (import_module(f"{__name__}.figures.{name}") for name in _MODULES)
    return {name: module.figure(measured) for name, module in zip(FIGURES, modules, strict=True)}


def arena_figures(params: Params) -> list[str]:
    """Return the names of the arena's figures; its tuning has none."""
    arena = params.arena
    if not arena or arena.tuning:
        return []
    return [
        *(f"arena-{name}" for name in arena.fields),
        *(["arena-map"] if arena.planned_maps else []),
    ]


def study_figures(params: Params) -> list[str]:
    """Return the names of the studies' figures; one more for those that kept models on the way."""
    from reports.statistics.curves import kept

    return [
        f"{name}{part}"
        for name, study in (params.studies.compared.items() if params.studies else [])
        for part in ("", "-curves")
        if not part or kept(study.algorithms)
    ]
