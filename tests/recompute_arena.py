"""Recompute the arena's tables from its raw record, without the code of the reports.

    python -m tests.recompute_arena

It reads summary.json, evaluation.json and curve.jsonl in experiments/arena-raw.tar.xz, the records of
end points and of tuning, and experiments/arena.yaml. It compares every number in arena-results.csv,
arena-tables.txt and arena-pooled.txt, and prints those that differ. Bootstrap intervals depend on
random numbers. They are drawn again, and may differ by the tolerances in recompute_standings.py.
"""

import csv
import re
import statistics
import sys
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import yaml
from scipy import stats

from tests import arena_statistics as recomputed
from tests.arena_records import (
    END_POINTS,
    Cells,
    Comparison,
    compute_end_points,
    compute_end_points_of_fields,
    compute_target,
    draw_skeletons,
    list_targets_reached_by_chance,
    read_blocks,
    read_end_points,
    read_runs,
    read_tables,
)
from tests.conftest import ROOT
from tests.recompute_arena_runs import compare_map, compare_phases, compare_profile
from tests.recompute_standings import compare_standings
from tests.recompute_statistics import (
    DASH,
    Result,
    format_p,
    format_percent,
    format_points,
    format_ratio,
    format_result,
)
from tests.recompute_tuning import compare_tuning

FOLDER = ROOT / "experiments"
VERDICTS = ("holds", "open", "fails")
# `points` has the end points (END_POINTS) by benchmark, algorithm and seed, `field_points` those of
# one benchmark.


# Tables -------------------------------------------------------------------------------------------


def judge(
    fields: dict, compare: Callable[[str, dict], Result], reached_by_chance: Collection[str] = ()
) -> dict[str, list[SimpleNamespace]]:
    """Return the estimate, p and verdict of each claim, by benchmark.

    Args:
        fields: the arena's parameters by benchmark.
        compare: takes a benchmark and a claim, and returns the estimate.
        reached_by_chance: benchmarks whose claims about seconds are not tested.
    """
    rows, tests = [], []
    for benchmark, field in fields.items():
        for claim in field["claims"]:
            result = compare(benchmark, claim)
            if claim["by"] == "seconds" and benchmark in reached_by_chance:
                result = Result(None, median=result.median)
            rows.append(SimpleNamespace(benchmark=benchmark, claim=claim, result=result, ps=[]))
            if result.p is None:
                continue
            equal = 1.0 if claim["by"] == "seconds" else 0.0
            is_better = result.value < equal if claim["by"] == "seconds" else result.value > equal
            difference = (result.p(equal), "holds" if is_better else "fails")
            if claim.get("expect") == "same":
                below, above = (result.p(limit) / 2 for limit in (-0.02, 0.02))
                below = below if result.value > -0.02 else 1 - below
                above = above if result.value < 0.02 else 1 - above
                tests += [
                    (rows[-1], max(below, above), "holds"),
                    (rows[-1], result.p(0.0), "fails"),
                ]
            else:
                tests.append((rows[-1], *difference))
    adjusted = recomputed.adjust_by_holm([p for _, p, _ in tests])
    for (row, _, verdict), p in zip(tests, adjusted, strict=True):
        row.ps.append((p, verdict))
    for row in rows:
        if not row.ps:
            row.p, row.verdict, row.smallest = None, "not tested here", None
            continue
        small = [pair for pair in row.ps if pair[0] <= 0.05]
        row.p, row.verdict = small[0] if small else (row.ps[0][0], "open")
        is_equivalence = row.claim.get("expect") == "same"
        row.smallest = row.result.compute_detectable_effect(0.05 / len(tests), is_equivalence)
        if is_equivalence and row.smallest > 0.02:
            row.verdict += ", underpowered"
    return {b: [row for row in rows if row.benchmark == b] for b in fields}


def show_claims(rows: list[SimpleNamespace]) -> list[list[str]]:
    """Return the cells of a table of claims, row by row."""
    cells = []
    for row in rows:
        is_seconds = row.claim["by"] == "seconds"
        show = format_ratio if is_seconds else format_points
        median = format_result(format_ratio, row.result.median) if is_seconds else "N/A"
        smallest = DASH if row.smallest is None else show(row.smallest).lstrip("+")
        p = DASH if row.p is None else format_p(row.p)
        cells.append([format_result(show, row.result), median, p, smallest, row.verdict])
    return cells


def compare_record(folder: Path, points: dict, arena: str = "arena") -> Iterator[Comparison]:
    """Yield a comparison for every number in arena-results.csv, or of the record of another arena."""
    names = ["runtime", "staleness", "clip_fraction", *END_POINTS]
    with (folder / f"{arena}-results.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert len(rows) == sum(len(runs) for by_name in points.values() for runs in by_name.values())
    for row in rows:
        run = points[row["benchmark"]][row["algorithm"]][int(row["seed"])]
        for name in names:
            value = getattr(run, name)
            where = f"{row['benchmark']} {row['algorithm']} {row['seed']} {name}"
            yield where, "" if value is None else f"{value:.6g}", row[name]


def compare_tables(
    folder: Path,
    points: dict,
    section: dict,
    arena: str = "arena",
    runs: dict | None = None,
    skeletons: dict[str, dict] | None = None,
    reached_by_chance: Collection[str] = (),
) -> Iterator[Comparison]:
    """Yield a comparison for every number in arena-tables.txt, or of the tables of another arena.

    Args:
        section: the arena's section of the parameters.
        runs: the raw record, if the arena has a map.
        skeletons: the skeletons of each benchmark's problems, if errors are clustered over them.
        reached_by_chance: benchmarks whose claims about seconds are not tested.
    """
    fields = section["fields"]
    tables = iter(read_tables(folder / f"{arena}-tables.txt"))
    compare = partial(compare_latest, points, skeletons=skeletons)
    judged = judge(fields, compare, reached_by_chance)
    for benchmark, rows in judged.items():
        yield from pair_rows(f"claims {benchmark}", next(tables), show_claims(rows))
    for benchmark, field_points in points.items():
        field_skeletons = skeletons and skeletons[benchmark]
        yield from compare_standings(benchmark, next(tables), field_points, field_skeletons)
    trials = []
    if (tuning := folder / f"{arena}-tuning.csv").exists():
        with tuning.open(newline="") as file:
            trials = [row for row in csv.DictReader(file) if float(row["learning_rate"])]
    for benchmark in fields if trials else ():
        rows = [row for row in trials if row["benchmark"] == benchmark]
        highest = section.get("rate_rule") == "highest"
        yield from compare_tuning(benchmark, next(tables), rows, highest)
    for benchmark, field_points in points.items():
        yield from compare_phases(benchmark, next(tables), field_points)
    for benchmark, field_points in points.items():
        runs_by_name = {name: [*by_seed.values()] for name, by_seed in field_points.items()}
        yield from compare_profile(benchmark, next(tables), runs_by_name)
    for benchmark, map_section in section.get("maps", {}).items():
        pg_rate = fields[benchmark]["rates"]["pg"]
        yield from compare_map(benchmark, next(tables), runs, map_section, pg_rate)
    _check_end(tables)


def _check_end(tables: Iterator[Cells]) -> None:
    """Raise AssertionError if a file has a table that was not recomputed."""
    assert (left := next(tables, None)) is None, f"a table is not recomputed: {left}"


def compare_latest(points: dict, benchmark: str, claim: dict, skeletons: dict | None = None):
    """Return the estimate of a claim from the latest run."""
    pair = points[benchmark][claim["ours"]], points[benchmark][claim["theirs"]]
    if claim["by"] == "accuracy":
        return recomputed.compare_scores(*pair, skeletons and skeletons[benchmark])
    return compare_blocks([points], benchmark, claim)


def compare_blocks(
    points_by_run: list[dict], benchmark: str, claim: dict, skeletons: dict | None = None
) -> Result:
    """Return the estimate of a claim from several runs of the arena.

    Args:
        points_by_run: `points` of each run.
        skeletons: if present, groups of problems with the same skeleton are a random effect.
    """
    pairs = [(p[benchmark][claim["ours"]], p[benchmark][claim["theirs"]]) for p in points_by_run]
    if claim["by"] == "seconds":
        return recomputed.compare_seconds(pairs)
    problem_variances = None
    if skeletons and claim["by"] == "accuracy":
        _, ids, table = recomputed.compute_differences(*pairs[-1])
        groups = [skeletons[benchmark][id] for id in ids]
        problem_variances = recomputed.compute_variances(table, groups)
    return recomputed.compare_means(pairs, claim["by"], problem_variances)


def compare_pooled(
    folder: Path, runs: dict, points: dict, earlier: dict, fields: dict
) -> Iterator[Comparison]:
    """Yield a comparison for every number in arena-pooled.txt."""
    tables = iter(read_tables(folder / "arena-pooled.txt"))
    untrained = {
        b: [run.evaluation["pass_at"]["1"] for run in runs[b, "base"].values()] for b in fields
    }
    start = {b: statistics.fmean(values) for b, values in untrained.items()}
    final = {b: statistics.fmean(r.final for r in points[b]["pg"].values()) for b in fields}
    other_targets = {b: compute_target(start[b], final[b], f) for b, f in fields.items()}
    points_at_other_targets = {
        b: compute_end_points(runs, b, f, other_targets[b]) for b, f in fields.items()
    }
    problems = {b: len(next(iter(points[b]["pg"].values())).scores) for b in fields}
    skeletons = {b: draw_skeletons(b, n) for b, n in problems.items()}
    analyses = {
        "Pooled": partial(compare_blocks, [earlier, points], skeletons=skeletons),
        "Over seeds": partial(compare_blocks, [earlier, points]),
        "Earlier": partial(compare_blocks, [earlier]),
        "Latest": partial(compare_latest, points),
        "Clustered": partial(compare_latest, points, skeletons=skeletons),
        "Other target": partial(compare_latest, points_at_other_targets),
    }
    rows_by_analysis = {title: judge(fields, compare) for title, compare in analyses.items()}
    for benchmark, rows in rows_by_analysis["Pooled"].items():
        yield from pair_rows(f"pooled {benchmark}", next(tables), show_claims(rows))
    for show in (show_verdict, show_estimate):
        for benchmark in fields:
            columns = [[show(row) for row in rows[benchmark]] for rows in rows_by_analysis.values()]
            rows = [*map(list, zip(*columns, strict=True))]
            yield from pair_rows(f"{show.__name__} {benchmark}", next(tables), rows)
    counts = [
        [sum(row.verdict.startswith(v) for rows in fields_rows for row in rows) for v in VERDICTS]
        for fields_rows in (rows.values() for rows in rows_by_analysis.values())
    ]
    yield from pair_rows("counts", next(tables), [[*map(str, row)] for row in counts])
    cells = []
    for benchmark, field in fields.items():
        noise = statistics.stdev(untrained[benchmark])
        distribution = stats.norm(start[benchmark], noise)
        targets = field["reach"], other_targets[benchmark]
        # Probability that one of a run's four models (three snapshots, the last) is above the
        # target by noise alone.
        chances = [format_p(1 - distribution.cdf(target) ** 4) for target in targets]
        shown = [format_percent(target) for target in targets]
        first = f"{format_percent(start[benchmark])} ± {format_percent(noise)}"
        cells.append([first, shown[0], chances[0], shown[1], chances[1]])
    yield from pair_rows("targets", next(tables), cells)
    for benchmark, field_points in points.items():
        runs_by_name = {
            name: [*by_seed.values(), *earlier[benchmark][name].values()]
            for name, by_seed in field_points.items()
        }
        yield from compare_profile(benchmark, next(tables), runs_by_name)
    _check_end(tables)


def show_verdict(row: SimpleNamespace) -> str:
    return f"{row.verdict} ({format_p(row.p)})"


def show_estimate(row: SimpleNamespace) -> str:
    return format_result(
        format_ratio if row.claim["by"] == "seconds" else format_points, row.result
    )


def pair_rows(where: str, printed: Cells, rows: list[list[str]]) -> Iterator[Comparison]:
    """Yield a comparison for each cell of a table, row by row."""
    labels = list(dict.fromkeys(name for name, _ in printed))
    titles = list(dict.fromkeys(title for _, title in printed))
    for name, cells in zip(labels, rows, strict=True):
        for title, expected in zip(titles, cells, strict=True):
            yield f"{where}: {name}, {title}", expected, printed[name, title]


def compare_all(folder: Path = FOLDER) -> tuple[list[str], int]:
    """Return a line for each number that differs, and the count of recomputed numbers.

    Args:
        folder: the folder with the records and the printed tables.
    """
    section = yaml.safe_load((FOLDER / "arena.yaml").read_text())["arena"]
    fields = section["fields"]
    runs = read_runs(folder / "arena-raw.tar.xz")
    points = {b: compute_end_points(runs, b, f, f["reach"]) for b, f in fields.items()}
    earlier = read_end_points(folder / "arena-results-earlier.csv")
    comparisons = [*compare_record(folder, points)]
    comparisons += compare_tables(folder, points, section, runs=runs)
    comparisons += compare_pooled(folder, runs, points, earlier, fields)
    return list_differing(comparisons), len(comparisons)


def compare_blocks_of_seeds(arena: str, folder: Path = FOLDER) -> tuple[list[str], int]:
    """Return the same as `compare_all`, for an arena that is recorded in blocks of one seed."""
    params = yaml.safe_load((FOLDER / f"{arena}.yaml").read_text())
    fields = params["arena"]["fields"]
    runs = read_blocks(folder, arena)
    points = compute_end_points_of_fields(runs, fields)
    comparisons = [*compare_record(folder, points, arena)]
    comparisons += compare_tables(
        folder,
        points,
        params["arena"],
        arena,
        skeletons=draw_clusters(params, points),
        reached_by_chance=list_targets_reached_by_chance(runs, fields, params["evaluation"]),
    )
    return list_differing(comparisons), len(comparisons)


def draw_clusters(params: dict, points: dict) -> dict[str, dict] | None:
    """Return the skeleton of each problem by benchmark; None if errors are not clustered."""
    if not params["arena"].get("clustered"):
        return None
    counts = {b: len(next(iter(by_name["pg"].values())).scores) for b, by_name in points.items()}
    return {b: draw_skeletons(b, count, params["data_seed"]) for b, count in counts.items()}


def list_differing(comparisons: list[Comparison]) -> list[str]:
    """Return a line for each number that differs."""
    return [
        f"{where}: recomputed {expected}, printed {printed}"
        for where, expected, printed in comparisons
        if printed is None or re.sub(r" \[[a-z]\]$", "", printed) != expected
    ]


def main() -> int:
    differing, count = compare_all()
    for arena in ("arena-real", "arena-minif2f", "arena-rivals"):
        if (FOLDER / f"{arena}-tables.txt").exists():
            more_differing, more = compare_blocks_of_seeds(arena)
            differing, count = differing + more_differing, count + more
    print(*differing, f"{count} numbers recomputed, {len(differing)} differ", sep="\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
