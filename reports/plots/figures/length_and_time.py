"""Completion length and inference time by H: a row for each of the two, a panel per benchmark.

H is the number of optimizer steps per inference batch.
"""

from functools import partial

from reports.plots.panels import Quantity, by_h

figure = partial(
    by_h,
    quantities=[
        Quantity("completion_length", "completion length (tokens)"),
        Quantity("runtime.sampling", "inference time", is_duration=True),
    ],
    title="Completion length and inference time by H",
    caption="Mean number of tokens of the completions in a training run, and the run's inference "
    "time without grading. Crosses are runs, lines are means over seeds. The paper shows both for "
    "MATH.",
)
