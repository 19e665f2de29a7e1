"""The share of clipped importance weights by H: a panel for each benchmark.

H is the number of optimizer steps per inference batch.
"""

from functools import partial

from reports.plots.panels import Quantity, by_h

figure = partial(
    by_h,
    quantities=[Quantity("clip_fraction", "clipped weights (%)", scale=100)],
    title="Clipped importance weights by H",
    caption="Share of a run's importance weights that exceed their bound eta, over the completions "
    "that enter the gradient. Crosses are runs, the line is the mean over seeds.",
)
