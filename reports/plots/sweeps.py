"""Figure of a study that sweeps a parameter: metrics by its value, with a column for each H.

H is the number of optimizer steps per inference batch. Variants that differ only in the swept
parameter share a line. `Study.sweep` in params.yaml names the parameter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes

from rapid.algorithms.variant_names import parse_variant_name
from rapid.artifacts.metrics import EVALUATION_METRICS
from rapid.config.params import Params
from reports import labels
from reports.collect import get_result_path
from reports.plots import style
from reports.plots.panels import Quantity
from reports.plots.series_styles import DASHES, MARKERS, SeriesStyle
from reports.plots.style import Canvas, Figure, LegendEntries
from reports.statistics import estimates, pairs
from reports.statistics.estimates import Estimate
from reports.tables.study_runs import StudyRuns

COLORS = [style.BLUE, style.RED, "#009E73", "#CC79A7", style.ORANGE, style.SKY, style.GREY]
SHIFT = 0.012  # between lines, relative to the x-axis's length, so that none hides another
ROW_HEIGHT = 1.5  # inches
MIN_RANGE = 1e-6  # smallest range of a y-axis; in a smaller one only rounding errors would be seen


@dataclass(frozen=True)
class SweptVariants:
    """Variants that differ in the swept parameter only, by its value; they share a line.

    `label` names the other changes that these variants have in common, but not all variants of the
    study have, such as "weighted = false". If there are none, it is the algorithm's label.
    """

    h: int
    label: str
    by_value: dict[float, str]


def group_variants(params: Params, study: StudyRuns) -> list[SweptVariants]:
    """Return the lines of a study's figure, in the order of their first variants."""
    by_line: dict[tuple[int, str], dict[float, str]] = {}
    for name in study.runs.algorithms:
        parsed = parse_variant_name(name)
        changes = dict(study.parse_changes(name))
        default = getattr(parsed.algorithm.get_loss_parameters(params), study.sweep)
        value = float(changes.pop(study.sweep, default))
        for key in study.shared_changes.keys() - {study.sweep}:
            del changes[key]
        text = ", ".join(f"{key} = {change}" for key, change in changes.items())
        by_line.setdefault((parsed.H, text or parsed.algorithm.label), {})[value] = name
    return [
        SweptVariants(h, label, dict(sorted(by_value.items())))
        for (h, label), by_value in by_line.items()
    ]


def list_quantities(params: Params, study: StudyRuns) -> list[Quantity]:
    """Return the rows of a study's figure: each pass@k, and with `diversity` further metrics."""
    ks = params.benchmarks[study.runs.benchmark].pass_at
    quantities = [Quantity(f"{pairs.PASS_AT}{k}", f"Pass@{k} (%)", scale=100) for k in ks]
    for name, metric in EVALUATION_METRICS.items() if params.evaluation.diversity else ():
        unit, scale = ("%", 100.0) if metric.unit == "share" else (metric.unit, 1.0)
        label = f"{metric.label} ({unit})" if unit else metric.label
        quantities.append(Quantity(name, label, scale))
    return quantities


def build_sweep_figure(params: Params, study: StudyRuns) -> Figure:
    """Return the figure of a study that sweeps a parameter."""
    quantities = list_quantities(params, study)
    runs = pd.concat([study.untrained, study.runs.frame])
    lines = group_variants(params, study)
    return Figure(
        title=f"{study.title}: by {study.sweep}",
        caption=(
            f"Metrics on the test problems by {study.sweep}, for each H: means over seeds with "
            "their 95 % confidence intervals (for pass@k, over seeds and problems). Points are "
            "shifted sideways where they would hide each other. The dashed line is "
            f"{labels.describe_start_model(study.start)}."
        ),
        draw=lambda width: _draw_panels(study, lines, quantities, width),
        problems=[study.runs.problems],
        missing=study.list_missing_runs(),
        sources=list(
            dict.fromkeys(get_result_path(run, study.metric) for _, run in runs.iterrows())
        ),
    )


def _draw_panels(
    study: StudyRuns, lines: Sequence[SweptVariants], quantities: list[Quantity], width: float
) -> Canvas:
    hs = sorted({line.h for line in lines})
    labels_of_lines = list(dict.fromkeys(line.label for line in lines))
    canvas, panels = style.create_canvas(
        width,
        height=ROW_HEIGHT * len(quantities),
        rows=len(quantities),
        columns=len(hs),
        sharex=True,
        sharey="row",
    )
    values = sorted({value for line in lines for value in line.by_value})
    length = (values[-1] - values[0]) or 1.0
    entries: LegendEntries = {}
    for row, quantity in zip(panels, quantities, strict=True):
        row[0].set_ylabel(quantity.label)
        for axes, h in zip(row, hs, strict=True):
            untrained = study.untrained[quantity.metric].mean()
            if pd.notna(untrained):
                axes.axhline(quantity.scale * untrained, color="black", lw=0.8, ls=style.DASHED)
            for line in lines:
                if line.h != h:
                    continue
                number = labels_of_lines.index(line.label)
                shift = SHIFT * length * (number - (len(labels_of_lines) - 1) / 2)
                entries |= _draw_line(axes, study, line, quantity, _choose_style(number), shift)
            axes.set_xticks(values, [f"{value:g}" for value in values])
        low, high = row[0].get_ylim()
        if high - low < MIN_RANGE:
            row[0].set_ylim(0, 1)  # all values are equal
    for axes, h in zip(panels[0], hs, strict=True):
        style.set_title(axes, f"H = {h}")
    for axes in panels[-1]:
        axes.set_xlabel(study.sweep)
    style.draw_legend(canvas, {text: entries[text] for text in labels_of_lines if text in entries})
    return canvas


def _choose_style(number: int) -> SeriesStyle:
    """Return the style of a line by its number. If there are many lines, colours repeat first."""
    dash = () if number == 0 else DASHES[(number - 1) % len(DASHES)]
    return SeriesStyle(COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)], dash)


def _draw_line(
    axes: Axes,
    study: StudyRuns,
    line: SweptVariants,
    quantity: Quantity,
    series_style: SeriesStyle,
    shift: float,
) -> LegendEntries:
    """Draw the means of a line's variants with their intervals; return its entry of the legend."""
    points = [
        (value + shift, estimate)
        for value, name in line.by_value.items()
        if (estimate := estimate_metric(study.runs.select(name), quantity.metric))
    ]
    if not points:
        return {}
    scale = quantity.scale
    x = [value for value, _ in points]
    y = [scale * estimate.value for _, estimate in points]
    for value, estimate in points:
        if estimate.low is not None:
            ends = [scale * estimate.low, scale * estimate.high]
            axes.plot([value, value], ends, color=series_style.color, lw=0.8)
    (artist,) = axes.plot(
        x, y, color=series_style.color, ls=series_style.line, **series_style.markers
    )
    return {line.label: artist}


def estimate_metric(runs: pd.DataFrame, metric: str) -> Estimate | None:
    """Return the mean of a metric over runs with its interval; None if no run has the metric."""
    if metric.startswith(pairs.PASS_AT):
        return pairs.estimate_accuracy(runs, metric)
    return estimates.estimate_mean(list(runs[metric]))
