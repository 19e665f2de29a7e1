"""Recompute the tables of a recorded study, without the code of the reports.

    python -m tests.recompute_studies experiments/baseline.yaml

It reads the files of runs in the archives of `reports.record`, and the study's parameters. It
compares the numbers in the tables of variants, of the time to an accuracy, and of hypotheses in
NAME-tables.txt.
"""

import json
import statistics
import sys
import tarfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import yaml

from rapid.algorithms.variant_names import parse_variant_name
from tests.arena_records import Comparison, draw_skeletons
from tests.arena_statistics import Result, adjust_by_holm, estimate_mean, student
from tests.conftest import ROOT
from tests.recompute import Run, choose_format
from tests.recompute_arena import list_differing
from tests.recompute_statistics import (
    DASH,
    adjust_minus,
    compare_accuracy,
    format_duration,
    format_p,
    format_percent,
    format_points,
    format_result,
    pass_at_k,
)
from tests.reports.reading import PrintedTable, read_text

Comparisons = list[Comparison]
MAIN_MODEL = "tiny-qwen2"
LEVEL = 0.05
# Title of a column -> metric. "Difference" is compared with the first variant.
COLUMNS = {
    "Pass@1": "pass@1", "Pass@8": "pass@8", "Unparsable": "unparsable", "Entropy": "entropy",
    "Distinct": "distinct", "Distinct solutions": "distinct_correct", "Time": "runtime",
    "Stale": "staleness", "Clipped": "clip_fraction", "Memory": "peak_memory_mb",
}  # fmt: skip
RAPID_COLUMNS = ("Stale", "Clipped")  # with values for RAPID only
SHARES = ("unparsable", "distinct")


class Study:
    """The runs of a study, read from the files of an experiment.

    Args:
        root: the folder that contains runs/ and evaluations/.
        section: the study's section of the parameters.
    """

    def __init__(self, root: Path, section: dict, seeds: list[int], data_seed: int):
        self.root, self.seeds, self.data_seed = root, seeds, data_seed
        self._runs: dict[str, list[Run]] = {}
        self.benchmark, self.variants = section["benchmark"], section["algorithms"]
        self.model = section.get("model", MAIN_MODEL)

    def read(self, variant: str) -> list[Run]:
        """Return the runs of a variant, by seed."""
        if variant not in self._runs:
            self._runs[variant] = self._read_files(variant)
        return self._runs[variant]

    def _read_files(self, variant: str) -> list[Run]:
        place = self.benchmark, self.model, variant
        runs = [Run(self.root, *place, seed) for seed in self.seeds]
        for run in runs:
            path = f"{'/'.join(place)}/seed{run.seed}"
            evaluation = json.loads(
                (self.root / "evaluations" / path / "evaluation.json").read_text()
            )
            run.values |= {  # absent without `evaluation.diversity`
                name: evaluation.get(name) for name in ("entropy", "distinct", "distinct_correct")
            }
            graded = sum(samples for samples, _ in run.scores.values())
            run.values["unparsable"] = evaluation["reasons"].get("unparsable", 0) / graded
        return runs

    def read_curves(self, variant: str) -> list[list[tuple[float, float]]]:
        """Return (seconds, pass@1) of each run: untrained, of its snapshots, and at its end."""
        start = statistics.mean(run.values["pass@1"] for run in self.read("base"))
        curves = []
        for run in self.read(variant):
            path = f"{self.benchmark}/{self.model}/{variant}/seed{run.seed}/curve.jsonl"
            lines = (self.root / "evaluations" / path).read_text().splitlines()
            points = [(point["seconds"], point["pass_at"]["1"]) for point in map(json.loads, lines)]
            end = run.values["runtime"], run.values["pass@1"]
            curves.append([(0.0, start), *points, end])
        return curves

    def label(self, variant: str) -> str:
        """Return the label of a variant: the changed parameters, or the algorithm's name."""
        base_name, *changes = variant.split(",")
        shared = set.intersection(*(set(name.split(",")[1:]) for name in self.variants))
        texts = [change.replace("=", " = ") for change in changes if change not in shared]
        first = self.variants[0]
        if variant == first or not texts or base_name != first.partition(",")[0]:
            texts.insert(0, parse_variant_name(base_name).label)
        return ", ".join(texts)

    def compute_row(self, variant: str) -> dict[str, str]:
        """Return the cells of a variant's row, by title of the column."""
        all_runs = {name: self.read(name) for name in self.variants}
        cells = {}
        for title, metric in COLUMNS.items():
            values = [run.values.get(metric) for run in all_runs[variant]]
            if title in RAPID_COLUMNS and not variant.startswith("rapid-H"):
                cells[title] = "N/A"
                continue
            if None in values:
                cells[title] = DASH
                continue
            means = [
                statistics.mean(run.values[metric] for run in runs)
                for runs in all_runs.values()
                if None not in [run.values.get(metric) for run in runs]
            ]
            mean, show = statistics.mean(values), _choose_format(metric, means)
            cells[title] = show(mean, mean)
            if len(values) > 1:
                cells[title] += f" ± {show(statistics.stdev(values), mean)}"
        cells["Difference"] = "N/A"
        if variant != self.variants[0]:
            pair = ([run.scores for run in all_runs[n]] for n in (variant, self.variants[0]))
            cells["Difference"] = format_result(format_points, compare_accuracy(*pair, 1))
        return cells

    def estimate(self, contrast: dict[str, float], metric: str) -> Result:
        """Return a contrast: the sum of a metric over variants, each times a factor."""
        if metric.startswith("pass@"):
            k = int(metric.removeprefix("pass@"))
            table = sum(
                factor
                * np.array(
                    [
                        [float(pass_at_k(*counts, k)) for counts in run.scores.values()]
                        for run in self.read(variant)
                    ]
                )
                for variant, factor in contrast.items()
            )
            ids = list(self.read(next(iter(contrast)))[0].scores)
            skeletons = draw_skeletons(self.benchmark, len(ids), self.data_seed)
            return estimate_mean(table, [skeletons[id] for id in ids])
        sums = [
            sum(f * run.values[metric] for f, run in zip(contrast.values(), runs, strict=True))
            for runs in zip(*map(self.read, contrast), strict=True)
        ]
        return student(statistics.fmean(sums), statistics.variance(sums) / len(sums), len(sums) - 1)


def _choose_format(metric: str, means: list[float]):
    if metric in SHARES or metric == "clip_fraction":
        return lambda value, mean: format_percent(value)
    if metric in ("entropy", "distinct_correct"):
        return lambda value, mean: _format_plain(value)
    return choose_format(metric, means)


def _format_plain(value: float) -> str:
    return adjust_minus(f"{value * (1 + 1e-12):.4g}")  # halves away from zero


def compare_variants(study: Study, printed: PrintedTable, name: str) -> Iterator[Comparison]:
    """Yield a comparison for every cell of a table of variants."""
    for variant, label, cells in zip(study.variants, printed.labels, printed.rows, strict=True):
        yield f"{name}, label", study.label(variant), label
        expected = study.compute_row(variant)
        for title, cell in zip(printed.columns, cells, strict=True):
            yield f"{name}: {label}, {title}", expected[title], cell.text


def compute_time(curve: list[tuple[float, float]], level: float) -> float | None:
    """Return the seconds until an accuracy is reached on a curve of (seconds, accuracy) points."""
    if curve[0][1] >= level:
        return 0.0
    for (start, low), (end, high) in pairwise(curve):
        if high >= level:
            return start + (end - start) * (level - low) / (high - low)
    return None


def compare_times(study: Study, printed: PrintedTable, name: str) -> Iterator[Comparison]:
    """Yield a comparison for every cell of a table of the times to levels of accuracy."""
    for column, title in enumerate(printed.columns):
        level = float(title.removesuffix("%")) / 100 - 1e-9  # reached despite rounding
        times = {
            variant: [compute_time(curve, level) for curve in study.read_curves(variant)]
            for variant in study.variants
        }
        means = {v: statistics.mean(values) for v, values in times.items() if None not in values}
        for row, variant in enumerate(study.variants):
            text = DASH
            if variant in means:
                show, mean = format_duration([*means.values()]), means[variant]
                text = f"{show(mean, mean)} ± {show(statistics.stdev(times[variant]), mean)}"
            where = f"{name}: times: {study.label(variant)}, {title}"
            yield where, text, printed.rows[row][column].text


def compare_hypotheses(
    studies: dict[str, Study], hypotheses: dict, printed: PrintedTable
) -> Iterator[Comparison]:
    """Yield a comparison for every cell of the table of hypotheses."""
    tests = [
        (key, hypothesis, name)
        for key, hypothesis in hypotheses.items()
        for name in hypothesis["studies"]
    ]
    results, ps = [], []
    for _, hypothesis, name in tests:
        metric = hypothesis.get("metric", "pass@1")
        results.append(studies[name].estimate(hypothesis["contrast"], metric))
        ps.append(results[-1].p(hypothesis.get("above", hypothesis.get("below"))))
    adjusted = adjust_by_holm(ps)
    for (key, hypothesis, name), result, p, cells, label in zip(
        tests, results, adjusted, printed.rows, printed.labels, strict=True
    ):
        metric, is_above = hypothesis.get("metric", "pass@1"), "above" in hypothesis
        limit = hypothesis["above" if is_above else "below"]
        show = format_points if metric.startswith("pass@") or metric in SHARES else _format_plain
        is_true = result.value > limit if is_above else result.value < limit
        expected = {
            "Predicted": f"{'>' if is_above else '<'} {show(limit)} {metric}",
            "Estimate": format_result(show, result),
            "p": format_p(p),
            "Verdict": "open" if p > LEVEL else "holds" if is_true else "fails",
            "Detectable": show(
                result.compute_detectable_effect(LEVEL / len(tests), is_equivalence=False)
            ).removeprefix("+"),
        }
        yield "label of a hypothesis", f"{key}: {name}", label
        for title, cell in zip(printed.columns, cells, strict=True):
            yield f"{label}, {title}", expected[title], cell.text


def compare_tables(root: Path, params: dict, tables: dict[int, PrintedTable]) -> Comparisons:
    """Return a comparison for every cell of all tables but that of the paper's claims.

    Args:
        root: the folder that contains runs/ and evaluations/.
        params: parameters with a section of studies.
        tables: the printed tables by number.
    """
    section, comparisons = params["studies"], []
    studies = {
        key: Study(root, study, section["seeds"], params["data_seed"])
        for key, study in section["compared"].items()
        if study
    }
    number = 1
    for key, study in studies.items():
        comparisons += compare_variants(study, tables[number], key)
        number += 1
        if any("snapshots=" in variant for variant in study.variants):
            comparisons += compare_times(study, tables[number], key)
            number += 1
    if hypotheses := section.get("hypotheses"):
        comparisons += compare_hypotheses(studies, hypotheses, tables[number])
    return comparisons


def compare_all(overlay: Path) -> tuple[list[str], int]:
    """Return a line for each number that differs, and the count of recomputed numbers.

    Args:
        overlay: the file of the study's parameters, beside which its archives and tables are.
    """
    params = yaml.safe_load(overlay.read_text())
    name = params["name"]
    tables = read_text((overlay.parent / f"{name}-tables.txt").read_text(encoding="utf-8"))
    with TemporaryDirectory() as folder:
        for archive in overlay.parent.glob(f"{name}-seed*.tar.xz"):
            with tarfile.open(archive) as files:
                files.extractall(folder, filter="data")
        comparisons = compare_tables(Path(folder, "experiments", name), params, tables)
    return list_differing(comparisons), len(comparisons)


def main() -> int:
    overlay = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "experiments/baseline.yaml"
    differing, count = compare_all(overlay)
    print(*differing, f"{count} numbers recomputed, {len(differing)} differ", sep="\n")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
