"""Print the time that an arena's runs lost to other processes, and the claims without it.

    python -m tests.lost_time arena-minif2f

It reads the archives of an arena that is recorded seed by seed (arena-minif2f, arena-rivals).
A run loses time while it waits for its core (`waited` in summary.json). The first table has each
algorithm's median share of lost time, and the largest. The second judges the arena's claims twice:
as recorded, and with this time subtracted from each run, spread evenly over the run. The p values
are those before Holm's adjustment, and the verdicts those after it. Time that a hypervisor took
(`stolen`) is not subtracted.
"""

import statistics
import sys
from copy import deepcopy
from functools import partial
from types import SimpleNamespace

import yaml

from tests.arena_records import compute_end_points_of_fields, read_blocks
from tests.conftest import ROOT
from tests.recompute_arena import compare_latest, draw_clusters, judge
from tests.recompute_statistics import format_p, format_percent

FOLDER = ROOT / "experiments"


def list_lost_shares(runs: dict, fields: dict) -> dict[tuple[str, str], list[float]]:
    """Return the share of lost time of each run, by benchmark and algorithm of the arena."""
    return {
        (benchmark, name): [
            _compute_lost_share(run)
            for (run_benchmark, full_name), by_seed in runs.items()
            if run_benchmark == benchmark and full_name.startswith(f"{name},problems=")
            for run in by_seed.values()
        ]
        for benchmark, field in fields.items()
        for name in field["rates"]
    }


def _compute_lost_share(run) -> float:
    return run.summary["waited"] / run.summary["runtime"]["total"]


def subtract_lost_time(runs: dict) -> dict:
    """Return the runs as if they had lost no time."""
    runs = deepcopy(runs)
    for run in (run for by_seed in runs.values() for run in by_seed.values()):
        if not hasattr(run, "curve"):
            continue  # the start, which was evaluated and not trained
        kept_share = 1 - _compute_lost_share(run)
        run.summary["runtime"]["total"] *= kept_share
        for point in run.curve:
            point["seconds"] *= kept_share
    return runs


def judge_with_and_without_lost_time(
    arena: str,
) -> tuple[dict[tuple[str, str], list[float]], list[SimpleNamespace]]:
    """Return the shares of lost time, and each claim judged with and without it.

    A judged claim has `name`, `p` and `verdict` as recorded, and `p_without` and `verdict_without`.
    """
    params = yaml.safe_load((FOLDER / f"{arena}.yaml").read_text())
    fields = params["arena"]["fields"]
    runs = read_blocks(FOLDER, arena)
    judged = []
    for version in (runs, subtract_lost_time(runs)):
        points = compute_end_points_of_fields(version, fields)
        skeletons = draw_clusters(params, points)
        rows = judge(fields, partial(compare_latest, points, skeletons=skeletons))
        judged.append([row for benchmark_rows in rows.values() for row in benchmark_rows])
    claims = [
        SimpleNamespace(
            name="{ours} and {theirs}, by {by}".format(**row.claim),
            p=_format_p(row),
            verdict=row.verdict,
            p_without=_format_p(row_without),
            verdict_without=row_without.verdict,
        )
        for row, row_without in zip(*judged, strict=True)
    ]
    return list_lost_shares(runs, fields), claims


def _format_p(row) -> str:
    equal = 1.0 if row.claim["by"] == "seconds" else 0.0
    return "none" if row.result.p is None else format_p(row.result.p(equal))


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not list(FOLDER.glob(f"{arguments[0]}-seed*.tar.xz")):
        print(
            "Give the name of an arena that has archives of seeds in experiments/", file=sys.stderr
        )
        return 2
    shares, claims = judge_with_and_without_lost_time(arguments[0])
    print(f"{'Lost time':60}{'median':>8}{'largest':>9}")
    for (benchmark, name), values in shares.items():
        median, largest = format_percent(statistics.median(values)), format_percent(max(values))
        print(f"{benchmark + ' ' + name:60}{median:>8}{largest:>9}")
    print(
        f"\n{'':72}{'recorded':20}without lost time\n{'Claim':72}" + 2 * f"{'p':10}{'verdict':10}"
    )
    for claim in claims:
        cells = claim.p, claim.verdict, claim.p_without, claim.verdict_without
        print(f"{claim.name:72}" + "".join(f"{cell:10}" for cell in cells).rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
