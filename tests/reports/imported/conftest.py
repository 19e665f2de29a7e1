"""Writes CSV files of runs."""

import csv
from pathlib import Path

import pytest

LINE = {
    "benchmark": "math", "model": "m", "algorithm": "pg", "seed": "1", "runtime": "60", "pass@1": "0.5",
}  # fmt: skip


@pytest.fixture
def write_csv(tmp_path):
    """Return a function that writes lines that differ from LINE in these columns."""

    def write(*lines: dict, name: str = "gpu.csv") -> Path:
        rows = [LINE | line for line in lines]
        columns = list(dict.fromkeys(column for row in rows for column in row))
        with open(tmp_path / name, "w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, columns)
            writer.writeheader()
            writer.writerows(rows)
        return tmp_path / name

    return write
