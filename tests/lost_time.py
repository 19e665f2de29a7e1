"""Print the time that runs of an arena lost to other processes, and the claims without it.

    python -m tests.lost_time arena-minif2f

A run loses time while it waits for its core (`waited` in summary.json). The first table has each
algorithm's median share of lost time. The second judges the arena's claims twice: as recorded, and
with the lost time subtracted from each run. Within a run, the loss is assumed to be spread evenly.
"""

import statistics
import sys
from copy import deepcopy
from functools import partial
from pathlib import Path

import yaml

from tests.arena_records import compute_end_points, draw_skeletons, read_runs
from tests.conftest import ROOT
from tests.recompute_arena import compare_latest, judge
from tests.recompute_statistics import format_p, format_percent

FOLDER = ROOT / "experiments"


def compute_lost_shares(runs: dict, benchmark: str, fields: dict) -> dict[str, float]:
    """Return the median share of lost time of each algorithm of an arena."""
    field, shares = fields[benchmark], {}
    for name in field["rates"]:
        ((_, by_seed),) = (
            (full_name, by_seed)
            for (run_benchmark, full_name), by_seed in runs.items()
            if run_benchmark == benchmark and full_name.startswith(f"{name},problems=")
        )
        shares[name] = statistics.median(_compute_lost_share(run) for run in by_seed.values())
    return shares


def _compute_lost_share(run) -> float:
    return run.summary["waited"] / run.summary["runtime"]["total"]


def subtract_lost_time(runs: dict) -> dict:
    """Return the runs as if they had lost no time."""
    runs = deepcopy(runs)
    for run in (run for by_seed in runs.values() for run in by_seed.values()):
        if not hasattr(run, "curve"):
            continue  # the start, which was evaluated and not trained
        share = 1 - _compute_lost_share(run)
        run.summary["runtime"]["total"] *= share
        for point in run.curve:
            point["seconds"] *= share
    return runs


def judge_with_and_without(arena: str, folder: Path = FOLDER) -> tuple[dict, list[tuple]]:
    """Return the median shares of lost time, and each claim's p and verdict, twice.

    A claim's tuple has its name, its p before Holm's adjustment and its verdict after it as
    recorded, and the same two without the lost time.
    """
    params = yaml.safe_load((FOLDER / f"{arena}.yaml").read_text())
    fields = params["arena"]["fields"]
    runs = read_runs(*sorted(folder.glob(f"{arena}-seed*.tar.xz")))
    judged = []
    for version in (runs, subtract_lost_time(runs)):
        points = {b: compute_end_points(version, b, f, f.get("reach")) for b, f in fields.items()}
        skeletons = params["arena"].get("clustered") and {
            b: draw_skeletons(b, len(next(iter(p["pg"].values())).scores), params["data_seed"])
            for b, p in points.items()
        }
        rows = judge(fields, partial(compare_latest, points, skeletons=skeletons))
        judged.append([row for benchmark_rows in rows.values() for row in benchmark_rows])
    shares = {
        name: share
        for benchmark in fields
        for name, share in compute_lost_shares(runs, benchmark, fields).items()
    }
    return shares, [
        (_describe(before.claim), *_show(before), *_show(after))
        for before, after in zip(*judged, strict=True)
    ]


def _describe(claim: dict) -> str:
    return f"{claim['ours']} and {claim['theirs']}, by {claim['by']}"


def _show(row) -> tuple[str, str]:
    if row.result.p is None:
        return "none", row.verdict
    return format_p(row.result.p(1.0 if row.claim["by"] == "seconds" else 0.0)), row.verdict


def main(arguments: list[str]) -> int:
    shares, claims = judge_with_and_without(arguments[0])
    for name, share in shares.items():
        print(f"{name:40}{format_percent(share):>8}")
    print()
    for name, *cells in claims:
        print(f"{name:70}", *(f"{cell:>8}" for cell in cells))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
