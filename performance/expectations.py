"""What RapidTrainer is expected to reach, and whether it does."""

from typing import NamedTuple

FASTER = 1.5  # times GRPOTrainer's speed, at H=4 and a solve rate of about 10 %
OTHER = 0.05  # share of wall-clock time in no named phase


class Expectation(NamedTuple):
    """An expectation, what was found, and whether it holds; None where it was not measured."""

    text: str
    found: str = ""
    holds: bool | None = None


def expectations(documents: dict[str, dict]) -> list[Expectation]:
    """Return all expectations, from the documents of the parts."""
    against, phases, memory = (documents.get(part, {"rows": []})["rows"] for part in "abf")
    usual = [row for row in against if row["rate"] == 0.1]
    checks = [
        (_fast, usual, f"at least {FASTER}x GRPOTrainer's speed at H=4 and a solve rate of 10 %"),
        (_never_slower, against, "never slower than GRPOTrainer, at any solve rate"),
        (_little_else, phases, f'"other" at most {OTHER:.0%} of wall-clock time'),
        (_no_more_memory, memory, "peak memory no higher than GRPOTrainer's"),
    ]
    return [Expectation(text, *(check(rows) if rows else ())) for check, rows, text in checks]


def _label(row: dict) -> str:
    return f"{row['workload']}, N_step {row['n_step']}, micro-batch {row['micro_batch']}"


def _fast(rows: list[dict]) -> tuple[str, bool]:
    text = "; ".join(f"{_label(row)}: {row['faster'][0]:.2f}x" for row in rows)
    return text, min(row["faster"][0] for row in rows) >= FASTER


def _never_slower(rows: list[dict]) -> tuple[str, bool]:
    row = min(rows, key=lambda row: row["faster"][0])
    least, lowest = row["faster"][0], min(row["lowest_pair"] for row in rows)
    rate = "real grader" if row["rate"] is None else f"solve rate {row['rate']:.0%}"
    text = f"least {least:.2f}x ({_label(row)}, {rate}); lowest single pair {lowest:.2f}x"
    return text, least >= 1


def _little_else(rows: list[dict]) -> tuple[str, bool]:
    row = max(rows, key=lambda row: row["other_share"][0])
    share = row["other_share"][0]
    within = sum(row["other_share"][0] <= OTHER for row in rows)
    where = f"H={row['H']}, N_step={row['n_step']}"
    return f"at most {share:.1%} ({where}); within it in {within} of {len(rows)} settings", (
        share <= OTHER
    )


def _no_more_memory(rows: list[dict]) -> tuple[str, bool]:
    peaks = {
        row["workload"]: [row[f"peak_{side}"][0] for side in ("rapid", "stock")] for row in rows
    }
    text = "; ".join(
        f"{name}: {ours:.0f} against {theirs:.0f} MB" for name, (ours, theirs) in peaks.items()
    )
    return text, all(ours <= theirs for ours, theirs in peaks.values())
