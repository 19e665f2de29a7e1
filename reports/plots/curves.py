"""Learning curves: the reward of mini-batches by optimizer step and by wall-clock seconds."""

from pathlib import Path

import numpy as np

from rapid.algorithms.names import imitates
from rapid.artifacts.files import BadRow, read_jsonl
from rapid.artifacts.runs import StepRecord
from rapid.config.jobs import plan
from rapid.config.params import Params
from rapid.config.specs import Run
from reports import notes
from reports.collect import BadRun
from reports.plots import style
from reports.plots.style import Figure

POINTS = 120  # of a curve over time
Curve = tuple[np.ndarray, np.ndarray]  # x and smoothed reward of one run, both (steps,)


def figures(params: Params, root: Path) -> list[Figure]:
    spec = params.tables.main
    names = [name for name in spec.algorithms if not imitates(name)]  # imitation has no reward
    runs = {
        benchmark: {
            name: [
                Run(benchmark=benchmark, model=spec.model, algorithm=name, seed=seed)
                for seed in spec.seeds
            ]
            for name in names
        }
        for benchmark in params.benchmarks
    }
    place = plan(params, root).folder
    steps = {
        benchmark: {
            name: [_steps(root / place(run.folder)) for run in of] for name, of in by_name.items()
        }
        for benchmark, by_name in runs.items()
    }
    missing = [
        f"{notes.algorithm(name)} on {notes.benchmark(benchmark)}, seed {run.seed}: no steps.jsonl "
        "with a reward"
        for benchmark, by_name in runs.items()
        for name, of in by_name.items()
        for run, found in zip(of, steps[benchmark][name], strict=True)
        if not found
    ]
    sources = [
        f"{place(run.folder)}/steps.jsonl"
        for benchmark, by_name in runs.items()
        for name, of in by_name.items()
        for run, found in zip(of, steps[benchmark][name], strict=True)
        if found
    ]
    texts = {
        "step": ("optimizer step", "learning-by-step", "Learning curves by optimizer step"),
        "seconds": ("seconds of training", "learning-by-time", "Learning curves by time"),
    }
    return [
        Figure(
            name=file,
            title=title,
            caption=(
                "Mean reward of the mini-batches, a moving mean over an eighth of the steps; lines are "
                "means over seeds, as far as every seed goes, bands one standard deviation. DAPO replaces groups that are all "
                "right or all wrong, so that its mini-batches' rewards do not compare with the others'."
            ),
            draw=lambda x=x, label=label: _draw(steps, x, label),
            missing=missing,
            sources=sources,
        )
        for x, (label, file, title) in texts.items()
    ]


def _steps(folder: Path) -> list[StepRecord]:
    path = folder / "steps.jsonl"
    if not path.is_file():
        return []
    try:
        rows = list(read_jsonl(path, StepRecord))
    except (BadRow, OSError) as error:
        raise BadRun(str(error)) from None
    return [row for row in rows if row.reward is not None and np.isfinite(row.reward)]


def smooth(values: np.ndarray, window: int) -> np.ndarray:
    """Mean of each value and the window - 1 before it: shape (n - window + 1,)."""
    return np.convolve(values, np.full(window, 1 / window), mode="valid")


def curve(steps: list[StepRecord], x: str) -> Curve:
    window = max(1, len(steps) // 8)
    rewards = smooth(np.array([step.reward for step in steps]), window)
    return np.array([getattr(step, x) for step in steps[window - 1 :]], float), rewards


def average(curves: list[Curve]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """x, mean and standard deviation over runs, where all of them have values.

    The deviation is `None` for one run.
    """
    low = max(x[0] for x, _ in curves)
    high = min(x[-1] for x, _ in curves)
    same = all(len(x) == len(curves[0][0]) and (x == curves[0][0]).all() for x, _ in curves)
    grid = curves[0][0] if same else np.linspace(low, max(low, high), POINTS)
    values = np.stack([np.interp(grid, x, y) for x, y in curves])
    return grid, values.mean(0), values.std(0, ddof=1) if len(curves) > 1 else None


def _draw(steps: dict[str, dict[str, list[list[StepRecord]]]], x: str, label: str):
    canvas, (row,) = style.panels(len(steps), share_y=True)
    for axes, (benchmark, by_name) in zip(row, steps.items(), strict=True):
        style.title(axes, benchmark)
        drawn = False
        for name, runs in by_name.items():
            found = [curve(run, x) for run in runs if run]
            if found:
                _line(axes, *average(found), name)
                drawn = True
        if drawn:
            axes.set_xlabel(label)
        else:
            style.empty(axes)
    row[0].set_ylabel("reward")
    row[0].set_ylim(0, 1)  # for all panels, which share it
    style.legend(canvas, row)
    return canvas


def _line(axes, x, mean, deviation, name: str) -> None:
    look = style.look(name)
    axes.plot(
        x,
        mean,
        color=look.color,
        ls=look.line,
        marker=look.marker,
        markevery=max(1, len(x) // 6),
        label=notes.algorithm(name),
    )
    if deviation is not None:
        axes.fill_between(x, mean - deviation, mean + deviation, color=look.color, alpha=0.13, lw=0)
