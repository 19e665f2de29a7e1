"""Completion length and inference time by H."""

from reports.measured import Measured
from reports.plots import sweep
from reports.plots.style import Figure
from reports.plots.sweep import Quantity


def figure(measured: Measured) -> Figure:
    """Return a row for each quantity, with a panel for each benchmark."""
    return sweep.figure(
        measured,
        [
            Quantity("completion_length", "completion length (tokens)"),
            Quantity("runtime.sampling", "inference time", seconds=True),
        ],
        title="Completion length and inference time by H",
        caption=(
            "Mean tokens of the completions of a training run, and its time of sampling. Points are "
            "runs, lines are means over seeds. The paper's figures of both are for MATH."
        ),
    )
