"""Learning curves by wall-clock time."""

from reports.measured import Measured
from reports.plots import learning
from reports.plots.style import Figure


def figure(measured: Measured) -> Figure:
    """Return a panel for each benchmark, with a line for each RL algorithm."""
    title = "Learning curves by time"
    return learning.figure(measured, "seconds", "seconds of training", title)
