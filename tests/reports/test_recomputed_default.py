"""The tables of the default params.yaml and of its studies, from the recorded files of the runs.

After a change of params.yaml that changes these runs, make and record them again:

    make tables studies tables-record && make figures-of-docs WRITE=1
"""

import shutil
import tarfile

import pytest

from rapid.artifacts.files import write_text
from rapid.config.params import load
from rapid.config.specs import list_study_runs
from reports.contents import build_studies
from reports.render import text as as_text
from reports.report_data import ReportData
from tests import documents, recompute, recompute_studies
from tests.conftest import ROOT, load_default_values
from tests.reports.conftest import write_report
from tests.reports.reading import read_text

MARKS_BY_PAGE = {
    f"{page.name}: {mark.generator}": mark
    for page in documents.PAGES
    for mark in documents.read_marks(page)
    if mark.command in ("make tables", "make studies")
}
TABLES = "reports/studies/tables.txt"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Folder of the recorded runs, with the studies' tables.

    It has the pictures of the documents, whose captions are tested, but not what they show.
    """
    root = tmp_path_factory.mktemp("default")
    with tarfile.open(ROOT / "experiments/tables-raw.tar.xz") as archive:
        archive.extractall(root, filter="data")
    params = load(load_default_values())
    content = build_studies(ReportData.read(params, root, list_study_runs(params)))
    write_text(root / TABLES, as_text.render(content.results))
    shutil.copytree(ROOT / "docs/figures", root / documents.FIGURES)
    return root


@pytest.mark.slow
def test_tables_of_the_recorded_runs_equal_the_recomputation(root):
    params = load(load_default_values())
    folder = write_report(load_default_values(), root)
    differing, count = recompute.compare_all(root, params.model_dump(), folder)
    assert not differing
    assert count == 393


def compare_studies(root):
    printed = read_text((root / TABLES).read_text(encoding="utf-8"))
    params = load(load_default_values()).model_dump()
    return recompute_studies.compare_tables(root, params, printed)


@pytest.mark.slow
def test_studies_of_the_recorded_runs_equal_the_recomputation(root):
    comparisons = compare_studies(root)
    assert not recompute_studies.list_differing(comparisons)
    assert len(comparisons) == 211


@pytest.mark.slow
def test_a_changed_time_of_a_snapshot_is_found(root):
    variant = "mbpp_plus/tiny-qwen2/rapid-H8,epochs=2,snapshots=7"
    path = root / f"evaluations/{variant}/seed1/curve.jsonl"
    text = path.read_text(encoding="utf-8")
    try:
        path.write_text(text.replace('"seconds":', '"seconds":1'), encoding="utf-8")
        differing = recompute_studies.list_differing(compare_studies(root))
    finally:
        path.write_text(text, encoding="utf-8")
    assert any(line.startswith("time-to-accuracy: times: RAPID (H=8), 75%: ") for line in differing)
    assert all(line.startswith("time-to-accuracy: times: ") for line in differing)


def test_documents_have_figures_of_the_recorded_runs():
    names = {name.split()[1] for name in MARKS_BY_PAGE}
    assert names == {"picture", "table1", "sweep", "plan_rates", "within"}


@pytest.mark.slow
@pytest.mark.parametrize("name", MARKS_BY_PAGE)
def test_numbers_of_the_documents_are_those_of_the_recorded_runs(name, root):
    mark = MARKS_BY_PAGE[name]
    assert mark.generate_text(root) == mark.text
