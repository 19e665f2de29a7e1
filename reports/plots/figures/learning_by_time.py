"""Learning curves by wall-clock time: a panel for each benchmark, a line for each algorithm."""

from functools import partial

from reports.plots import learning

figure = partial(
    learning.figure, x="seconds", label="time of training", title="Learning curves by time"
)
