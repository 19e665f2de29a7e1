"""Compares measured figures with the expectations that parts.yaml declares."""

from typing import NamedTuple

from performance.parts import DECLARATIONS


class ExpectationResult(NamedTuple):
    """The result of checking an expectation, with the figures that were compared."""

    text: str  # the expectation in words
    measured: str = ""  # the figures of the rows in which it fails, or else the worst figure
    holds: bool | None = None  # None if nothing was measured


def check_expectations(documents: dict[str, dict]) -> list[ExpectationResult]:
    """Return the results of all expectations.

    Args:
        documents: the measurements of each part, as `performance.results.read_parts` returns them.
    """
    rows = {part: _add_ratios(document["rows"]) for part, document in documents.items()}
    return [_check_expectation(rows, **expectation) for expectation in DECLARATIONS["expectations"]]


def _add_ratios(rows: list[dict]) -> list[dict]:
    """Return the rows, with ratios of figures added.

    Figures with quartiles are lists that begin with the median. Times of phases, such as
    `backpropagation`, and `training_alone` are single numbers.
    `peak_ratio` is RapidTrainer's peak memory divided by GRPOTrainer's. `speedup_over_on_policy`
    is the time with H = 1, which is on-policy, divided by the time with a larger H.
    `over_training_alone` is the time of backpropagation in RapidTrainer divided by that of training
    with plain transformers. `slowdown` is the time of policy gradient beside busy processes,
    divided by its time on free cores with the default OMP_WAIT_POLICY.
    """
    on_policy_seconds = {
        row["n_step"]: row["seconds_rapid"][0]
        for row in rows
        if row.get("H") == 1 and "seconds_rapid" in row
    }
    rows_with_ratios = []
    for row in rows:
        ratios = {}
        if "peak_mb_trl" in row:
            ratios["peak_ratio"] = [row["peak_mb_rapid"][0] / row["peak_mb_trl"][0]]
        elif row.get("H", 1) > 1 and row["n_step"] in on_policy_seconds:
            seconds = on_policy_seconds[row["n_step"]]
            ratios["speedup_over_on_policy"] = [seconds / row["seconds_rapid"][0]]
        if row.get("busy_processes"):
            free_cores = next(other for other in rows if not other["busy_processes"])
            seconds = row["seconds_policy_gradient"][0]
            ratios["slowdown"] = [seconds / free_cores["seconds_policy_gradient"][0]]
        if "training_alone" in row:
            ratios["over_training_alone"] = [row["backpropagation"] / row["training_alone"]]
        rows_with_ratios.append(row | ratios)
    return rows_with_ratios


def _check_expectation(
    rows: dict[str, list[dict]],
    *,
    text: str,
    parts: str,
    figure: str,
    bound: float,
    number_format: str = "{:.2f}x",
    at_least: bool = False,
    labels: dict | None = None,
) -> ExpectationResult:
    """Check an expectation of parts.yaml in all rows of the parts that it is about.

    Args:
        parts: the letters of the parts, such as "adk".
        labels: values that a row must have to be checked, such as {"H": 4}.
    """
    checked = [
        (row[figure][0], _label_row(row))
        for part in parts
        for row in rows.get(part, [])
        if figure in row and (labels or {}).items() <= row.items()
    ]
    if not checked:
        return ExpectationResult(text)
    checked.sort(reverse=not at_least)  # the worst figure first
    failing = [pair for pair in checked if (pair[0] < bound if at_least else pair[0] > bound)]
    shown = failing or checked[:1]
    figures = "; ".join(f"{number_format.format(value)} ({label})" for value, label in shown)
    count = f"{len(checked) - len(failing)} of {len(checked)} rows hold"
    kind = "others" if failing else "worst"
    return ExpectationResult(text, f"{count}; the {kind}: {figures}", not failing)


def _label_row(row: dict) -> str:
    """Return the labels that distinguish a row from the other rows of its part."""
    rate = "real grader" if row["solve_rate"] is None else f"solve rate {row['solve_rate']:.0%}"
    if "benchmark" in row:
        rate += f" of {row['benchmark']}"
    if workers := row.get("grading_workers"):
        rate += f", {workers} grading workers"
    length = f", {row['length']} tokens" if row["fixed_length"] else ""
    return f"{row['workload']}, H={row['H']}, N_step={row['n_step']}, {rate}{length}"
