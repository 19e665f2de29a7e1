"""Compares measured figures with the expectations that parts.yaml declares."""

from typing import NamedTuple

from performance.parts import TABLE


class Result(NamedTuple):
    """The result of an expectation."""

    text: str  # the expectation
    measured: str = ""  # the measured figures, as text
    holds: bool | None = None  # None if nothing was measured


def check_expectations(documents: dict[str, dict]) -> list[Result]:
    """Return the results of all expectations.

    Args:
        documents: the measurements of each part, as `performance.results.read` returns them.
    """
    rows = {part: _add_ratios(document["rows"]) for part, document in documents.items()}
    return [_check(rows, **expectation) for expectation in TABLE["expectations"]]


def _add_ratios(rows: list[dict]) -> list[dict]:
    """Return the rows with the ratios for which there are expectations.

    `peak_ratio` is the peak memory of RapidTrainer over that of GRPOTrainer. `over_on_policy` is
    the time with H = 1, which is on-policy, over the time with a larger H. `over_plain` is the time
    of training over that of plain transformers.
    """
    on_policy = {row["n_step"]: row["seconds_rapid"][0] for row in rows if row.get("H") == 1}
    ratios = []
    for row in rows:
        ratio = {}
        if "peak_stock" in row:
            ratio["peak_ratio"] = [row["peak_rapid"][0] / row["peak_stock"][0]]
        elif row.get("H", 1) > 1 and row["n_step"] in on_policy:
            ratio["over_on_policy"] = [on_policy[row["n_step"]] / row["seconds_rapid"][0]]
        if "plain" in row:
            ratio["over_plain"] = [row["backpropagation"] / row["plain"]]
        ratios.append(row | ratio)
    return ratios


def _check(
    rows: dict[str, list[dict]],
    *,
    text: str,
    parts: str,
    figure: str,
    bound: float,
    form: str = "{:.2f}x",
    at_least: bool = False,
    where: dict | None = None,
) -> Result:
    """Return the result of one expectation, with the number of rows for which it holds.

    The result names the figures of the rows for which it does not hold, or else the worst figure.

    Args:
        text: the expectation in words.
        parts: letters of the parts whose rows are checked.
        figure: the name of the figure whose median is compared with the bound.
        form: how to format the figure.
        at_least: whether the bound is a lower bound; otherwise it is an upper bound.
        where: check only rows with these labels.
    """
    checked = [
        (row[figure][0], _label_row(row))
        for row in (row for part in parts for row in rows.get(part, []))
        if figure in row and (where or {}).items() <= row.items()
    ]
    if not checked:
        return Result(text)
    checked.sort(reverse=not at_least)
    beyond = [pair for pair in checked if (pair[0] < bound if at_least else pair[0] > bound)]
    worst = "; ".join(f"{form.format(value)} ({label})" for value, label in beyond or checked[:1])
    holding = f"{len(checked) - len(beyond)} of {len(checked)} rows hold"
    return Result(text, f"{holding}; the {'others' if beyond else 'worst'}: {worst}", not beyond)


def _label_row(row: dict) -> str:
    """Return the labels that distinguish a row from the other rows of its part."""
    rate = "real grader" if row["rate"] is None else f"solve rate {row['rate']:.0%}"
    if "benchmark" in row:
        rate += f" of {row['benchmark']}"
    if workers := row.get("grading_workers"):
        rate += f", {workers} grading workers"
    length = f", {row['length']} tokens" if row["fixed_length"] else ""
    return f"{row['workload']}, H={row['H']}, N_step={row['n_step']}, {rate}{length}"
