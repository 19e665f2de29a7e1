"""Learning curves by training time: a panel for each benchmark, a line for each algorithm."""

from functools import partial

from reports.plots import learning

figure = partial(
    learning.figure, x="seconds", label="training time", title="Learning curves by time"
)
