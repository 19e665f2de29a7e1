"""The study of the baseline against an independent recomputation from the recorded runs."""

import shutil
from pathlib import Path

import pytest
import yaml

from rapid.config.params import load_files
from rapid.config.specs import list_study_runs
from reports import record
from reports.contents import build_studies
from reports.render import text as as_text
from reports.report_data import ReportData
from tests import recompute_studies
from tests.conftest import ROOT

SEEDS = (1, 2)


@pytest.fixture
def overlay(tmp_path) -> Path:
    """Parameters of the study with two seeds, beside their archives and the report's tables."""
    params = yaml.safe_load((ROOT / "experiments/baseline.yaml").read_text())
    params["studies"]["seeds"] = [*SEEDS]
    path = tmp_path / "baseline.yaml"
    path.write_text(yaml.safe_dump(params, sort_keys=False))
    for name in ("start", *(f"seed{seed}" for seed in SEEDS)):
        shutil.copy(ROOT / f"experiments/baseline-{name}.tar.xz", tmp_path)
    record.unpack_archives(str(tmp_path / "baseline"), tmp_path)
    params = load_files(ROOT / "params.yaml", path)
    content = build_studies(ReportData.read(params, tmp_path, list_study_runs(params)))
    (tmp_path / "baseline-tables.txt").write_text(as_text.render(content.results))
    return path


@pytest.mark.slow
def test_committed_tables_follow_from_the_records():
    differing, count = recompute_studies.compare_all(ROOT / "experiments/baseline.yaml")
    assert not differing
    assert count > 1800


@pytest.mark.slow
def test_recomputation_finds_a_changed_figure_and_no_others(overlay):
    differing, count = compare(overlay)
    assert not differing
    assert count > 1700
    tables = overlay.with_name("baseline-tables.txt")
    text = tables.read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if "  open  " in line)
    tables.write_text(text.replace(row, row.replace("  open ", "  holds")), encoding="utf-8")
    (line,), _ = compare(overlay)
    assert line.endswith("recomputed open, printed holds")


def compare(overlay: Path) -> tuple[list[str], int]:
    """Return what `compare_all` returns, without the smallest detectable distances.

    With two seeds a t-test has one degree of freedom, for which the quantiles of the noncentral t
    distribution are not exact to the printed digits.
    """
    differing, count = recompute_studies.compare_all(overlay)
    return [line for line in differing if ", Detectable: " not in line], count
