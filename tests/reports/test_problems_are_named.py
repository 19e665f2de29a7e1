"""Every table, figure and page names its problems and their source."""

import functools
import json
import re
from pathlib import Path

import pytest

from rapid.artifacts.files import write_json
from rapid.artifacts.manifests import hash_files, write_manifest
from rapid.config.params import load, read
from rapid.config.specs import build_prepare_spec, list_arena_runs, list_study_runs
from reports import contents, plots
from reports.__main__ import main
from reports.render import latex, text
from reports.report_data import ReportData
from reports.tables.table import Table
from tests.conftest import ROOT
from tests.reports.conftest import RunFiles, make_run, small_values
from tests.reports.plots.drawn import draw

MADE_PROBLEMS = "Made problems in the format of {}, not the published ones"
# Sources of MBPP+ and MATH, and phrases that everything about both must contain.
SOURCES = {
    "made": (("embedded", "embedded"), [MADE_PROBLEMS.format("MBPP+ and MATH")]),
    "published": (
        ("hub", "FILE"),
        ["evalplus/mbppplus at b2d74c91837c", "the file mine.jsonl (SHA-256 "],
    ),
    "mixed": (
        ("hub", "embedded"),
        [MADE_PROBLEMS.format("MATH"), "dataset evalplus/mbppplus at b2d7"],
    ),
}
KINDS = {"embedded": "made", "hub": "hub", "FILE": "file"}


@pytest.fixture(scope="module")
def read_report(tmp_path_factory):
    """A function that writes all runs with problems of these sources, once for each kind."""
    return functools.cache(lambda kind: write_runs(kind, tmp_path_factory.mktemp(kind)))


def write_runs(kind: str, root: Path) -> tuple[dict, ReportData]:
    """Write all runs with problems of these sources; return parameters and measurements."""
    values, (sources, _) = small_values(), SOURCES[kind]
    file = root / "mine.jsonl"
    file.write_text("{}\n")
    for name, source in zip(values["benchmarks"], sources, strict=True):
        benchmark_source = {"source": str(file) if source == "FILE" else source, "test": 20}
        values["benchmarks"][name] = values["benchmarks"][name] | benchmark_source
    params = load(values)
    runs = RunFiles(root)
    runs.write_all(params)
    for name, benchmark in params.benchmarks.items():
        spec, folder = build_prepare_spec(params, name), root / "data" / name
        read_from = hash_files(file) if benchmark.source == str(file) else {}
        rows = {"train.jsonl": benchmark.train, "test.jsonl": 20}
        files = [folder / part for part in rows]
        folder.mkdir(parents=True)
        for path in files:
            path.write_text(name + path.name)
        write_manifest(folder, "prepare", spec, read_from, files, rows=rows)
    weights = root / make_run("rapid-H4").folder / "token_weights.json"
    write_json(weights, {"tokens": ["x"], "log_weights": [0.1], "H": 4, "step": 1, "id": "p"})
    runs.edit(weights, lambda document: document.update(benchmark="math"))
    return values, ReportData.read(params, root)


def test_set_up_table_lists_the_sources(read_report):
    _, data = read_report("mixed")
    (table,) = (table for table in contents.build_report(data).appendix if table.number == 6)
    rows = {row.label: [cell.text for cell in row.cells[0]] for row in table.rows}
    assert table.groups[0].columns == ["MBPP+ (hub)", "MATH (made)"]
    assert rows["Problems"] == ["hub", "made"]
    assert rows["Source"] == ["evalplus/mbppplus", "data_seed 0"]
    commit = data.problems["math"].revision
    assert rows["Revision of the source"] == ["b2d74c91837c", commit[:12] + commit[40:]]
    code = build_prepare_spec(data.params, "math").code
    assert rows["SHA-256 of the source"] == ["N/A", code[:12]]
    for name, row in (
        ("train", "Training problems (SHA-256)"),
        ("test", "Test problems (SHA-256)"),
    ):
        for cell, problems in zip(rows[row], data.problems.values(), strict=True):
            count, digest = problems.get_part(name)
            assert cell == f"{count} ({digest[:12]})"
    details = [cell.detail for row in table.rows for cell in row.cells[0]]
    assert f"{code}." in details


def strip_markup(printed: str) -> str:
    """Return text without line breaks and without the escapes of TeX and HTML."""
    unescaped = printed.replace(r"\allowbreak ", "").replace("\\", "").replace("&#39;", "'")
    return " ".join(unescaped.split())


def test_every_file_of_a_report_names_the_sources(read_report, tmp_path):
    values, data = read_report("mixed")
    out, phrases = tmp_path / "out", SOURCES["mixed"][1]
    arguments = ["--config", json.dumps(values), "--root", str(data.root)]
    arguments += ["--output", str(out / "tables.tex"), "--html", str(out / "report.html")]
    assert main([*arguments, "--figures", str(out / "figures")]) == 0
    files = [path for path in out.rglob("*") if path.is_file() and path.suffix != ".json"]
    assert len(files) == 5 + 2 * len(plots.FIGURES)
    for path in files:
        content = strip_markup(path.read_bytes().decode("latin-1"))
        if path.stem != "tokens":  # that figure is about one benchmark
            assert all(phrase in content for phrase in phrases), path
    page = (out / "report.html").read_text()
    captions = re.findall(r"<figcaption>.*?</figcaption>", page, re.S)
    assert len(captions) == 11 + len(plots.FIGURES)
    about_one = [
        caption for caption in captions if not all(phrase in caption for phrase in phrases)
    ]
    assert len(about_one) <= 2  # Table 2 and the figure of tokens


def labels_with_sources(sources) -> set[str]:
    """Return the labels of MBPP+ and MATH with their sources."""
    return {
        f"{label} ({KINDS[source]})"
        for label, source in zip(("MBPP+", "MATH"), sources, strict=True)
    }


@pytest.mark.parametrize("kind", SOURCES)
def test_every_table_names_the_sources_in_its_caption_and_beside_each_benchmark(kind, read_report):
    _, data = read_report(kind)
    content = contents.build_report(data)
    labels = labels_with_sources(SOURCES[kind][0])
    for table in [*content.results, *content.appendix]:
        for rendered in (text.render([table]), latex.render([table])):
            assert (
                all(phrase in strip_markup(rendered) for phrase in SOURCES[kind][1])
                or table.number == 2
            )
        headings = [table.caption, table.stub, *(group.title for group in table.groups)]
        headings += [column for group in table.groups for column in group.columns]
        headings += [row.label for row in table.rows] + table.notes
        for heading in headings:
            for name in re.findall(r"(?:MBPP\+|MATH)(?: \(\w+\))?", heading):
                assert name in labels, (table.number, heading)


@pytest.mark.parametrize("kind", SOURCES)
def test_every_drawing_names_the_sources(kind, read_report):
    """The source stands in the figure's title; panels of one benchmark have it in theirs."""
    _, data = read_report(kind)
    for name, figure in plots.build_figures("report", data).items():
        drawing = draw(figure)
        title = strip_markup(drawing.get_suptitle())
        assert title == strip_markup(figure.full_caption.removeprefix(figure.caption)), name
        titles = {axes.get_title(loc="left") for axes in drawing.axes}
        assert name == "tokens" or titles == labels_with_sources(SOURCES[kind][0])


OTHER_REPORTS = {
    "studies": (list_study_runs, ["params.yaml"]),
    "baseline": (list_study_runs, ["experiments/baseline.yaml"]),
    "arena": (list_arena_runs, ["params.yaml", "experiments/arena-quick.yaml"]),
    "tuning": (list_arena_runs, [*map("experiments/arena{}.yaml".format, ("", "-tuning"))]),
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.slow if kind == "baseline" else ())
        for kind in OTHER_REPORTS
    ],
)
def test_studies_arena_and_tuning_name_the_sources(kind, tmp_path):
    list_runs, files = OTHER_REPORTS[kind]
    files = files if "params.yaml" in files else ["params.yaml", *files]
    params = load(read(*(ROOT / file for file in files)))
    data = ReportData.read(params, tmp_path, list_runs(params))
    report = {"tuning": "arena", "baseline": "studies"}.get(kind, kind)
    content = getattr(contents, f"build_{report}")(data)
    assert content.results
    for table in [*content.results, *content.appendix]:
        check_table(table)
    for figure in plots.build_figures(report, data).values():
        assert "Made problems in the format of" in figure.full_caption
        drawing = draw(figure)
        assert "Made problems in the format of" in strip_markup(drawing.get_suptitle())


def check_table(table: Table) -> None:
    """Check that a table names made problems in its caption and wherever it names a benchmark."""
    assert "Made problems in the format of" in table.full_caption
    texts = [table.caption, *table.notes, *(row.label for row in table.rows)]
    for printed_text in texts:
        for name in re.findall(r"(?:MBPP\+|MATH|MiniF2F)(?: \(made\))?", printed_text):
            assert name.endswith("(made)"), (table.label, printed_text)
