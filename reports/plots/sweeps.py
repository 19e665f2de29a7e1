"""Figure of a study that sweeps a parameter: metrics against its value, with a column for each H.

H is the number of optimizer steps per inference batch. Variants that differ only in the swept
parameter are a line. `Study.sweep` in params.yaml names the parameter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes

from rapid.algorithms.variant_names import parse
from rapid.artifacts.metrics import EVALUATION_METRICS
from rapid.config.params import Params
from reports import labels
from reports.collect import file_of
from reports.plots import style
from reports.plots.looks import DASHES, MARKERS, SeriesLook
from reports.plots.panels import Quantity
from reports.plots.style import Canvas, Entries, Figure
from reports.statistics import estimates, pairs
from reports.statistics.estimates import Estimate
from reports.tables.columns import missing_reasons
from reports.tables.study_runs import StudyRuns

COLORS = [style.BLUE, style.RED, "#009E73", "#CC79A7", style.ORANGE, style.SKY, style.GREY]
SHIFT = 0.012  # distance of lines on the x-axis, relative to its length, so that none hides another
ROW_HEIGHT = 1.5  # inches
SMALLEST_RANGE = 1e-6  # of a y-axis; matplotlib would magnify rounding


@dataclass(frozen=True)
class SweptVariants:
    """Variants that differ in the swept parameter only.

    Args:
        changes: their other changes that not all variants of the study have: "weighted = false".
        by_value: name of the variant by value of the swept parameter.
    """

    h: int
    changes: str
    by_value: dict[float, str]


def group_variants(params: Params, study: StudyRuns) -> list[SweptVariants]:
    """Return the lines of a study's figure, in the order of their first variants."""
    by_line: dict[tuple[int, str], dict[float, str]] = {}
    for name in study.contest.algorithms:
        parsed = parse(name)
        changes = {key: value for key, value in study.changes(name) if key not in study.shared}
        default = getattr(parsed.algorithm.get_loss_parameters(params), study.sweep)
        value = float(changes.pop(study.sweep, default))
        text = ", ".join(f"{key} = {change}" for key, change in changes.items())
        by_line.setdefault((parsed.H, text or parsed.algorithm.label), {})[value] = name
    return [
        SweptVariants(h, changes, dict(sorted(by_value.items())))
        for (h, changes), by_value in by_line.items()
    ]


def list_quantities(params: Params, study: StudyRuns) -> list[Quantity]:
    """Return the rows of a study's figure: each pass@k, and with `diversity` further metrics."""
    ks = params.benchmarks[study.contest.benchmark].pass_at
    quantities = [Quantity(f"{pairs.PASS_AT}{k}", f"Pass@{k} (%)", 100) for k in ks]
    for name, metric in EVALUATION_METRICS.items() if params.evaluation.diversity else ():
        unit, scale = ("%", 100.0) if metric.unit == "share" else (metric.unit, 1.0)
        label = f"{metric.label} ({unit})" if unit else metric.label
        quantities.append(Quantity(name, label, scale))
    return quantities


def draw_sweep(params: Params, study: StudyRuns) -> Figure:
    """Return the figure of a study that sweeps a parameter."""
    quantities = list_quantities(params, study)
    runs = pd.concat([study.before, study.contest.runs])
    lines = group_variants(params, study)
    return Figure(
        title=f"{study.title}: by {study.sweep}",
        caption=(
            f"Metrics of the test problems by {study.sweep}, for each H: means over seeds with "
            "their 95 % confidence intervals (over problems too for pass@k). Points are shifted "
            "sideways where they would hide each other. The dashed line is "
            f"{labels.model_of(study.start)}."
        ),
        draw=lambda width: _draw(study, lines, quantities, width),
        problems=[study.contest.problems],
        missing=[
            f"{study.label(name)}: {reason}"
            for name in study.contest.algorithms
            if (reason := missing_reasons(study.contest.of(name), [study.metric]))
        ],
        sources=list(dict.fromkeys(file_of(run, study.metric) for _, run in runs.iterrows())),
    )


def _draw(
    study: StudyRuns, lines: Sequence[SweptVariants], quantities: list[Quantity], width: float
) -> Canvas:
    ratios = sorted({line.h for line in lines})
    kinds = list(dict.fromkeys(line.changes for line in lines))
    canvas, panels = style.create_canvas(
        width, ROW_HEIGHT * len(quantities), len(quantities), len(ratios), sharex=True, sharey="row"
    )
    values = sorted({value for line in lines for value in line.by_value})
    length = (values[-1] - values[0]) or 1.0
    entries: Entries = {}
    for row, quantity in zip(panels, quantities, strict=True):
        row[0].set_ylabel(quantity.label)
        for axes, h in zip(row, ratios, strict=True):
            before = study.before[quantity.metric].mean()
            if pd.notna(before):
                axes.axhline(quantity.scale * before, color="black", lw=0.8, ls=(0, (6, 3)))
            for line in lines:
                if line.h != h:
                    continue
                kind = kinds.index(line.changes)
                shift = SHIFT * length * (kind - (len(kinds) - 1) / 2)
                entries |= _draw_line(axes, study, line, quantity, _choose_look(kind), shift)
            axes.set_xticks(values, [f"{value:g}" for value in values])
        low, high = row[0].get_ylim()
        if high - low < SMALLEST_RANGE:
            row[0].set_ylim(0, 1)  # all values are equal
    for axes, h in zip(panels[0], ratios, strict=True):
        style.set_title(axes, f"H = {h}")
    for axes in panels[-1]:
        axes.set_xlabel(study.sweep)
    style.draw_legend(canvas, {kind: entries[kind] for kind in kinds if kind in entries})
    return canvas


def _choose_look(kind: int) -> SeriesLook:
    """Return the look of a kind of line; colours repeat, markers and dashes do so later."""
    dash = () if kind == 0 else DASHES[(kind - 1) % len(DASHES)]
    return SeriesLook(COLORS[kind % len(COLORS)], MARKERS[kind % len(MARKERS)], dash)


def _draw_line(
    axes: Axes,
    study: StudyRuns,
    line: SweptVariants,
    quantity: Quantity,
    look: SeriesLook,
    shift: float,
) -> Entries:
    """Draw the means of a line's variants with their intervals; return its entry of the legend."""
    points = [
        (value + shift, estimate)
        for value, name in line.by_value.items()
        if (estimate := estimate_metric(study.contest.of(name), quantity.metric))
    ]
    if not points:
        return {}
    scale = quantity.scale
    x = [value for value, _ in points]
    y = [scale * estimate.value for _, estimate in points]
    for value, estimate in points:
        if estimate.low is not None:
            ends = [scale * estimate.low, scale * estimate.high]
            axes.plot([value, value], ends, color=look.color, lw=0.8)
    (artist,) = axes.plot(x, y, color=look.color, ls=look.line, **look.markers)
    return {line.changes: artist}


def estimate_metric(runs: pd.DataFrame, metric: str) -> Estimate | None:
    """Return the mean of a metric over runs with its interval; None if no run has the metric."""
    if metric.startswith(pairs.PASS_AT):
        return pairs.accuracy(runs, metric)
    return estimates.mean(list(runs[metric]))
