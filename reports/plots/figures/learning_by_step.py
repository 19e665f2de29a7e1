"""Learning curves by optimizer step."""

from reports.measured import Measured
from reports.plots import learning
from reports.plots.style import Figure


def figure(measured: Measured) -> Figure:
    """Return a panel for each benchmark, with a line for each RL algorithm."""
    title = "Learning curves by optimizer step"
    return learning.figure(measured, "step", "optimizer step", title)
