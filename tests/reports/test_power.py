"""`python -m reports.power`: noise of contrasts from a record, and what n seeds detect."""

import math

import pandas as pd
import pytest
from scipy import stats

from rapid.config.params import load_files
from reports import power
from reports.statistics.decisions import POWER
from tests.conftest import ROOT

FILES = [ROOT / "params.yaml", ROOT / "experiments/baseline.yaml"]
RECORD = ROOT / "experiments/arena-results.csv"


def test_committed_table_is_up_to_date(tmp_path):
    output = tmp_path / "power.txt"
    arguments = ["--record", str(RECORD), "--output", str(output)]
    assert power.main(["--configfile", *map(str, FILES), *arguments]) == 0
    assert output.read_text() == (ROOT / "experiments/baseline-power.txt").read_text()


def test_detectable_distance_has_the_power_that_is_claimed():
    """The row `negatives` on MATH: x - (a + b) / 2 with the record's deviations."""
    record = pd.read_csv(RECORD)
    accuracy = record[record.benchmark == "math"].set_index("algorithm").accuracy
    full, none = (accuracy[name].std() for name in ("rapid-H16", "rapid-H16,baseline=none"))
    deviation = math.sqrt(full**2 * 1.25 + none**2 / 4)
    lines = power.render_power(load_files(*FILES), record).splitlines()
    (row,) = (line.split() for line in lines if line.split()[:2] == ["negatives", "math"])
    assert float(row[2]) == pytest.approx(100 * deviation, abs=0.051)
    n, distance = 20, float(row[4]) / 100
    noncentrality = distance / (deviation / math.sqrt(n))
    critical = stats.t.isf(0.05 / 46 / 2, n - 1)
    assert stats.nct.sf(critical, n - 1, noncentrality) == pytest.approx(POWER, abs=0.02)
