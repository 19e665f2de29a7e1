"""Recompute Tables 1, 3 and 4 from the raw files, without the code of the reports.

    python -m tests.recompute --root . --params params.yaml --tables reports/tables.tex

It reads evaluation.json and summary.json of the runs, counts verdicts, computes means, deviations and
correlations with Python's statistics module, and compares the strings of each cell with tables.tex.
Shares of completions are fractions; a share halfway between two decimals is rounded up.
"""

import argparse
import json
import math
import re
import statistics
import sys
from fractions import Fraction
from pathlib import Path

import yaml

Cells = dict[tuple[int, int, int], list[str]]  # table, row, column -> strings of the cell
LABELS = {1: "rapid:tab:main", 3: "rapid:tab:staleness", 4: "rapid:tab:ninf-corrs"}


def recompute_cells(root: Path, params: dict) -> Cells:
    """Return the strings of each cell. The first row and column of numbers have the index 0."""
    spec, cells = params["tables"]["main"], {}
    names = ["base", *spec["algorithms"]]
    sweep = {f"rapid-H{h}": h for h in params["tables"]["staleness"]["H"]}
    columns = {1: 0, 3: 0}
    correlations = 0
    for benchmark, sizes in params["benchmarks"].items():
        runs = {name: _read_runs(root, benchmark, spec, name) for name in {*names, *sweep}}
        metrics = [(f"pass@{k}", _format_percent) for k in sizes["pass_at"]]
        for table, rows, other_metrics in (
            (1, names, [("runtime", None)]),
            (3, sweep, [("runtime", None), ("staleness", _format_two_digits)]),
        ):
            for metric, format_value in metrics + other_metrics:
                values = {name: [run[metric] for run in runs[name]] for name in rows}
                if metric == "runtime":
                    means = [statistics.mean(v) for v in values.values() if None not in v]
                    format_value = _choose_duration_format(means)
                for row, name in enumerate(rows):
                    cells[table, row, columns[table]] = _format_cell(values[name], format_value)
                columns[table] += 1
        points = [(h, run) for name, h in sweep.items() for run in runs[name]]
        for metric, _ in metrics:
            cells[4, correlations, 0] = [metric.capitalize()]
            for column, other_metric in enumerate([metric, "runtime", "staleness"], start=1):
                h_values, values = zip(*((h, run[other_metric]) for h, run in points), strict=True)
                cells[4, correlations, column] = [
                    _format_correlation(statistics.correlation(h_values, values))
                ]
            correlations += 1
    return cells


def _read_runs(root: Path, benchmark: str, spec: dict, name: str) -> list[dict]:
    """Return the metrics of each seed's run, by name."""
    runs = []
    for seed in spec["seeds"]:
        path = f"{benchmark}/{spec['model']}/{name}/seed{seed}"
        document = json.loads((root / "evaluations" / path / "evaluation.json").read_text())
        metrics = {"runtime": None, "staleness": None}
        for k in map(int, document["pass_at"]):
            estimates = [
                _estimate_pass_at_k(score["samples"], score["correct"], k)
                for score in document["scores"]
            ]
            metrics[f"pass@{k}"] = statistics.mean(estimates)
        if name != "base":
            summary = json.loads((root / "runs" / path / "summary.json").read_text())
            metrics |= {"runtime": summary["runtime"]["total"], "staleness": summary["staleness"]}
        runs.append(metrics)
    return runs


def _estimate_pass_at_k(n: int, correct: int, k: int) -> Fraction:
    """Return 1 - prod (1 - k / i), i from n - c + 1 to n: the product form of the estimator."""
    return 1 - math.prod(1 - Fraction(k, i) for i in range(n - correct + 1, n + 1))


def _format_cell(values: list, format_value) -> list[str]:
    if None in values:
        return ["N/A"]
    mean = statistics.mean(values)
    texts = [format_value(mean, mean)]
    return texts if len(values) < 2 else [*texts, format_value(statistics.stdev(values), mean)]


def _format_percent(share: Fraction, mean: Fraction) -> str:
    return f"{math.floor(1000 * share + Fraction(1, 2)) / 10:.1f}%"


def _choose_duration_format(means: list[float]):
    """Return a function that formats durations: in one unit, with 3 digits of the shortest mean."""
    if max(means) < 0.1:
        name, unit = "ms", 0.001
    elif max(means) < 600:
        name, unit = "s", 1
    elif max(means) < 36000:
        name, unit = "min", 60
    else:
        name, unit = "h", 3600
    digits_before = len(str(int(min(means) / unit))) if min(means) >= unit else 0
    decimals = min(3, max(0, 3 - digits_before))
    return lambda seconds, mean: f"{seconds / unit:,.{decimals}f}{name}"


def _format_two_digits(value: float, mean: float) -> str:
    decimals = 1 - math.floor(math.log10(mean)) if 1e-6 <= mean < 0.005 else 2
    return f"{value:.{decimals}f}"


def _format_correlation(r: float) -> str:
    return f"{r:.3f}" if float(f"{r:.3f}") else "0.000"


def parse_printed_cells(tex: str) -> Cells:
    """Return the cells of tables.tex as plain strings, with the keys of `recompute_cells`."""
    cells = {}
    for number, label in LABELS.items():
        (table,) = (
            text_of_table
            for text_of_table in tex.split(r"\begin{table}")
            if rf"\label{{{label}}}" in text_of_table
        )
        first = 0
        for tabular in re.findall(r"\\begin{tabular}(.*?)\\end{tabular}", table, re.S):
            body = tabular.split(r"\midrule", 1)[1].split(r"\bottomrule")[0]
            body = re.sub(r"\\midrule|\\addlinespace", "", body)
            rows = [line for line in re.split(r"^\\\\$", body, flags=re.M) if line.strip()]
            for row, text in enumerate(rows):
                entries = [_strip_markup(entry) for entry in re.split(r"^& ", text, flags=re.M)[1:]]
                cells |= {
                    (number, row, first + column): entry for column, entry in enumerate(entries)
                }
            first += len(entries)
    return cells


def _strip_markup(entry: str) -> list[str]:
    """Strip TeX: \\makecell{\\textbf{97.9\\%}\\\\{\\scriptsize $\\pm$ 1.5\\%}} -> 97.9% and 1.5%."""
    text = re.sub(r"\\rlap{\\textsuperscript{[^}]*}}|\\textsuperscript{[^}]*}", "", entry)
    text = text.replace("$-$", "-").replace(r"\%", "%").replace(r"{\scriptsize $\pm$ ", r"")
    parts = [re.sub(r"\\(makecell|textbf|underline){|[{}]", "", part) for part in text.split(r"\\")]
    return [part.strip() for part in parts]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path("."))
    parser.add_argument("--params", type=Path, default=Path("params.yaml"))
    parser.add_argument("--tables", type=Path, default=Path("reports/tables.tex"))
    options = parser.parse_args()
    recomputed_cells = recompute_cells(options.root, yaml.safe_load(options.params.read_text()))
    printed_cells = parse_printed_cells(options.tables.read_text())
    pairs = {
        cell: (recomputed_cells.get(cell), printed_cells.get(cell))
        for cell in recomputed_cells | printed_cells
    }
    differences = {cell: pair for cell, pair in pairs.items() if pair[0] != pair[1]}
    for (table, row, column), (recomputed, printed) in differences.items():
        print(
            f"Table {table}, row {row}, column {column}: recomputed {recomputed}, printed {printed}"
        )
    for table in LABELS:
        print(f"Table {table}: {sum(key[0] == table for key in recomputed_cells)} cells recomputed")
    print(f"{len(differences)} differ")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
