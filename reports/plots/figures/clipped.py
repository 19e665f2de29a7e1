"""The share of clipped importance weights by H."""

from reports.measured import Measured
from reports.plots import sweep
from reports.plots.style import Figure
from reports.plots.sweep import Quantity


def figure(measured: Measured) -> Figure:
    """Return a panel for each benchmark."""
    return sweep.figure(
        measured,
        [Quantity("clip_fraction", "clipped weights (%)", scale=100)],
        title="Clipped importance weights by H",
        caption=(
            "Share of a run's importance weights above eta, over the completions that enter the "
            "gradient. Points are runs, the line is the mean over seeds."
        ),
    )
