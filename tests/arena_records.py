"""Reads the arena's raw record, end points, and printed tables, without the code of the reports."""

import csv
import json
import math
import re
import statistics
import tarfile
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from scipy import stats

from rapid.algorithms.variant_names import parse_variant_name
from rapid.benchmarks import BENCHMARKS
from rapid.benchmarks.made import draw_exercises

# What the arena compares: seconds until the target accuracy, accuracy after equally many
# completions, and accuracy after equal time.
END_POINTS = ("seconds", "accuracy", "accuracy_in_time")
Cells = dict[tuple[str, str], str]  # label of a row, title of a column -> text
Comparison = tuple[str, str, str | None]  # name of the number, recomputed text, printed text


def read_runs(*archives: Path) -> dict[tuple[str, str], dict[int, SimpleNamespace]]:
    """Return the content of all runs, by (benchmark, algorithm) and by seed.

    A run has the attributes `summary`, `evaluation` and `curve`, with the names of its files.
    """
    runs: dict = defaultdict(lambda: defaultdict(SimpleNamespace))
    for archive in archives:
        with tarfile.open(archive) as files:
            for member in files:
                *_, benchmark, _, algorithm, seed, name = ("", "", "", *member.name.split("/"))
                if name not in ("summary.json", "evaluation.json", "curve.jsonl"):
                    continue
                text = files.extractfile(member).read().decode()
                kind, ending = name.split(".")
                content = (
                    [*map(json.loads, text.splitlines())] if ending == "jsonl" else json.loads(text)
                )
                setattr(runs[benchmark, algorithm][int(seed.removeprefix("seed"))], kind, content)
    return runs


def read_blocks(folder: Path, arena: str) -> dict:
    """Return the runs of an arena that is recorded in blocks of one seed, as `read_runs` does."""
    return read_runs(*sorted(folder.glob(f"{arena}-seed*.tar.xz")))


def compute_end_points_of_fields(runs: dict, fields: dict) -> dict:
    """Return the end points by benchmark, algorithm and seed, with the target of each field."""
    start = find_start(runs)
    return {b: compute_end_points(runs, b, f, f.get("reach"), start) for b, f in fields.items()}


def find_start(runs: dict) -> str:
    """Return the algorithm whose model runs start from."""
    return "sft" if any(name == "sft" for _, name in runs) else "base"


def list_targets_reached_by_chance(runs: dict, fields: dict, evaluation: dict) -> set[str]:
    """Return the benchmarks whose computed target is reached without learning with p above 5 %.

    Args:
        evaluation: the section of the parameters, with the numbers of completions per problem.
    """
    benchmarks = set()
    for benchmark, field in fields.items():
        untrained = [run.evaluation for run in runs[benchmark, find_start(runs)].values()]
        accuracies = [evaluation["pass_at"]["1"] for evaluation in untrained]
        start = statistics.fmean(accuracies)
        if len(untrained) > 1:
            noise = statistics.stdev(accuracies)
        else:
            pairs = [(row["correct"], row["samples"]) for row in untrained[0]["scores"]]
            variances = [statistics.variance([1] * c + [0] * (n - c)) / n for c, n in pairs]
            noise = math.sqrt(sum(variances)) / len(variances)
        samples = evaluation["samples"]
        counts = [evaluation.get("snapshot_samples") or samples] * field["snapshots"] + [samples]
        target = compute_target(start, _compute_final_of_pg(runs, benchmark, field), field)
        below = [
            stats.norm.cdf((target - start) / (noise * math.sqrt(samples / count)))
            for count in counts
        ]
        if field.get("reach") is None and 1 - math.prod(below) > 0.05:
            benchmarks.add(benchmark)
    return benchmarks


def compute_target(start: float, final: float, field: dict) -> float:
    """Return the target accuracy from the mean accuracies before training and after PG's."""
    target = start + field.get("gain_share", 0.75) * (final - start)
    return math.floor(1000 * target + 0.5) / 1000


def _compute_final_of_pg(runs: dict, benchmark: str, field: dict) -> float:
    pg_runs = runs[benchmark, _name_run(field, "pg")].values()
    return statistics.fmean(run.evaluation["pass_at"]["1"] for run in pg_runs)


def _name_run(field: dict, name: str) -> str:
    """Return the name of the folder of an algorithm's runs in a field."""
    rate = np.format_float_positional(float(field["rates"][name]), trim="-")
    problems, snapshots = field["problems"], field["snapshots"]
    return f"{name},problems={problems},learning_rate={rate},snapshots={snapshots}"


def compute_end_points(
    runs: dict, benchmark: str, field: dict, reach: float | None, start_algorithm: str = "base"
) -> dict[str, dict]:
    """Return the end points of each algorithm and seed of a field.

    Args:
        field: the section of the arena's parameters on this benchmark.
        reach: the target accuracy. If it is None, the target is the accuracy before training plus
            a share of PG's gain (`compute_target`).
        start_algorithm: the algorithm whose model runs start from.
    """
    untrained = [
        run.evaluation["pass_at"]["1"] for run in runs[benchmark, start_algorithm].values()
    ]
    start = statistics.fmean(untrained)
    runs_by_name = {name: runs[benchmark, _name_run(field, name)] for name in field["rates"]}
    for name, runs_by_seed in runs_by_name.items():
        assert len(runs_by_seed) == field.get("more_seeds", {}).get(name, field["seeds"]), name
    pg_runs = runs_by_name["pg"].values()
    completions = statistics.fmean(run.summary["completions"] for run in pg_runs)
    if reach is None:
        reach = compute_target(start, _compute_final_of_pg(runs, benchmark, field), field)
    by_machine: dict = defaultdict(list)
    for run in pg_runs:
        by_machine[run.summary["hardware"]].append(run.summary["runtime"]["total"])
    half_times = {machine: statistics.fmean(totals) / 2 for machine, totals in by_machine.items()}
    points = {}
    for name, runs_by_seed in runs_by_name.items():
        is_longer = any(run.summary["completions"] > completions for run in runs_by_seed.values())
        points[name] = {
            seed: _compute_end_points_of_run(
                run,
                start,
                reach,
                completions if is_longer else None,
                half_times[run.summary["hardware"]],
            )
            for seed, run in runs_by_seed.items()
        }
    return points


def _compute_end_points_of_run(
    run, start: float, reach: float, completions: float | None, half_time: float
):
    """Return the end points of a run.

    Args:
        start: accuracy before training.
        reach: the target accuracy.
        completions: number of completions at which the accuracy is interpolated; None for the end.
        half_time: seconds at which the accuracy in equal time is interpolated.
    """
    summary, final = run.summary, run.evaluation["pass_at"]["1"]
    per_step = summary["completions"] / summary["optimizer_steps"]
    curve = [(0.0, start, 0.0)]
    curve += [(p["seconds"], p["pass_at"]["1"], p["step"] * per_step) for p in run.curve]
    curve.append((summary["runtime"]["total"], final, summary["completions"]))
    crossings = (
        begin + (end - begin) * (reach - previous) / (current - previous)
        for (begin, previous, _), (end, current, _) in pairwise(curve)
        if current >= reach - 1e-9
    )
    seconds = 0.0 if start >= reach - 1e-9 else next(crossings, math.inf)
    scores = {row["id"]: row["correct"] / row["samples"] for row in run.evaluation["scores"]}
    if completions is not None:
        scores = {"mean": _interpolate(completions, [(c, a) for _, a, c in curve])}
    return SimpleNamespace(
        seconds=seconds,
        scores=scores,
        accuracy=statistics.fmean(scores.values()),
        accuracy_in_time=_interpolate(half_time, [(t, a) for t, a, _ in curve]),
        runtime=summary["runtime"]["total"],
        phases=summary["runtime"],
        hardware=summary["hardware"],
        staleness=summary.get("staleness"),
        clip_fraction=summary.get("clip_fraction"),
        final=final,
        pass_at=run.evaluation["pass_at"],
    )


def _interpolate(x: float, points: list[tuple[float, float]]) -> float:
    """Return the value at x between points (x, value); after the last point, its value."""
    for (a, low), (b, high) in pairwise(points):
        if x <= b:
            return low + (high - low) * (x - a) / (b - a)
    return points[-1][1]


def read_end_points(file: Path) -> dict[str, dict[str, dict]]:
    """Return the end points in a CSV file, by benchmark, algorithm and seed."""
    points: dict = defaultdict(lambda: defaultdict(dict))
    with file.open(newline="") as rows:
        for row in csv.DictReader(rows):
            values = {name: float(row[name]) for name in END_POINTS}
            values["scores"] = {"mean": values["accuracy"]}
            points[row["benchmark"]][row["algorithm"]][int(row["seed"])] = SimpleNamespace(**values)
    return points


def draw_skeletons(benchmark: str, count: int, data_seed: int = 0) -> dict[str, str]:
    """Return the skeleton of each test problem by id: its text with 0 in place of numbers."""
    exercises = draw_exercises(BENCHMARKS[benchmark], data_seed, {"test": count})["test"]
    return {e.problem.id: re.sub("[0-9]+", "0", e.problem.content) for e in exercises}


def label(name: str) -> str:
    """Return the label of an algorithm."""
    base_name, *changes = name.split(",")
    return ", ".join(
        [parse_variant_name(base_name).label, *(change.replace("=", " = ") for change in changes)]
    )


def read_tables(file: Path) -> list[Cells]:
    """Return the cells of each table of a text file."""
    tables = []
    for text in re.split(r"^Table \d+\. ", file.read_text(encoding="utf-8"), flags=re.M)[1:]:
        cells, lines = {}, text.splitlines()
        for head, rule in pairwise(range(len(lines))):  # a rule of dashes follows the head
            if not re.fullmatch(r"(  -+)+", lines[rule]):
                continue
            starts = [match.start() for match in re.finditer("-+", lines[rule])]
            titles = _split(lines[head], starts)
            for line in lines[rule + 1 :]:
                if not line.startswith("  "):
                    break
                label, *texts = _split(line, starts)
                cells |= {(label, t): text for t, text in zip(titles[1:], texts, strict=True)}
        tables.append(cells)
    return tables


def _split(line: str, starts: list[int]) -> list[str]:
    return [line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
