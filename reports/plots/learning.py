"""Learning curves: the reward of mini-batches as training goes on."""

import numpy as np

from rapid.algorithms.names import imitates
from rapid.artifacts.manifests import read_rows
from rapid.artifacts.runs import StepRecord
from reports import labels
from reports.measured import Measured
from reports.plots import style
from reports.plots.style import Figure

POINTS = 120  # of a curve over time
Curve = tuple[np.ndarray, np.ndarray]  # x and smoothed reward of one run, both (steps,)


def figure(measured: Measured, x: str, label: str, title: str) -> Figure:
    """Return the figure of rewards by a field of the optimizer steps, `step` or `seconds`."""
    curves, missing, sources = {}, [], []
    for contest in measured.contests.values():
        of = curves[contest.label] = {}
        for name in measured.params.tables.main.algorithms:
            if imitates(name):  # imitation has no reward
                continue
            for _, run in contest.of(name).iterrows():
                path = f"{run.folder}/steps.jsonl"
                rows = read_rows(measured.root / path, StepRecord)
                steps = [row for row in rows if row.reward is not None and np.isfinite(row.reward)]
                if steps:
                    of.setdefault(name, []).append(curve(steps, x))
                    sources.append(path)
                else:
                    where = f"{labels.algorithm(name)} on {contest.label}"
                    missing.append(f"{where}, seed {run.seed}: no steps.jsonl with a reward")
    return Figure(
        title=title,
        caption=(
            "Mean reward of the mini-batches, a moving mean over an eighth of the steps; lines are "
            "means over seeds, as far as every seed goes, bands one standard deviation. DAPO "
            "replaces groups that are all right or all wrong, so that its mini-batches' rewards do "
            "not compare with the others'."
        ),
        draw=lambda: _draw(curves, label),
        problems=[*measured.problems.values()],
        missing=missing,
        sources=sources,
    )


def smooth(values: np.ndarray, window: int) -> np.ndarray:
    """Return the mean of each value and the window - 1 before it: shape (n - window + 1,)."""
    return np.convolve(values, np.full(window, 1 / window), mode="valid")


def curve(steps: list[StepRecord], x: str) -> Curve:
    """Return the smoothed rewards of a run by a field of its steps."""
    window = max(1, len(steps) // 8)
    rewards = smooth(np.array([step.reward for step in steps]), window)
    return np.array([getattr(step, x) for step in steps[window - 1 :]], float), rewards


def average(curves: list[Curve]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return x, mean and standard deviation over runs, where all of them have values.

    The deviation is `None` for one run.
    """
    low = max(x[0] for x, _ in curves)
    high = min(x[-1] for x, _ in curves)
    same = all(len(x) == len(curves[0][0]) and (x == curves[0][0]).all() for x, _ in curves)
    grid = curves[0][0] if same else np.linspace(low, max(low, high), POINTS)
    values = np.stack([np.interp(grid, x, y) for x, y in curves])
    return grid, values.mean(0), values.std(0, ddof=1) if len(curves) > 1 else None


def _draw(curves: dict[str, dict[str, list[Curve]]], label: str):
    canvas, (row,) = style.panels(list(curves), share_y=True)
    for axes, by_name in zip(row, curves.values(), strict=True):
        for name, of in by_name.items():
            x, mean, deviation = average(of)
            every = max(1, len(x) // 6)
            style.line(axes, name, x, mean, deviation, every, labels.algorithm(name))
        if by_name:
            axes.set_xlabel(label)
        else:
            style.empty(axes)
    row[0].set_ylabel("reward")
    row[0].set_ylim(0, 1)  # for all panels, which share it
    style.legend(canvas, row)
    return canvas
