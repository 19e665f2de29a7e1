"""Renders report.html: the whole report in one file that opens offline.

Styles and figures are embedded. A click on a number in a table opens a box with the values of its
runs. A button below a table opens a box with the table's text in another format. Both boxes are
popovers, which need no script. With the page's only script, the button copies this text to the
clipboard instead. Links to the files of runs are relative.
"""

import base64
import os
import re
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pandas as pd
from markupsafe import Markup, escape

from rapid.benchmarks.problem_source import describe_sources
from rapid.config.params import Params
from rapid.config.specs import BASE
from rapid.text import escape_control_chars, format_duration, join_words, shorten_commit
from reports import contents, formats
from reports.collect import get_result_path
from reports.contents import Content
from reports.paper_style import PaperStyle
from reports.plots.style import Figure
from reports.render import csv, latex, load_template, markdown
from reports.report_data import ReportData
from reports.statistics.pairs import PASS_AT
from reports.tables import claims
from reports.tables.table import MISSING, Table

FIGURE_SCALE = 1.4  # magnifies figures, because their type is sized for print
MAX_LISTED_SEEDS = 5  # more consecutive seeds are printed as a range
LONE_H = re.compile(r"(?<![\w.-])H(?![\w-])")  # the variable H, not the letter in Nemotron-H-8B
# Verdict of a claim -> its class in report.css, and the sign before it.
VERDICTS = {
    claims.HOLDS: ("holds", "\N{CHECK MARK}"),
    claims.FAILS: ("fails", "\N{MULTIPLICATION X}"),
    claims.OPEN: ("open", "?"),
    claims.UNTESTED: ("untested", "\N{EN DASH}"),
}


def render(
    data: ReportData, content: Content, figures: dict[str, Figure], images: dict, folder: Path
) -> str:
    """Return the text of report.html.

    Args:
        figures: by name.
        images: the same figures as SVG, by name.
        folder: the folder of report.html, to which links are relative.
    """
    frame, root, params = data.frame, data.root.resolve(), data.params
    tables = [*content.results, *content.appendix]
    anchors = {table.number: table.label.replace(":", "-") for table in tables}
    copies = {table.label: _render_copies(table, tables, params) for table in tables}
    filters = {
        "label": render_label,
        "prose": partial(render_prose, anchors=anchors),
        "copies": lambda table: copies[table.label],
        # A data URL, because inline SVGs would share one set of ids and get mixed up.
        "image": lambda svg: f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}",
        "image_size": get_image_size,
        "is_table": lambda item: isinstance(item, Table),
        "verdict": VERDICTS.get,
        "exists": lambda path: (root / path).is_file(),  # a missing file is not linked
        "href": lambda path: quote(Path(os.path.relpath(root / path, folder)).as_posix()),
    }
    template = load_template("report.html.j2", filters, lstrip_blocks=True, autoescape=True)
    text = template.render(
        experiment=params.name,
        content=content,
        figures=figures,
        images=images,
        sections=content.list_sections(list(figures)),
        missing=contents.group_missing_results(frame),
        counts=contents.describe_counts(frame),
        facts=list_facts(frame),
        problems=describe_sources(data.problems.values()),
        runs=[_describe_run(run) for _, run in frame.iterrows()],
    )
    return escape_control_chars(text)


def _render_copies(table: Table, tables: list[Table], params: Params) -> list[tuple[str, str]]:
    """Return a table in the formats in which it can be copied: (name of the format, text)."""
    other_tables = [other for other in tables if other is not table]
    style, prefix = PaperStyle.from_params(params.report), params.name or latex.DEFAULT_PREFIX
    return [
        ("LaTeX", latex.render([table], style, prefix, other_tables)),
        ("Markdown", markdown.render(table)),
        ("CSV", csv.render(table)),
    ]


def list_facts(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """Return the facts about training runs for the head of the page, as (name, value)."""
    trained = frame[(frame.no_summary_reason == "") & (frame.algorithm != BASE)]
    columns = {
        "Commits": trained.commit.map(shorten_commit),
        "Hardware": trained.hardware,
        "Models": trained.model,
    }
    facts = {
        name: join_words([text or "not recorded" for text in values.unique()])
        for name, values in columns.items()
    }
    facts["Seeds"] = _list_seeds(sorted(trained.seed.unique()))
    return [(name, text or MISSING) for name, text in facts.items()]


def _list_seeds(seeds: list[int]) -> str:
    """Return seeds in words: 1, 2 and 3. A long range is shortened: 1 to 80."""
    if len(seeds) > MAX_LISTED_SEEDS and len(seeds) == seeds[-1] - seeds[0] + 1:
        return f"{seeds[0]} to {seeds[-1]}"
    return join_words([str(seed) for seed in seeds])


def _describe_run(run: pd.Series) -> dict[str, str]:
    """Return the entries of a run in the list "Every run", by the names that the template uses."""
    ks = sorted(int(name.removeprefix(PASS_AT)) for name in run.index if name.startswith(PASS_AT))
    accuracies = [
        f"Pass@{k} {formats.percent(run[f'{PASS_AT}{k}'])}"
        for k in ks
        if pd.notna(run[f"{PASS_AT}{k}"])
    ]
    is_trained = run.algorithm != BASE
    reasons = [run.no_summary_reason if is_trained else "", run.no_evaluation_reason]
    return {
        "name": contents.format_run_name(run),
        "accuracy": ", ".join(accuracies) or MISSING,
        "runtime": format_duration(run.runtime) if pd.notna(run.runtime) else MISSING,
        "commit": shorten_commit(run.commit) or MISSING,
        "evaluation": "" if run.no_evaluation_reason else get_result_path(run, "pass@1"),
        "summary": get_result_path(run, "runtime")
        if is_trained and not run.no_summary_reason
        else "",
        "why": "; ".join(filter(None, reasons)),
    }


def render_label(text: str) -> Markup:
    """Return a label as HTML, with a lone H in italics, as a variable."""
    return Markup(LONE_H.sub("<i>H</i>", str(escape(text))))


def render_prose(text: str, anchors: dict[int, str]) -> Markup:
    """Return a caption or note as HTML, with variables, `code`, and links to tables.

    Args:
        anchors: ids of the tables by number. "Table 8" becomes a link if a no-break space stands
            before the number. With a common space it is a table of the paper, and is not linked.
    """

    def to_link(match: re.Match) -> str:
        anchor = anchors.get(int(match[1]))
        return f'<a href="#{anchor}">{match[0]}</a>' if anchor else match[0]

    parts = re.split(r"`([^`]+)`", text)
    html = "".join(
        f"<code>{escape(part)}</code>" if number % 2 else render_label(part)
        for number, part in enumerate(parts)
    )
    return Markup(re.sub(r"\bTable\N{NO-BREAK SPACE}(\d+)", to_link, html))


def get_image_size(svg: bytes) -> tuple[int, int]:
    """Return width and height of an SVG on the page, in pixels.

    The figure is scaled so that its type is as large as that of a table on the page. matplotlib
    writes sizes in points, each of which is 4 / 3 pixels.
    """
    sizes = re.findall(rb'(?:width|height)="([\d.]+)pt"', svg[: svg.find(b"viewBox")])
    width, height = (round(FIGURE_SCALE * float(size) * 4 / 3) for size in sizes)
    return width, height
