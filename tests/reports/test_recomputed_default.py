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

COMMANDS = ("make tables", "make studies")
MARKS = [
    pytest.param(mark, id=f"{page.name}: {mark.generator}")
    for page in documents.PAGES
    for mark in documents.read_marks(page)
    if mark.command in COMMANDS
]
TABLES = "reports/studies/tables.txt"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Folder of the recorded runs, with the studies' tables and the documents' figures."""
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
    assert count > 390


@pytest.mark.slow
def test_studies_of_the_recorded_runs_equal_the_recomputation(root):
    params = load(load_default_values()).model_dump()
    printed = read_text((root / TABLES).read_text(encoding="utf-8"))
    comparisons = recompute_studies.compare_tables(root, params, printed)
    assert not recompute_studies.list_differing(comparisons)
    assert len(comparisons) > 150


@pytest.mark.slow
@pytest.mark.parametrize("mark", MARKS)
def test_figures_of_the_documents_are_those_of_the_recorded_runs(mark, root):
    assert mark.generate_text(root) == mark.text
