"""The figures: what each shows, and how it is drawn. Only here is matplotlib imported.

A figure is described first and drawn when it is asked for, so that its caption and what it lacks are
known without drawing it.
"""

from pathlib import Path

import pandas as pd

from rapid.config.params import Params
from reports.plots import curves, phases, studies, sweep, tokens, tradeoff
from reports.plots.style import Figure


def build(params: Params, frame: pd.DataFrame, root: Path) -> list[Figure]:
    """All figures of the report, in its order."""
    return [
        phases.figure(params, frame),
        tradeoff.figure(params, frame),
        *curves.figures(params, root),
        *sweep.figures(params, frame),
        tokens.figure(params, root),
    ]


def build_studies(params: Params, frame: pd.DataFrame, root: Path) -> list[Figure]:
    """All figures of the studies."""
    return studies.figures(params, frame, root)
