"""tables.tex: its content, and that it compiles with the paper's preamble and text width."""

import copy
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rapid.algorithms import ALGORITHMS, RAPID
from rapid.config import specs
from rapid.config.params import load
from rapid.config.params_schema import ReportParams
from reports.paper_style import PLAIN_STYLE, PaperStyle
from reports.render import latex
from reports.report_data import ReportData
from reports.tables import APPENDIX, RESULTS, build_tables
from reports.tables.table import Cell, Group, Row, Table
from tests.reports.conftest import MADE_PROBLEMS, RunFiles, make_run

PREAMBLE = r"""
\documentclass[%(options)s]{article}
\usepackage{times}
\usepackage{hyperref}
\usepackage{booktabs}
\usepackage{makecell}
\usepackage{graphicx}
\usepackage[%(page)s]{geometry}
"""
AWKWARD_TEXT = (
    'Lean: "/opt/lean_4/bin" --version: 100% of $x^2$ & {a} \\ #1 ~ <b> | ⊢ é ® [c] '
    "/a/path/" + "that-goes-on/" * 12
)


def render_tables(params, runs, tables=RESULTS, style=PLAIN_STYLE, prefix="rapid") -> str:
    """Return these tables of the runs as TeX."""
    return latex.render(build_tables(tables, ReportData.read(params, runs.root)), style, prefix)


@pytest.mark.parametrize(
    ("cell", "tex"),
    [
        (Cell("5%", mark="best"), r"\textbf{5\%}"),
        (Cell("5%", mark="runner-up"), r"\underline{5\%}"),
        (Cell("5%", tied=True), r"5\%\rlap{\textsuperscript{$\dagger$}}"),
        (
            Cell("5%", extra_lines=("[1%, 9%]", "p < 0.001")),
            r"\makecell{5\%\\{\scriptsize {[}1\%, 9\%]}\\{\scriptsize p \textless{} 0.001}}",
        ),
        (Cell("5%", "1%"), r"\makecell{5\%\\{\scriptsize $\pm$ 1\%}}"),
        (Cell("—", reason="why"), r"---\rlap{\textsuperscript{a}}"),
    ],
)
def test_cell_is_rendered_with_its_marks_and_notes(cell, tex):
    assert latex.render_cell(cell, {"why": "a"}) == tex


TABLE_BODY = r"""
\toprule
& \multicolumn{2}{c}{MATH}
& \multicolumn{1}{c}{}
\\
\cmidrule(lr){2-3}
\cmidrule(lr){4-4}
Who
& Pass@1
& Time
& c
\\
\midrule
A \& $H=4$
& \textbf{5\%}
& ---\rlap{\textsuperscript{a}}
& x
\\
\midrule
B
& 1
& 2
& 3
\\
\bottomrule
"""


def test_table_is_rendered_line_by_line():
    """Lines are compared exactly, since an empty line would end a paragraph."""
    groups = [Group("MATH", ["Pass@1", "Time"]), Group("", ["c"])]
    first_cells = [[Cell("5%", mark="best"), Cell("—", reason="none")], [Cell("x")]]
    rows = [
        Row("A & H=4", first_cells),
        Row("B", [[Cell("1"), Cell("2")], [Cell("3")]], starts_section=True),
    ]
    text = latex.render(
        [Table(3, "tab:one", "A caption.", "Who", groups, rows, [], [MADE_PROBLEMS])]
    )
    assert TABLE_BODY in text
    caption_end = "Made problems in the format of MATH, not the published ones."
    assert f"\\caption{{A caption. {caption_end} Best" in text
    assert text.endswith("\\label{rapid:tab:one}\n\\end{table}\n")


def test_reasons_of_missing_values_are_footnotes(params, runs):
    for seed in (0, 1):
        runs.write_evaluation(make_run("pg", seed), status="unavailable", note="no Lean")
    text = render_tables(params, runs)
    assert r"\,not evaluated: no Lean." in text
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 4
    assert r"\label{rapid:tab:main}" in text
    assert r"tiny\_qwen" in text and "tiny_qwen" not in text


def render_noted_table(**layout) -> str:
    """Return a table with a note, a named note and a footnote as TeX, for this layout."""
    rows = [Row("A", [[Cell("—", reason="A footnote")]])]
    notes, named_notes = ["See Table\N{NO-BREAK SPACE}8."], [("Lean", "a named note.")]
    groups = [Group("", ["b"])]
    table = Table(1, "tab:one", "A caption.", "Who", groups, rows, notes, [], named_notes)
    other = Table(8, "tab:eight", "", "", [], [], [], [])
    return latex.render([table], replace(PLAIN_STYLE, **layout), other_tables=[other])


def test_notes_refer_to_tables_of_other_files():
    assert r"See Table~\ref{rapid:tab:eight}." in render_noted_table()


@pytest.mark.parametrize("place", ["above", "below"])
def test_a_caption_stands_where_the_layout_has_it(place):
    text = render_noted_table(caption=place)
    is_above = text.index(r"\caption{") < text.index(r"\begin{tabular}")
    assert is_above == (place == "above")


@pytest.mark.parametrize(
    ("place", "marks"),
    [
        ("below", [r"\end{tabular}", "NOTE", "NAMED", "FOOTNOTE", r"\end{table}"]),
        ("caption", [r"\end{tabular}", "NAMED", "FOOTNOTE", r"\caption{A caption. See Table~"]),
        ("end", [r"\end{tabular}", "FOOTNOTE", r"\end{table}", r"\ref{rapid:tab:one}: NOTE"]),
        ("none", [r"\end{tabular}", "FOOTNOTE", r"\end{table}"]),
    ],
)
def test_notes_stand_where_the_layout_has_them(place, marks):
    words = {"NOTE": "See Table~", "NAMED": "a named note.", "FOOTNOTE": r"}\,A footnote."}
    text = render_noted_table(notes=place)
    for word, written in words.items():
        marks = [re.sub(rf"\b{word}\b", lambda _, to=written: to, mark) for mark in marks]
    positions = [text.index(mark) for mark in marks]
    assert positions == sorted(positions)
    assert text.count("See Table~") == (place != "none")
    assert text.count("a named note.") == (place != "none")


# Parameters that users may set in params.yaml. Each function changes the values in place.


def keep_defaults(values):
    pass


def use_one_seed_and_benchmark(values):
    values["studies"] = None  # studies need the other benchmark
    del values["benchmarks"]["math"]
    values["tables"]["main"]["seeds"] = [7]
    values["tables"]["families"]["models"] = ["tiny-llama"]
    values["tables"]["staleness"]["H"] = [1, 2, 4]


def use_the_papers_tables(values):
    values["benchmarks"]["minif2f"] = values["benchmarks"]["math"]
    values["models"]["Qwen2.5-1.5B-Instruct-GGUF"] = values["models"]["teacher"]
    values["tables"]["main"]["seeds"] = [0, 1, 2]
    values["tables"]["families"]["models"] = ["Qwen2.5-1.5B-Instruct-GGUF", "tiny-llama", "teacher"]
    values["tables"]["staleness"]["H"] = [2, 4, 8, 16]


def use_many_columns(values):
    values["benchmarks"]["minif2f"] = dict(values["benchmarks"]["math"])
    for benchmark in values["benchmarks"].values():
        benchmark["pass_at"] = [1, 2, 4, 8]
    names = [f"her_own-model.with-a-long-name-{n}" for n in range(6)]
    values["models"] |= dict.fromkeys(names, values["models"]["teacher"])
    values["tables"]["main"]["model"] = names[0]
    values["tables"]["families"] |= {"models": names, "seeds": [0, 1, 2]}


def use_ten_models_and_algorithms(values):
    names = [f"model-{number}" for number in range(10)]
    values["models"] |= dict.fromkeys(names, values["models"]["teacher"])
    algorithms = [
        "sft",
        "grpo",
        "pg",
        "dapo",
        "dr-grpo",
        "gspo",
        "cispo",
        *map(RAPID.format_name, (2, 4, 8)),
    ]
    values["tables"]["families"] |= {"models": names, "algorithms": algorithms, "seeds": [0]}


needs_pdflatex = pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="pdflatex is not installed"
)


@pytest.mark.latex
@needs_pdflatex
@pytest.mark.parametrize(
    ("style_name", "notes"),
    [
        ("plain", "below"),
        *(
            pytest.param(*style, marks=pytest.mark.slow)
            for style in [("iclr", "end"), ("icml", "below"), ("acl", "caption"), ("ieee", "none")]
        ),
    ],
)
def test_tables_fit_the_page_of_every_style(values, tmp_path, style_name, notes):
    """All cases are compiled as one document; the log names the folder of each."""
    cases = [
        (keep_defaults, "none"),
        (use_one_seed_and_benchmark, "some"),
        (use_the_papers_tables, "some"),
        (use_many_columns, "all"),
        (use_ten_models_and_algorithms, "all"),
    ]
    style = PaperStyle.from_params(ReportParams(style=style_name, notes=notes))
    for change, files_left in cases:
        changed_values = copy.deepcopy(values)
        change(changed_values)
        name = f"{change.__name__}-{files_left}"
        params, runs = load(changed_values), RunFiles(tmp_path / name)
        runs.root.mkdir()
        if files_left != "none":
            runs.write_all(params)
        if files_left == "some":
            damage_runs(params, runs)
        for file, tables in {"tables.tex": RESULTS, "appendix.tex": APPENDIX}.items():
            tex = render_tables(params, runs, tables, style, prefix=name)
            (runs.root / file).write_text(tex)
    log = compile_latex(tmp_path, style)
    assert "Overfull" not in log
    assert "Float too large" not in log
    assert "multiply defined" not in log


@pytest.mark.latex
@needs_pdflatex
def test_labels_with_brackets_stars_and_backslashes_compile(values, tmp_path, monkeypatch):
    labels = {"pg": "[Ours] RAPID", "grpo": r"*\\[Ours]_$x$%#{}", "dapo": "~^&`a` ½ λ é"}
    for name, label in labels.items():
        monkeypatch.setattr(ALGORITHMS[name], "label", label)
    params, runs = load(values), RunFiles(tmp_path / "runs")
    runs.root.mkdir()
    runs.write_all(params)
    (runs.root / "tables.tex").write_text(render_tables(params, runs))
    compile_latex(tmp_path, PLAIN_STYLE)


def damage_runs(params, runs):
    """Delete the files of some runs, and write awkward text into others."""
    for number, run in enumerate(specs.add_base_runs(params, specs.list_table_runs(params))):
        if number % 3 == 0:
            runs.write_evaluation(run, status="unavailable", note=f"{number % 2} {AWKWARD_TEXT}")
        elif number % 3 == 1 and run.algorithm != "base":
            awkward_fields = {"hardware": f"8 x {AWKWARD_TEXT}", "commit": f"{number:040x}+dirty"}
            runs.write_summary(run, seconds=1e6, **awkward_fields)
        else:
            shutil.rmtree(runs.root / run.evaluation)
            shutil.rmtree(runs.root / run.folder, ignore_errors=True)  # base has none


def compile_latex(folder: Path, style: PaperStyle) -> str:
    """Compile all tables below a folder with pdflatex, twice for references; return its log."""
    tables = sorted(path.relative_to(folder).with_suffix("") for path in folder.glob("*/*.tex"))
    body = [r"\begin{document}", *(rf"\input{{{path}}}\clearpage" for path in tables)]
    lengths = {"textwidth": style.text_width, "textheight": style.text_height}
    if style.columns > 1:
        lengths["columnsep"] = style.text_width - style.columns * style.column_width
    preamble = PREAMBLE.lstrip() % {
        "options": f"{style.type_size:g}pt" + ",twocolumn" * (style.columns > 1),
        "page": ",".join(f"{name}={inches}in" for name, inches in lengths.items()),
    }
    (folder / "paper.tex").write_text("\n".join([preamble, *body, r"\end{document}"]))
    for _ in range(2):
        result = subprocess.run(
            ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"],
            cwd=folder,
            capture_output=True,
            check=False,
            timeout=120,
        )
        log = (folder / "paper.log").read_text(errors="replace")
        assert result.returncode == 0, log[-2000:]
    return log
