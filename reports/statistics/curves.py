"""Accuracy on the test problems by training time, of runs that saved snapshots of the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from rapid.algorithms.variant_names import parse_variant_name
from rapid.artifacts.evaluations import CURVE, CurvePoint
from rapid.artifacts.files import BadFile
from rapid.artifacts.manifests import read_rows

LEVEL_SPACING = 0.05  # distance between two levels of accuracy: 5 percentage points
ROUNDING = 1e-9  # accuracies that differ by less are equal


@dataclass(frozen=True)
class AccuracyCurve:
    """The accuracy of one run during training, at several points.

    Args:
        seconds: training time at each point, from 0.
        accuracy: accuracy at each point, from 0 to 1.
        completions: number of completions sampled until each point, on the assumption that all
            optimizer steps use equally many.
    """

    seconds: tuple[float, ...]
    accuracy: tuple[float, ...]
    completions: tuple[float, ...] = ()

    def seconds_to_reach(self, level: float) -> float | None:
        """Return the seconds until the interpolated accuracy reaches a level; None if never."""
        if self.accuracy[0] >= level - ROUNDING:
            return self.seconds[0]
        points = zip(self.seconds, self.accuracy, strict=True)
        for (start, previous), (end, current) in pairwise(points):
            if current >= level - ROUNDING:
                return start + (end - start) * (level - previous) / (current - previous)
        return None

    def accuracy_at(self, seconds: np.ndarray | float) -> np.ndarray:
        """Return the interpolated accuracy at these seconds, an array of the same shape.

        After the end of the run it is the final accuracy.
        """
        return np.interp(seconds, self.seconds, self.accuracy)

    def accuracy_after(self, completions: float) -> float:
        """Return the interpolated accuracy after this number of completions.

        After the last completion it is the final accuracy.
        """
        return float(np.interp(completions, self.completions, self.accuracy))


def select_with_snapshots(algorithms: Sequence[str]) -> list[str]:
    """Return the algorithms whose runs save snapshots of the model during training."""
    return [name for name in algorithms if parse_variant_name(name).changes.snapshots]


def read_curves(
    runs: pd.DataFrame, untrained: pd.DataFrame, metric: str, root: Path
) -> dict[int, AccuracyCurve]:
    """Return the accuracy curves of an algorithm's runs, by seed, without runs that have none.

    The first point of every curve is the mean accuracy in `untrained`, the rows of the model that
    the runs start from. Without this accuracy no run has a curve.

    Raises:
        BadFile: a curve.jsonl is damaged, or lacks the metric.
    """
    start, k = untrained[metric].mean(), int(metric.removeprefix("pass@"))
    curves_by_seed = {}
    for _, run in runs.dropna(subset=[metric, "runtime"]).iterrows():
        points = read_rows(root / get_curve_path(run), CurvePoint)
        if not points or not np.isfinite(start):
            continue
        if any(k not in point.pass_at for point in points):
            raise BadFile(f"{root / get_curve_path(run)}: a point has no {metric}")
        per_step = run.completions / max(1, run.optimizer_steps)
        snapshots = [(point.seconds, point.pass_at[k], point.step * per_step) for point in points]
        end = (run.runtime, run[metric], run.completions)
        columns = zip((0.0, start, 0.0), *snapshots, end, strict=True)
        curves_by_seed[run.seed] = AccuracyCurve(*columns)
    return curves_by_seed


def get_curve_path(run: pd.Series) -> str:
    """Return the path of a run's curve, below the root."""
    return f"{run['evaluation']}/{CURVE}"


def compute_chance_to_reach(level: float, start: float, noises: Sequence[float]) -> float:
    """Return the probability that a model that learns nothing reaches a level of accuracy.

    It is the probability that the highest of several evaluations of the untrained model is at least
    the level, if the accuracies of evaluations are normally distributed.

    Args:
        start: mean accuracy of the untrained model.
        noises: standard deviation of the accuracy in each evaluation during and after training.
    """
    below = [
        stats.norm.cdf(level, start, noise) if noise else float(start < level) for noise in noises
    ]
    return float(1 - np.prod(below))


def choose_levels(curves: Sequence[AccuracyCurve]) -> list[float]:
    """Return the multiples of LEVEL_SPACING above the curves' lowest start, up to their maximum."""
    if not curves:
        return []
    low = min(curve.accuracy[0] for curve in curves)
    high = max(max(curve.accuracy) for curve in curves)
    levels = (number * LEVEL_SPACING for number in range(1, round(1 / LEVEL_SPACING) + 1))
    return [level for level in levels if low < level - ROUNDING <= high]
