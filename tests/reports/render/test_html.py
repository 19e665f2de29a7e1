"""report.html: it is complete, names what is missing, and needs no network."""

import functools
import json
import re
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest

from rapid.config import specs
from rapid.config.params import load
from reports.formats import percent
from reports.render import html
from tests.reports.conftest import RunFiles, small_values, write_report
from tests.reports.html_rules import Reader, check_elements


def write_page(values, root: Path) -> Path:
    return write_report(values, root) / "report.html"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return a function that writes each kind of page once and returns its path."""
    return functools.cache(
        lambda kind: write_page_of(kind, RunFiles(tmp_path_factory.mktemp("page")))
    )


def write_page_of(kind: str, runs: RunFiles) -> Path:
    """Write a page of this kind and return its path."""
    values = small_values()
    if kind == "one seed":
        values["tables"]["main"]["seeds"] = [0]
    params = load(values)
    if kind != "no runs":
        runs.write_all(params)
    if kind == "some runs":
        for number, run in enumerate(specs.add_base_runs(params, specs.list_table_runs(params))):
            if number % 3 == 0:
                note = "no Lean & <none>"
                runs.write_evaluation(run, status="unavailable", note=note)
                if run.algorithm != "base":
                    runs.write_summary(run, status="unavailable", note=note, runtime=None)
            elif number % 3 == 1:
                runs.delete(runs.root / run.evaluation / "evaluation.json")
                runs.delete(runs.root / run.folder / "steps.jsonl")
    return write_page(values, runs.root)


KINDS = pytest.mark.parametrize("kind", ["all runs", "some runs", "no runs", "one seed"])


@KINDS
def test_page_is_well_formed_and_names_what_is_missing(pages, kind):
    reader = Reader(pages(kind).read_text())
    visible_text = " ".join(" ".join(reader.text).split())
    assert reader.open == []
    assert not re.search(
        r"\b(nan|none|inf|undefined)\b", visible_text.replace("& <none>", ""), re.I
    )
    assert len(reader.ids) == len(set(reader.ids))
    assert set(reader.targets) <= set(reader.ids)
    assert ("Nothing: every evaluation" in visible_text) == (kind in ("all runs", "one seed"))
    if kind == "some runs":
        assert "not trained: no Lean & <none>" in visible_text
        assert "not evaluated: no evaluation.json of a finished job" in visible_text
    assert {f"Table {n}." for n in range(1, 12)} <= set(re.findall(r"Table \d+\.", visible_text))


@KINDS
def test_every_link_leads_to_an_id_or_an_existing_file(pages, kind):
    path = pages(kind)
    reader = Reader(path.read_text())
    assert reader.links
    for link in reader.links:
        if link.startswith("#"):
            assert link[1:] in reader.ids
        elif not link.startswith("data:image/svg+xml;base64,"):
            assert not link.startswith(("http", "/", "//"))
            assert (path.parent / unquote(link)).resolve().is_file(), link


def test_a_figure_is_as_large_as_its_type_asks_for(pages):
    """Larger than in print: 8 points of type become 15 pixels."""
    (size,) = set(
        re.findall(r'<img [^>]*?(width="\d+" height="\d+")', pages("all runs").read_text())
    )
    assert size == 'width="134" height="67"'


def test_every_run_is_listed_with_its_figures_and_files(pages):
    text = pages("some runs").read_text()

    def row_texts(run: str) -> list[str]:
        (row,) = re.findall(rf'<th scope="row">{run}</th>(.*?)</tr>', text)
        return re.findall(r">([^<>]*[^<> ])[^<>]*<", row)

    no_file, no_lean = "no evaluation.json of a finished job", "no Lean &amp; &lt;none&gt;"
    assert row_texts("math/tiny_qwen/base/seed0") == ["Pass@1 60.6%", "—", "—", "evaluation"]
    assert row_texts("mbpp_plus/tiny_qwen/base/seed1") == ["—"] * 3 + [f"not evaluated: {no_file}"]
    assert row_texts("mbpp_plus/tiny_qwen/sft/seed1") == ["—"] * 3 + [
        f"not trained: {no_lean}; not evaluated: {no_lean}"
    ]
    texts = ["1h46m", "0123456789ab", "summary"]
    assert row_texts("mbpp_plus/tiny_qwen/grpo/seed0") == ["—", *texts, f"not evaluated: {no_file}"]
    texts = ["Pass@1 62.5%, Pass@8 100.0%", "2h01m", "0123456789ab", "evaluation", "summary"]
    assert row_texts("mbpp_plus/tiny_qwen/grpo/seed1") == texts


def test_facts_are_those_of_trained_runs():
    names = ["algorithm", "seed", "commit", "hardware", "no_summary_reason"]
    rows = [
        ("pg", 10, "0123456789abcdef", "a CPU", ""),
        ("pg", 9, "", "", ""),
        ("pg", 8, "f" * 16, "a GPU", "not trained"),
        ("base", 7, "", "a GPU", ""),
    ]
    frame = pd.DataFrame(rows, columns=names).assign(model="m")
    assert html.list_facts(frame) == [
        ("Commits", "0123456789ab and not recorded"),
        ("Hardware", "a CPU and not recorded"),
        ("Models", "m"),
        ("Seeds", "9 and 10"),
    ]
    assert html.list_facts(frame[2:])[0] == ("Commits", "—")


def test_sources_of_a_cell_have_the_values_of_the_linked_files(pages):
    path = pages("all runs")
    pg_cell = r'<div popover id="tab-main-4-0-0".*?</div>'
    popover = re.search(pg_cell, path.read_text(), re.S)
    links = re.findall(r'<a href="([^"]+)">([^<]+)</a>', popover[0])
    assert len(links) == 2
    for link, printed_accuracy in links:
        document = json.loads((path.parent / unquote(link)).read_text())
        assert document["algorithm"] == "pg"
        assert printed_accuracy == percent(document["pass_at"]["1"])


def test_same_runs_give_the_same_bytes(values, runs, pages):
    runs.write_all(load(values))
    assert write_page(values, runs.root).read_bytes() == pages("all runs").read_bytes()


@KINDS
def test_elements_stand_where_html_allows_them(pages, kind):
    check_elements(pages(kind).read_text())


# Text ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("RAPID (H=8)", "RAPID (<i>H</i>=8)"),
        ("r(H, Acc) & H", "r(<i>H</i>, Acc) &amp; <i>H</i>"),
        ("Nemotron-H-8B", "Nemotron-H-8B"),
        ("my.H model_H NVIDIA H100 H-8B", "my.H model_H NVIDIA H100 H-8B"),
    ],
)
def test_only_an_h_by_itself_is_a_variable(label, shown):
    assert html.render_label(label) == shown


@pytest.mark.parametrize(
    ("note", "shown"),
    [
        ("`make <H>` with H", "<code>make &lt;H&gt;</code> with <i>H</i>"),
        ("See Table\N{NO-BREAK SPACE}8.", 'See <a href="#tab-x">Table\N{NO-BREAK SPACE}8</a>.'),
        ("See Table\N{NO-BREAK SPACE}9.", "See Table\N{NO-BREAK SPACE}9."),
        ("the paper's Table 8", "the paper&#39;s Table 8"),
        ("a lone ` sign", "a lone ` sign"),
    ],
)
def test_notes_have_code_and_links_to_tables(note, shown):
    assert html.render_prose(note, {8: "tab-x"}) == shown


def test_many_seeds_in_a_row_are_listed_by_their_ends():
    frame = pd.DataFrame({"seed": [*range(3, 23)] * 2})
    frame = frame.assign(algorithm="pg", commit="", hardware="", model="m", no_summary_reason="")
    assert html.list_facts(frame)[-1] == ("Seeds", "3 to 22")
    assert html.list_facts(frame[frame.seed != 9])[-1][1].startswith("3, 4, 5, 6, 7, 8, 10")


# The first screen ---------------------------------------------------------------------------------


def first_screen(page: str) -> str:
    return page[page.index("<header>") : page.index("</header>")]


@KINDS
def test_the_first_screen_has_one_figure_the_findings_and_the_main_claims(pages, kind):
    page = pages(kind).read_text()
    screen = first_screen(page)
    assert re.findall(r'id="figure-([\w-]+)"', screen) == ["tradeoff"]
    assert page.count('id="figure-tradeoff"') == 1
    assert screen.count('<p class="lead">') == 3
    assert len(re.findall(r"<dt>.*?</dt><dd>.*?</dd>", screen, re.S)) >= 9
    assert "<table" not in screen


def test_the_long_table_of_claims_is_folded_and_no_other(pages):
    folded = re.findall(r'<details class="fold">.*?</details>', pages("all runs").read_text(), re.S)
    assert [re.findall(r'<figure class="table" id="([\w-]+)"', text) for text in folded] == [
        ["tab-claims"]
    ]


def test_the_page_names_the_experiment(values, runs):
    values["name"] = "mine"
    page = write_page(values, runs.root).read_text()
    assert "<title>RAPID results: mine</title>" in page
    assert "Experiment <b>mine</b>" in first_screen(page)
    assert r"\label{mine:tab:main}" in page


# Texts to copy ------------------------------------------------------------------------------------


def test_every_table_has_buttons_to_copy_it_as_latex_markdown_and_csv(pages):
    """The boxes that they open are compared with the tables in test_formats_agree.py."""
    page = pages("all runs").read_text()
    keys = re.findall(r'<figure class="table" id="([\w-]+)"', page)
    assert len(keys) == 11
    for box in (f"{key}-{form}" for key in keys for form in ("latex", "markdown", "csv")):
        assert page.count(f'<button popovertarget="{box}">') == 1
