"""Recompute the tables of an arena that compare all algorithms of a benchmark with PG.

`field_points` has the end points (`tests.arena_records.END_POINTS`) of a benchmark by algorithm and
seed. Bootstrap intervals are drawn again, and may differ by the tolerances below.
"""

import math
import re
import statistics
from collections.abc import Iterator
from functools import partial

import numpy as np
from scipy import stats

from tests import arena_statistics as recomputed
from tests.arena_records import Cells, Comparison, label
from tests.recompute_statistics import (
    Result,
    format_percent,
    format_points,
    format_ratio,
    format_result,
)

# Largest difference of an end of a bootstrap interval, in percentage points.
TOLERANCES = {"Accuracy": 1.0, "P": 5.0}
# By key of `show_standing`: the first words of the column's title.
COLUMNS = {
    "Accuracy": "Accuracy", "P": "P(above", "In time": "Difference in equal", "Ratio": "Ratio",
    "Difference": "Difference to", "clip_fraction": "Clipped", "staleness": "Staleness",
}  # fmt: skip


def compare_standings(
    benchmark: str, printed: Cells, field_points: dict, skeletons: dict | None
) -> Iterator[Comparison]:
    """Yield a comparison for every number in the table of a benchmark's algorithms.

    Args:
        skeletons: the skeleton of each problem by id, if errors are clustered over skeletons.
    """
    titles = list(dict.fromkeys(title for _, title in printed))
    for name in field_points:
        for key, expected in show_standing(field_points, name, skeletons).items():
            (title,) = (t for t in titles if t.startswith(COLUMNS.get(key, key)))
            text = printed[label(name), title]
            if key in TOLERANCES:
                text, _, interval = text.partition(" ")
                drawn = draw_interval(field_points, name, key)
                yield (f"{benchmark} {name} {title}", *apply_tolerance(interval, drawn, key))
            yield f"{benchmark} {name} {title}", expected, text
        for title in (t for t in titles if t.startswith("Pass@")):
            k = title.removeprefix("Pass@")
            share = statistics.fmean(run.pass_at[k] for run in field_points[name].values())
            text, *_ = printed[label(name), title].split(" ")
            yield f"{benchmark} {name} {title}", format_percent(share), text
    fastest = sorted(field_points, key=partial(_rank, field_points))
    for expected, name in zip(fastest, dict.fromkeys(name for name, _ in printed), strict=True):
        yield f"{benchmark} order", label(expected), name


def show_standing(field_points: dict, name: str, skeletons: dict | None = None) -> dict[str, str]:
    """Return the cells of an algorithm in a benchmark's table, without bootstrap intervals.

    Args:
        skeletons: the skeleton of each problem by id, if errors are clustered over skeletons.
    """
    runs, pg_runs = field_points[name], field_points["pg"]
    accuracies = [run.accuracy for run in runs.values()]
    median = recomputed.median([run.seconds for run in runs.values()])
    cells = {"Seconds": format_result(lambda s: "never" if math.isinf(s) else f"{s:.2f}", median)}
    cells["Accuracy"] = format_percent(stats.trim_mean(accuracies, 0.25))
    for metric, show in (("clip_fraction", format_percent), ("staleness", format_ratio)):
        values = [v for run in runs.values() if (v := getattr(run, metric)) is not None]
        cells[metric] = show(statistics.fmean(values)) if values else "N/A"
    if name == "pg":
        return cells
    pg_accuracies = [run.accuracy for run in pg_runs.values()]
    wins = statistics.fmean((a > b) + (a == b) / 2 for a in accuracies for b in pg_accuracies)
    logs = [math.log(run.runtime / pg_runs[s].runtime) for s, run in runs.items() if s in pg_runs]
    half_width = stats.t.isf(0.025, len(logs) - 1) * statistics.stdev(logs) / len(logs) ** 0.5
    ends = (statistics.fmean(logs) + d for d in (0, -half_width, half_width))
    ratio = recomputed.compare_seconds([(runs, pg_runs)])
    if not 0 < ratio.low <= ratio.high < math.inf:
        ratio = ratio.median
    difference = recomputed.compare_scores(runs, pg_runs, skeletons)
    return cells | {
        "Ratio": format_result(format_ratio, ratio),
        "Difference": format_result(format_points, difference),
        "P": format_percent(wins),
        "In time": format_result(
            format_points, recomputed.compare_means([(runs, pg_runs)], "accuracy_in_time")
        ),
        "Runtime": format_result(format_ratio, Result(*map(math.exp, ends))),
    }


def draw_interval(field_points: dict, name: str, key: str) -> list[float]:
    """Return a bootstrap interval of the accuracy or of P; samples have n - 1 of the n runs."""
    rng = np.random.default_rng(1)
    ours, reference = ([run.accuracy for run in field_points[n].values()] for n in (name, "pg"))
    samples = [rng.choice(ours, len(ours) - 1) for _ in range(3000)]
    if key == "P" and min(ours) > max(reference):  # nothing varies: Clopper and Pearson's interval
        return [0.025 ** (1 / len(ours)), 1.0]
    if key == "Accuracy":
        replicates = [stats.trim_mean(sample, 0.25) for sample in samples]
    else:
        replicates = [
            (np.searchsorted(drawn, sample) + np.searchsorted(drawn, sample, "right")).mean()
            / (2 * len(drawn))
            for sample in samples
            if len(drawn := np.sort(rng.choice(reference, len(reference) - 1)))
        ]
    return [*np.quantile(replicates, [0.025, 0.975])]


def apply_tolerance(printed: str, drawn: list[float], key: str) -> tuple[str, str]:
    """Return the recomputed and the printed interval; the printed one twice if they are close."""
    ends = [float(end) for end in re.findall(r"[\d.]+", printed)]
    near = len(ends) == 2 and all(
        abs(end - 100 * again) <= TOLERANCES[key] for end, again in zip(ends, drawn, strict=True)
    )
    return (printed if near else str(drawn)), printed


def _rank(field_points: dict, name: str) -> tuple[float, float]:
    runs = field_points[name].values()
    seconds = statistics.median(run.seconds for run in runs)
    return seconds, -statistics.fmean(run.accuracy for run in runs)
