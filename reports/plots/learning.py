"""Learning curves: mean reward of the mini-batches during training."""

import numpy as np
from matplotlib.axes import Axes

from rapid.artifacts.manifests import read_rows
from rapid.artifacts.runs import StepRecord
from reports import formats, labels
from reports.plots import style
from reports.plots.panels import panel_figure
from reports.plots.series_styles import SeriesStyle, assign_report_styles
from reports.plots.style import Figure, LegendEntries
from reports.report_data import SUPERVISED, BenchmarkRuns, ReportData

POINTS = 120  # number of points of a mean curve whose runs have different x
Curve = tuple[np.ndarray, np.ndarray]  # x and smoothed reward of one run, of equal length


def figure(data: ReportData, x: str, label: str, title: str) -> Figure:
    """Return the figure of rewards by a field of steps.jsonl, which is "step" or "seconds"."""
    curves: dict[tuple[str, str], list[Curve]] = {}  # by benchmark and algorithm
    missing, sources = [], []
    runs = [
        (benchmark_runs, name, run)
        for benchmark_runs in data.runs_by_benchmark.values()
        for name in data.params.tables.main.algorithms
        if name not in SUPERVISED  # SFT has no reward
        for _, run in benchmark_runs.select(name).iterrows()
    ]
    for benchmark_runs, name, run in runs:
        path = f"{run.folder}/steps.jsonl"
        rows = read_rows(data.root / path, StepRecord)
        steps = [row for row in rows if row.reward is not None and np.isfinite(row.reward)]
        if steps:
            curves.setdefault((benchmark_runs.benchmark, name), []).append(smooth_rewards(steps, x))
            sources.append(path)
        else:
            place = f"{labels.algorithm(name)} on {benchmark_runs.label}"
            missing.append(f"{place}, seed {run.seed}: no steps.jsonl with a reward")

    styles = assign_report_styles(data)

    def draw_curves(axes: Axes, benchmark_runs: BenchmarkRuns) -> LegendEntries:
        curves_by_name = {
            name: curves_of_name
            for (benchmark, name), curves_of_name in curves.items()
            if benchmark == benchmark_runs.benchmark
        }
        if axes.get_subplotspec().is_first_col():
            axes.set_ylabel("reward")
            axes.set_ylim(0, 1)  # sets the limits of all panels, which share the y-axis
        if not curves_by_name:
            return style.draw_empty(axes)
        unit, divisor = "", 1.0
        if x == "seconds":
            longest = max(seconds[-1] for runs in curves_by_name.values() for seconds, _ in runs)
            unit, divisor = formats.choose_time_unit(longest)
        axes.set_xlabel(f"{label} ({unit})" if unit else label)
        axes.xaxis.set_major_locator(style.create_few_ticks())
        return {
            labels.algorithm(name): _draw_mean(axes, styles[name], runs, divisor)
            for name, runs in curves_by_name.items()
        }

    return panel_figure(
        data,
        draw_curves,
        share_y=True,
        title=title,
        caption="Mean reward of the mini-batches, as a moving mean over an eighth of the "
        "optimizer steps. Lines are means over seeds, for the steps or times that all seeds cover; "
        "bands are one standard deviation. DAPO replaces groups that are all correct or all wrong, "
        "so its rewards are not comparable with the others'.",
        missing=missing,
        sources=sources,
    )


def _draw_mean(axes: Axes, series_style: SeriesStyle, runs: list[Curve], divisor: float) -> object:
    """Draw the mean of runs, with x divided by `divisor`, and a band of one standard deviation."""
    x, mean, deviation = average_curves(runs)
    marker_every = max(1, len(x) // 6)  # about six markers
    return style.draw_line(axes, series_style, x / divisor, mean, deviation, marker_every)


def moving_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Return the means of all `window` consecutive values, of shape (n - window + 1,)."""
    return np.convolve(values, np.full(window, 1 / window), mode="valid")


def smooth_rewards(steps: list[StepRecord], x: str) -> Curve:
    """Return the smoothed rewards of a run, with x from a field of its steps."""
    window = max(1, len(steps) // 8)
    rewards = moving_mean(np.array([step.reward for step in steps]), window)
    return np.array([getattr(step, x) for step in steps[window - 1 :]], float), rewards


def average_curves(curves: list[Curve]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return x, mean and standard deviation over runs, for the range of x that all runs cover.

    Runs with different x are interpolated at common points. The deviation of one run is None.
    """
    low = max(x[0] for x, _ in curves)
    high = min(x[-1] for x, _ in curves)
    have_same_x = all(np.array_equal(x, curves[0][0]) for x, _ in curves)
    # high is below low if a run ends before another run's first value; then only low is drawn.
    grid = curves[0][0] if have_same_x else np.linspace(low, max(low, high), POINTS)
    values = np.stack([np.interp(grid, x, y) for x, y in curves])
    return grid, values.mean(0), values.std(0, ddof=1) if len(curves) > 1 else None
