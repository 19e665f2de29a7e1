"""What RapidTrainer is expected to reach, and whether it does."""

from collections.abc import Callable
from typing import NamedTuple

FASTER = 2.0  # times GRPOTrainer's speed, at H=4
TO_FLOOR = 1.15  # times the least floor
OTHER = 0.05  # share of wall-clock time in no named phase


class Expectation(NamedTuple):
    """An expectation, what was found, and whether it holds; None where it was not measured."""

    text: str
    found: str = ""
    holds: bool | None = None


def expectations(documents: dict[str, dict]) -> list[Expectation]:
    """Return all expectations, from the documents of the parts."""
    whole, phases, savings, sizes, floors, memory, gpu = (
        documents.get(part, {"rows": []})["rows"] for part in "abcdefk"
    )
    against = whole + sizes + gpu
    usual = [row for row in against if row["H"] == 4]
    checks = [
        (_faster(FASTER), usual, f"at least {FASTER}x GRPOTrainer's speed at H=4"),
        (_faster(1.0), against, "never slower than GRPOTrainer"),
        (_faster(1.0), savings, "no saving slower than the plain loop"),
        (_faster(1.0), _against_on_policy(phases), "no H slower than on-policy"),
        (_near_the_floor, floors, f"at most {TO_FLOOR}x the least floor"),
        (_little_else, phases, f'"other" at most {OTHER:.0%} of wall-clock time'),
        (_no_more_memory, memory + gpu, "peak memory no higher than GRPOTrainer's"),
    ]
    return [Expectation(text, *(check(rows) if rows else ())) for check, rows, text in checks]


def _against_on_policy(rows: list[dict]) -> list[dict]:
    """Return the rows with H > 1, `faster` than those with H = 1 and the same N_step."""
    seconds = {(row["n_step"], row["H"]): row["seconds_rapid"][0] for row in rows}
    return [
        row | {"faster": [seconds[row["n_step"], 1] / row["seconds_rapid"][0]]}
        for row in rows
        if row["H"] > 1 and (row["n_step"], 1) in seconds
    ]


def _label(row: dict) -> str:
    """Return what tells a row from the others of its part."""
    if "saving" in row:
        return row["saving"]
    rate = "real grader" if row["rate"] is None else f"solve rate {row['rate']:.0%}"
    length = f", {row['length']} tokens" if row["fixed_length"] else ""
    return f"{row['workload']}, H={row['H']}, N_step={row['n_step']}, {rate}{length}"


def _faster(least: float) -> Callable[[list[dict]], tuple[str, bool]]:
    """Return a check that the faster side of each row is so many times as fast."""

    def check(rows: list[dict]) -> tuple[str, bool]:
        slow = sorted(rows, key=lambda row: row["faster"][0])
        below = [row for row in slow if row["faster"][0] < least]
        named = "; ".join(f"{row['faster'][0]:.2f}x ({_label(row)})" for row in below or slow[:1])
        return f"{len(rows) - len(below)} of {len(rows)} rows; least: {named}", not below

    return check


def _near_the_floor(rows: list[dict]) -> tuple[str, bool]:
    ratios = [f"{row['to_least'][0]:.2f}x ({_label(row)})" for row in rows]
    return "; ".join(ratios), max(row["to_least"][0] for row in rows) <= TO_FLOOR


def _little_else(rows: list[dict]) -> tuple[str, bool]:
    shares = [row["other_share"][0] for row in rows]
    share, row = max(zip(shares, rows, strict=True), key=lambda pair: pair[0])
    where = f"H={row['H']}, N_step={row['n_step']}"
    within = f"{sum(one <= OTHER for one in shares)} of {len(rows)} settings"
    return f"at most {share:.1%} ({where}); within it in {within}", share <= OTHER


def _no_more_memory(rows: list[dict]) -> tuple[str, bool]:
    pairs = [(row["workload"], row["peak_rapid"][0], row["peak_stock"][0]) for row in rows]
    ordered = sorted(pairs, key=lambda pair: pair[1] / pair[2])
    peaks = {name: pair for name, *pair in ordered}  # of each model, the highest in comparison
    text = "; ".join(
        f"{name}: {ours:.0f} against {theirs:.0f} MB" for name, (ours, theirs) in peaks.items()
    )
    return text, all(ours <= theirs for ours, theirs in peaks.values())
