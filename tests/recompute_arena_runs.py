"""Recompute the arena's tables of runs: time by phase, performance profiles, and the map."""

import math
import statistics
from collections.abc import Iterator
from types import SimpleNamespace

from tests.arena_records import Cells, Comparison, label
from tests.arena_statistics import compare_scores
from tests.recompute_statistics import adjust_minus, format_percent, format_points, format_ratio

PREDICTED = "if sampling takes "


def compare_phases(benchmark: str, printed: Cells, field_points: dict) -> Iterator[Comparison]:
    """Yield a comparison for every number in the table of training time by phase."""
    for name, title in ((name, title) for name in field_points for title in _list_titles(printed)):
        runs = field_points[name]
        if phase := title.removesuffix(" %") if title.endswith(" %") else "":
            total = sum(run.phases["total"] for run in runs.values())
            share = sum(run.phases[phase.lower()] for run in runs.values()) / total
            expected = format_percent(share)
        else:
            in_pg = title.removeprefix(PREDICTED).removesuffix("%") if PREDICTED in title else ""
            share = float(in_pg) / 100 if in_pg else None
            expected = format_ratio(_predict_ratio(runs, field_points["pg"], share))
        yield f"{benchmark} {name} {title}", expected, printed[label(name), title]


def _predict_ratio(runs: dict, pg_runs: dict, share: float | None) -> float:
    """Return the time of an algorithm divided by PG's, over the seeds of both on one processor.

    Args:
        share: the share of sampling in PG's time on another machine; None for this one. Sampling
            and the rest are assumed to change by the same factors there.
    """
    seeds = [s for s in runs if s in pg_runs and runs[s].hardware == pg_runs[s].hardware]
    sampling, total, pg_sampling, pg_total = (
        statistics.fmean(by_seed[seed].phases[name] for seed in seeds)
        for by_seed in (runs, pg_runs)
        for name in ("sampling", "total")
    )
    if share is None:
        return total / pg_total
    factors = sampling / pg_sampling, (total - sampling) / (pg_total - pg_sampling)
    return share * factors[0] + (1 - share) * factors[1]


def compare_profile(
    benchmark: str, printed: Cells, runs_by_name: dict[str, list[SimpleNamespace]]
) -> Iterator[Comparison]:
    """Yield a comparison for every number in a table of performance profiles."""
    for name, runs in runs_by_name.items():
        for title in _list_titles(printed):
            if title == "Never":
                expected = str(sum(math.isinf(run.seconds) for run in runs))
            else:
                limit = float(title.removesuffix("%")) / 100 - 1e-9
                expected = format_percent(statistics.fmean(run.accuracy >= limit for run in runs))
            yield f"{benchmark} {name} {title}", expected, printed[label(name), title]


def compare_map(
    benchmark: str, printed: Cells, runs: dict, section: dict, pg_rate: float
) -> Iterator[Comparison]:
    """Yield a comparison for every number in the table of the effect of H at each N_step.

    Args:
        runs: the raw record, see `tests.arena_records.read_runs`.
        section: the map in the parameters.
        pg_rate: PG's learning rate, which is the map's at its first N_step.
    """

    def select(n_step: int, h: int) -> dict[int, SimpleNamespace]:
        start = f"rapid-H{h},n_step={n_step},problems={section['problems']},learning_rate="
        ((name, by_seed),) = (
            (name, by_seed)
            for (run_benchmark, name), by_seed in runs.items()
            if run_benchmark == benchmark and name.startswith(start)
        )
        rate = pg_rate * math.sqrt(n_step / section["n_step"][0])
        assert math.isclose(float(name.removeprefix(start)), rate, rel_tol=0.005), name
        return {seed: _read_run(run) for seed, run in by_seed.items()}

    first_h, *other_h = section["H"]
    for n_step in section["n_step"]:
        reference = select(n_step, first_h)
        for h in other_h:
            ours, row = select(n_step, h), f"N_step = {n_step}, H = {h}"
            assert len(ours) == len(reference) == section["seeds"], row
            logs = [math.log(ours[seed].runtime / reference[seed].runtime) for seed in reference]
            saved = 1 - math.exp(statistics.fmean(logs))
            gain = compare_scores(ours, reference)
            points = f"{format_points(gain.value)} ± {50 * (gain.high - gain.low):.1f}"
            for title, expected in (
                ("Time saved", adjust_minus(f"{100 * saved:.0f}%")), ("Points gained", points),
            ):  # fmt: skip
                yield f"map {benchmark} {row} {title}", expected, printed[row, title]


def _read_run(run) -> SimpleNamespace:
    scores = {row["id"]: row["correct"] / row["samples"] for row in run.evaluation["scores"]}
    return SimpleNamespace(scores=scores, runtime=run.summary["runtime"]["total"])


def _list_titles(printed: Cells) -> list[str]:
    return list(dict.fromkeys(title for _, title in printed))
