"""Learning curves by optimizer step: a panel for each benchmark, a line for each algorithm."""

from functools import partial

from reports.plots import learning

figure = partial(
    learning.figure, x="step", label="optimizer step", title="Learning curves by optimizer step"
)
