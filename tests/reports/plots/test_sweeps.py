"""Figures of studies that sweep a parameter: lines, and the values that are drawn."""

from dataclasses import replace

import pytest

from rapid.config.params import load
from rapid.config.specs import add_base_runs, list_study_runs
from reports import plots
from reports.plots import style, sweeps
from reports.report_data import ReportData
from reports.tables import studies
from tests.reports.plots.drawn import draw

NAMES = [
    "rapid-H2",
    "rapid-H2,baseline_scale=0.5",
    "rapid-H2,baseline_scale=0",
    "rapid-H2,weighted=false",
    "rapid-H2,weighted=false,baseline_scale=0",
    "rapid-H2,positive_only=true",
    "rapid-H1",
    "rapid-H1,baseline_scale=0",
]


@pytest.fixture
def data(values, runs):
    """Runs whose entropy is their position in `NAMES`, plus 0.1 in the second seed."""
    study = {"benchmark": "math", "algorithms": NAMES, "sweep": "baseline_scale"}
    values["evaluation"]["diversity"] = True
    values["studies"] = {"seeds": [0, 1], "compared": {"scale": study}}
    params = load(values)
    for run in add_base_runs(params, list_study_runs(params)):
        entropy = 9.0 if run.algorithm == "base" else NAMES.index(run.algorithm)
        runs.write_scores(run, [8, 4, 0], entropy=entropy + 0.1 * run.seed)
        if run.algorithm != "base":
            runs.write_summary(run)
    return ReportData.read(params, runs.root, list_study_runs(params))


def test_variants_that_differ_only_in_the_swept_parameter_share_a_line(data):
    (study,) = studies.list_studies(data)
    lines = sweeps.group_variants(data.params, study)
    assert [(line.h, line.label, line.by_value) for line in lines] == [
        (2, "RAPID", {0.0: NAMES[2], 0.5: NAMES[1], 1.0: NAMES[0]}),
        (2, "weighted = false", {0.0: NAMES[4], 1.0: NAMES[3]}),
        (2, "positive_only = true", {1.0: NAMES[5]}),
        (1, "RAPID", {0.0: NAMES[7], 1.0: NAMES[6]}),
    ]


def test_a_value_that_all_variants_have_is_not_replaced_by_the_default(data):
    (study,) = studies.list_studies(data)
    names = ["rapid-H2,baseline_scale=0.5", "rapid-H1,baseline_scale=0.5"]
    study = replace(study, runs=replace(study.runs, algorithms=names))
    lines = sweeps.group_variants(data.params, study)
    assert [(line.h, line.label, line.by_value) for line in lines] == [
        (2, "RAPID", {0.5: names[0]}),
        (1, "RAPID", {0.5: names[1]}),
    ]


def test_means_are_drawn_by_value_in_the_panel_of_their_h(data):
    assert plots.list_study_figures(data.params) == ["scale", "scale-sweep"]
    figure = plots.build_figures("studies", data)["scale-sweep"]
    drawing = draw(figure)
    assert [axes.get_title(loc="left") for axes in drawing.axes[:2]] == ["H = 1", "H = 2"]
    rows = [axes.get_ylabel() for axes in drawing.axes[::2]]
    assert rows == [
        "Pass@1 (%)", "Unparsable (%)", "Entropy (nats)", "Distinct (%)", "Distinct solutions"
    ]  # fmt: skip
    on_policy, off_policy = drawing.axes[4:6]

    def list_lines(axes):
        """Return the y-values of each line with markers, from the smallest x on."""
        lines = [line for line in axes.lines if line.get_marker() not in ("None", None, "")]
        return [pytest.approx(list(line.get_ydata())) for line in lines]

    assert list_lines(on_policy) == [[7.05, 6.05]]
    assert list_lines(off_policy) == [[2.05, 1.05, 0.05], [4.05, 3.05], [5.05]]
    dashed = [line for line in on_policy.lines if list(line.get_ydata()) == [9.05, 9.05]]
    assert dashed
    (legend,) = drawing.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == ["RAPID", "weighted = false", "positive_only = true"]
    assert style.render(figure, ["png"])["png"]
