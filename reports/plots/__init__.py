"""The figures of the reports. To add one to the main report, add a module to `figures`.

The file's name becomes the figure's. The module has a function `figure(measured)` that returns a
`style.Figure`, most easily with `panels.panel_figure`. contents.yaml gives the figure its place in
report.html; without an entry it stands at the end. A `Figure` has a caption, a list of missing runs
and a function that draws it, so that the first two are known without drawing.

This module does not import matplotlib, because the workflow needs the names of figures only.
"""

from importlib import import_module
from pathlib import Path

from rapid.config.params import Params

_MODULES = sorted(path.stem for path in Path(__file__).with_name("figures").glob("[a-z]*.py"))
FIGURES = [name.replace("_", "-") for name in _MODULES]


def build(kind: str, measured) -> dict:
    """Return all figures of a kind of report ("report", "studies" or "arena"), by name."""
    if kind != "report":
        return import_module(f"{__name__}.{kind}").figures(measured)
    modules = (import_module(f"{__name__}.figures.{name}") for name in _MODULES)
    return {name: module.figure(measured) for name, module in zip(FIGURES, modules, strict=True)}


def arena_figures(params: Params) -> list[str]:
    """Return the names of the arena's figures; the report on its tuning has none."""
    arena = params.arena
    if not arena or arena.tuning:
        return []
    return [
        *(f"arena-{name}" for name in arena.fields),
        *(["arena-map"] if arena.planned_maps else []),
    ]


def study_figures(params: Params) -> list[str]:
    """Return the names of the studies' figures: one each, and one of curves if it has snapshots."""
    from reports.statistics.curves import with_snapshots

    return [
        f"{name}{part}"
        for name, study in (params.studies.compared.items() if params.studies else [])
        for part in ("", "-curves")
        if not part or with_snapshots(study.algorithms)
    ]
