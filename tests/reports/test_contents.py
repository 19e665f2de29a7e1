"""What a report says of the files that are not there."""

import pandas as pd

from reports import contents
from reports.measured import Measured

ROWS = [  # why there is no evaluation, and no summary
    ("base", "not evaluated", "not trained"),  # which is no gap
    ("pg", "", "not trained"),
    ("dapo", "not evaluated", "not trained"),
    ("sft", "", ""),
]


def test_every_study_has_a_section_with_its_tables(params, runs):
    content = contents.build_studies(Measured.read(params, runs.root))
    *studies, claims = content.sections
    assert [one.anchor for one in studies] == [*params.studies.compared]
    shown = [item for one in content.with_figures([]) for item in one.items]
    assert sorted(table.label for table in shown) == sorted(one.label for one in content.results)
    assert claims.items == ["tab:studied-claims"]


def test_what_is_missing_is_told_by_its_reason_and_counted():
    frame = pd.DataFrame(ROWS, columns=["algorithm", "no_evaluation", "no_summary"])
    frame = frame.assign(benchmark="math", model="m", seed=3)
    assert contents.missing(frame) == [
        ("not evaluated", ["math/m/base/seed3", "math/m/dapo/seed3"]),
        ("not trained", ["math/m/pg/seed3", "math/m/dapo/seed3"]),
    ]
    assert contents.counts(frame) == "2 of 4 evaluations and 1 of 3 training runs"
