"""Checks whether RapidTrainer reaches what parts.yaml declares that it is expected to reach."""

from typing import NamedTuple

from performance.parts import TABLE


class Result(NamedTuple):
    """An expectation, what was measured, and whether it holds; None where nothing was measured."""

    text: str
    measured: str = ""
    holds: bool | None = None


def check_expectations(documents: dict[str, dict]) -> list[Result]:
    """Return the results of all expectations, from the documents of the parts."""
    rows = {part: _add_ratios(document["rows"]) for part, document in documents.items()}
    return [_check(rows, **expectation) for expectation in TABLE["expectations"]]


def _add_ratios(rows: list[dict]) -> list[dict]:
    """Return rows with the ratios that are expected: of memory, and of H > 1 to on-policy."""
    on_policy = {row["n_step"]: row["seconds_rapid"][0] for row in rows if row.get("H") == 1}
    ratios = []
    for row in rows:
        ratio = {}
        if "peak_stock" in row:
            ratio["peak_ratio"] = [row["peak_rapid"][0] / row["peak_stock"][0]]
        elif row.get("H", 1) > 1 and row["n_step"] in on_policy:
            ratio["over_on_policy"] = [on_policy[row["n_step"]] / row["seconds_rapid"][0]]
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
    """Return how many rows hold, and the figures of those that do not, or the worst one.

    Args:
        figure: its median is held against the bound.
        where: the labels of the rows that are checked.
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
    """Return what tells a row from the others of its part."""
    rate = "real grader" if row["rate"] is None else f"solve rate {row['rate']:.0%}"
    length = f", {row['length']} tokens" if row["fixed_length"] else ""
    return f"{row['workload']}, H={row['H']}, N_step={row['n_step']}, {rate}{length}"
