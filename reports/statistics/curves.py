"""Accuracy on the test problems by time of training, of runs that kept models on the way."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from rapid.algorithms.names import parse
from rapid.artifacts.evaluations import CURVE, CurvePoint
from rapid.artifacts.files import BadFile
from rapid.artifacts.manifests import read_rows

STEP = 0.05  # between levels of accuracy
ROUNDING = 1e-9


@dataclass(frozen=True)
class AccuracyCurve:
    """The seconds of training of one run, from 0, and its accuracy there, a share of 1.

    `completions` were sampled until then: those of a run are spread over its steps alike.
    """

    seconds: tuple[float, ...]
    accuracy: tuple[float, ...]
    completions: tuple[float, ...] = ()

    def reaches(self, level: float) -> float | None:
        """Return when the line through the points is first at a level; `None` if never."""
        if self.accuracy[0] >= level - ROUNDING:
            return self.seconds[0]
        pairs = list(zip(self.seconds, self.accuracy, strict=True))
        for (t, low), (u, high) in pairwise(pairs):
            if high >= level - ROUNDING:
                return t + (u - t) * (level - low) / (high - low)
        return None

    def within(self, seconds: np.ndarray | float) -> np.ndarray:
        """Return accuracy at these seconds, of the same shape; behind the run's end that there."""
        return np.interp(seconds, self.seconds, self.accuracy)

    def after(self, completions: float) -> float:
        """Return accuracy after so many completions, or at the end of the run."""
        return float(np.interp(completions, self.completions, self.accuracy))


def kept(algorithms: Sequence[str]) -> list[str]:
    """Return the algorithms whose runs keep models on the way."""
    return [name for name in algorithms if parse(name).changes.snapshots]


def read(
    runs: pd.DataFrame, before: pd.DataFrame, metric: str, root: Path
) -> dict[int, AccuracyCurve]:
    """Return the curve of each run that has one, by seed.

    Args:
        runs: of one algorithm, as `collect` gives them.
        before: evaluations of the model that they start from: their mean is every curve's start.
        metric: pass@k.

    Raises:
        BadFile: a curve.jsonl is not what it should be.
    """
    start, k = before[metric].mean(), int(metric.removeprefix("pass@"))
    curves_by_seed = {}
    for _, run in runs.dropna(subset=[metric, "runtime"]).iterrows():
        points = read_rows(root / path_of(run), CurvePoint)
        if not points or not np.isfinite(start):
            continue
        if any(k not in point.pass_at for point in points):
            raise BadFile(f"{root / path_of(run)}: a point has no {metric}")
        per_step = run.completions / max(1, run.optimizer_steps)
        on_the_way = [(point.seconds, point.pass_at[k], point.step * per_step) for point in points]
        ends = (run.runtime, run[metric], run.completions)
        curves_by_seed[run.seed] = AccuracyCurve(
            *zip((0.0, start, 0.0), *on_the_way, ends, strict=True)
        )
    return curves_by_seed


def path_of(run: pd.Series) -> str:
    """Return the path of a run's curve, below the root."""
    return f"{run['evaluation']}/{CURVE}"


def levels(curves: Sequence[AccuracyCurve]) -> list[float]:
    """Return round levels of accuracy from the common start to the best of any curve."""
    if not curves:
        return []
    low, high = min(curve.accuracy[0] for curve in curves), max(max(c.accuracy) for c in curves)
    return [n * STEP for n in range(1, round(1 / STEP) + 1) if low < n * STEP - ROUNDING <= high]
