"""What RapidTrainer is expected to reach, and whether it does."""

from dataclasses import dataclass

from performance.summary import middle, phase, ratios

FASTER = 1.5  # times GRPOTrainer's speed, at H=4 and a solve rate of about 10 %
OTHER = 0.05  # share of wall-clock time in no named phase


@dataclass(frozen=True)
class Expectation:
    """An expectation, what was found, and whether it holds; None where it was not measured."""

    text: str
    found: str
    holds: bool | None


def expectations(documents: dict[str, dict]) -> list[Expectation]:
    """All of them, from the documents of the parts."""
    against = documents.get("a", {}).get("rows", [])
    found = [
        _fast_enough([row for row in against if row["rate"] == 0.1]),
        _never_slower(against),
        _little_else(documents.get("b", {}).get("rows", [])),
    ]
    return [*found, _no_more_memory(documents.get("f", {}).get("rows", []))]


def speedups(row: dict) -> list[float]:
    """GRPOTrainer's seconds over RapidTrainer's, of each pair."""
    return ratios(*([one["seconds"] for one in row["sides"][side]] for side in ("stock", "rapid")))


def _label(row: dict) -> str:
    setting = row["setting"]
    return f"{row['workload']}, N_step {setting['n_step']}, micro-batch {setting['micro_batch']}"


def _fast_enough(rows: list[dict]) -> Expectation:
    text = f"at least {FASTER}x GRPOTrainer's speed at H=4 and a solve rate of 10 %"
    found = {_label(row): middle(speedups(row)).median for row in rows}
    said = "; ".join(f"{label}: {value:.2f}x" for label, value in found.items())
    return Expectation(text, said, min(found.values()) >= FASTER if found else None)


def _never_slower(rows: list[dict]) -> Expectation:
    text = "never slower than GRPOTrainer, at any solve rate"
    if not rows:
        return Expectation(text, "", None)
    found = {index: middle(speedups(row)).median for index, row in enumerate(rows)}
    least = min(found, key=found.get)
    row = rows[least]
    rate = "real grader" if row["rate"] is None else f"solve rate {row['rate']:.0%}"
    lowest = min(min(speedups(row)) for row in rows)
    said = f"least {found[least]:.2f}x ({_label(row)}, {rate}); lowest single pair {lowest:.2f}x"
    return Expectation(text, said, found[least] >= 1)


def _little_else(rows: list[dict]) -> Expectation:
    text = f'"other" at most {OTHER:.0%} of wall-clock time'
    if not rows:
        return Expectation(text, "", None)
    found = [
        (
            middle([phase(one, "other") / one["seconds"] for one in row["sides"]["rapid"]]).median,
            row,
        )
        for row in rows
    ]
    share, row = max(found, key=lambda one: one[0])
    within = sum(one <= OTHER for one, _ in found)
    where = f"H={row['setting']['H']}, N_step={row['setting']['n_step']}"
    said = f"at most {share:.1%} ({where}); within it in {within} of {len(found)} settings"
    return Expectation(text, said, share <= OTHER)


def _no_more_memory(rows: list[dict]) -> Expectation:
    text = "peak memory no higher than GRPOTrainer's"
    found = {}
    for row in rows:
        peaks = [
            middle([one["peak"] for one in row["sides"][side]]).median
            for side in ("rapid", "stock")
        ]
        found[row["workload"]] = peaks
    said = "; ".join(
        f"{name}: {ours:.0f} against {theirs:.0f} MB" for name, (ours, theirs) in found.items()
    )
    return Expectation(text, said, all(a <= b for a, b in found.values()) if found else None)
