"""Completion length and inference time by H: a row for each, a panel for each benchmark."""

from functools import partial

from reports.plots.panels import Quantity, by_h

figure = partial(
    by_h,
    quantities=[
        Quantity("completion_length", "completion length (tokens)"),
        Quantity("runtime.sampling", "inference time", seconds=True),
    ],
    title="Completion length and inference time by H",
    caption="Mean tokens of the completions of a training run, and its sampling time. Points "
    "are runs, lines are means over seeds. The paper shows both for MATH.",
)
