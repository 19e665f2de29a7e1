"""Sections of a report, and its list of missing files."""

import pandas as pd

from reports import contents
from reports.report_data import ReportData

ROWS = [  # algorithm, why there is no evaluation, why there is no summary
    ("base", "not evaluated", "not trained"),  # base models are never trained
    ("pg", "", "not trained"),
    ("dapo", "not evaluated", "not trained"),
    ("sft", "", ""),
]


def test_every_study_has_a_section_with_its_tables(params, runs):
    content = contents.build_studies(ReportData.read(params, runs.root))
    *studies, _, claims = content.sections
    assert [section.anchor for section in studies] == [*params.studies.compared]
    tables = [item for section in content.list_sections([]) for item in section.items]
    assert sorted(table.label for table in tables) == sorted(
        table.label for table in content.results
    )
    assert claims.items == ["tab:studied-claims"]


def test_missing_files_are_listed_by_reason_and_counted():
    frame = pd.DataFrame(ROWS, columns=["algorithm", "no_evaluation_reason", "no_summary_reason"])
    frame = frame.assign(benchmark="math", model="m", seed=3)
    assert contents.group_missing_results(frame) == [
        ("not evaluated", ["math/m/base/seed3", "math/m/dapo/seed3"]),
        ("not trained", ["math/m/pg/seed3", "math/m/dapo/seed3"]),
    ]
    assert contents.describe_counts(frame) == "2 of 4 evaluations and 1 of 3 training runs"
