"""No table, figure or page is without what its problems are and where they come from."""

import functools
import json
import re
from pathlib import Path

import pytest

from rapid.artifacts.files import write_json
from rapid.artifacts.manifests import hash_files, write_manifest
from rapid.config.params import load, read
from rapid.config.specs import arena_runs, prepare_spec, study_runs
from reports import contents, plots
from reports.__main__ import main
from reports.measured import Measured
from reports.render import latex, text
from reports.tables.table import Table
from tests.conftest import ROOT
from tests.reports.conftest import Runs, run_of, small_values
from tests.reports.plots.drawn import draw

MADE = "Made problems in the format of {}, not the published ones"
# Sources of MBPP+ and MATH, and what is to be read in what is about both.
SOURCES = {
    "made": (("embedded", "embedded"), [MADE.format("MBPP+ and MATH")]),
    "published": (
        ("hub", "FILE"),
        ["evalplus/mbppplus at b2d74c91837c", "the file mine.jsonl (SHA-256 "],
    ),
    "mixed": (("hub", "embedded"), [MADE.format("MATH"), "dataset evalplus/mbppplus at b2d7"]),
}
KINDS = {"embedded": "made", "hub": "hub", "FILE": "file"}


@pytest.fixture(scope="module")
def read_report(tmp_path_factory):
    """Return a function that leaves all runs with problems of such sources, of each kind once."""
    return functools.cache(lambda kind: leave_runs(kind, tmp_path_factory.mktemp(kind)))


def leave_runs(kind: str, root: Path) -> tuple[dict, Measured]:
    """Return the parameters, and what was measured."""
    values, (sources, _) = small_values(), SOURCES[kind]
    file = root / "mine.jsonl"
    file.write_text("{}\n")
    for name, source in zip(values["benchmarks"], sources, strict=True):
        source = str(file) if source == "FILE" else source
        values["benchmarks"][name] = values["benchmarks"][name] | {"source": source, "test": 20}
    params = load(values)
    left = Runs(root)
    left.all(params)
    for name, benchmark in params.benchmarks.items():
        spec, folder = prepare_spec(params, name), root / "data" / name
        read_from = hash_files(file) if benchmark.source == str(file) else {}
        rows = {"train.jsonl": benchmark.train, "test.jsonl": 20}
        files = [folder / part for part in rows]
        folder.mkdir(parents=True)
        for path in files:
            path.write_text(name + path.name)
        write_manifest(folder, "prepare", spec, read_from, files, rows=rows)
    weights = root / run_of("rapid-H4").folder / "token_weights.json"
    write_json(weights, {"tokens": ["x"], "log_weights": [0.1], "H": 4, "step": 1, "id": "p"})
    left.edit(weights, lambda it: it.update(benchmark="math"))
    return values, Measured.read(params, root)


def test_the_sources_are_in_the_set_up_table(read_report):
    _, measured = read_report("mixed")
    (table,) = (one for one in contents.build_report(measured).appendix if one.number == 6)
    rows = {row.label: [cell.text for cell in row.cells[0]] for row in table.rows}
    assert table.groups[0].columns == ["MBPP+ (hub)", "MATH (made)"]
    assert rows["Problems"] == ["hub", "made"]
    assert rows["Source"] == ["evalplus/mbppplus", "data_seed 0"]
    commit = measured.problems["math"].revision
    assert rows["Revision of the source"] == ["b2d74c91837c", commit[:12] + commit[40:]]
    code = prepare_spec(measured.params, "math").code
    assert rows["SHA-256 of the source"] == ["N/A", code[:12]]
    for name, row in (
        ("train", "Training problems (SHA-256)"),
        ("test", "Test problems (SHA-256)"),
    ):
        for cell, problems in zip(rows[row], measured.problems.values(), strict=True):
            count, digest = problems.part(name)
            assert cell == f"{count} ({digest[:12]})"
    details = [cell.detail for row in table.rows for cell in row.cells[0]]
    assert f"{code}." in details


def flat(printed: str) -> str:
    """Return text without line breaks, TeX's and HTML's own signs."""
    plain = printed.replace(r"\allowbreak ", "").replace("\\", "").replace("&#39;", "'")
    return " ".join(plain.split())


def test_every_file_of_a_report_says_it(read_report, tmp_path):
    values, measured = read_report("mixed")
    out, said = tmp_path / "out", SOURCES["mixed"][1]
    arguments = ["--config", json.dumps(values), "--root", str(measured.root)]
    arguments += ["--output", str(out / "tables.tex"), "--html", str(out / "report.html")]
    assert main([*arguments, "--figures", str(out / "figures")]) == 0
    files = [path for path in out.rglob("*") if path.is_file() and path.suffix != ".json"]
    assert len(files) == 5 + 2 * len(plots.FIGURES)
    for path in files:
        content = flat(path.read_bytes().decode("latin-1"))
        if path.stem != "tokens":  # which is about one benchmark
            assert all(words in content for words in said), path
    page = (out / "report.html").read_text()
    captions = re.findall(r"<figcaption>.*?</figcaption>", page, re.S)
    assert len(captions) == 11 + len(plots.FIGURES)
    about_one = [caption for caption in captions if not all(word in caption for word in said)]
    assert len(about_one) <= 2  # Table 2 and the tokens


def labelled(sources) -> set[str]:
    return {
        f"{label} ({KINDS[one]})" for label, one in zip(("MBPP+", "MATH"), sources, strict=True)
    }


@pytest.mark.parametrize("kind", SOURCES)
def test_every_table_says_it_in_its_caption_and_wherever_it_names_a_benchmark(kind, read_report):
    _, measured = read_report(kind)
    content = contents.build_report(measured)
    known = labelled(SOURCES[kind][0])
    for table in [*content.results, *content.appendix]:
        for rendered in (text.render([table]), latex.render([table])):
            assert all(words in flat(rendered) for words in SOURCES[kind][1]) or table.number == 2
        headings = [table.caption, table.stub, *(group.title for group in table.groups)]
        headings += [column for group in table.groups for column in group.columns]
        headings += [row.label for row in table.rows] + table.notes
        for heading in headings:
            for name in re.findall(r"(?:MBPP\+|MATH)(?: \(\w+\))?", heading):
                assert name in known, (table.number, heading)


@pytest.mark.parametrize("kind", SOURCES)
def test_every_drawing_says_it(kind, read_report):
    """In a line above its panels, and a panel of one benchmark in its title."""
    _, measured = read_report(kind)
    for name, figure in plots.build("report", measured).items():
        drawn = draw(figure)
        said = flat(drawn.get_suptitle())
        assert said == flat(figure.full_caption.removeprefix(figure.caption)), name
        titles = {axes.get_title(loc="left") for axes in drawn.axes}
        assert name == "tokens" or titles == labelled(SOURCES[kind][0])


OTHERS = {
    "studies": (study_runs, ["params.yaml"]),
    "arena": (arena_runs, ["params.yaml", "experiments/arena-quick.yaml"]),
    "tuning": (arena_runs, [*map("experiments/arena{}.yaml".format, ("", "-tuning"))]),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_studies_arena_and_tuning_say_it(kind, tmp_path):
    trained, files = OTHERS[kind]
    files = files if "params.yaml" in files else ["params.yaml", *files]
    params = load(read(*(ROOT / file for file in files)))
    measured = Measured.read(params, tmp_path, trained(params))
    report = "arena" if kind == "tuning" else kind
    content = getattr(contents, f"build_{report}")(measured)
    assert content.results
    for table in [*content.results, *content.appendix]:
        check_table(table)
    for figure in plots.build(report, measured).values():
        assert "Made problems in the format of" in figure.full_caption
        drawn = draw(figure)
        assert "Made problems in the format of" in flat(drawn.get_suptitle())


def check_table(table: Table) -> None:
    assert "Made problems in the format of" in table.full_caption
    words = [table.caption, *table.notes, *(row.label for row in table.rows)]
    for said in words:
        for name in re.findall(r"(?:MBPP\+|MATH|MiniF2F)(?: \(made\))?", said):
            assert name.endswith("(made)"), (table.label, said)
