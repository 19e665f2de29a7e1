"""Renders tables as LaTeX for the page layout of report.style in params.yaml.

The result needs the packages booktabs, graphicx and makecell. Its labels begin with the name of the
experiment, so that a paper can contain the tables of several experiments.
"""

from collections.abc import Sequence
from functools import partial

from reports.paper_style import PLAIN_STYLE, PaperStyle
from reports.render import load_template, tex
from reports.render.floats import Note, lay_out
from reports.tables.table import Cell, Table

DEFAULT_PREFIX = "rapid"  # of labels, if the parameters do not name an experiment


def render(
    tables: Sequence[Table],
    style: PaperStyle = PLAIN_STYLE,
    prefix: str = DEFAULT_PREFIX,
    other_tables: Sequence[Table] = (),
) -> str:
    """Return the text of tables.tex.

    Args:
        prefix: the name of the experiment, which stands before each label, followed by a colon.
        other_tables: tables in other files of the experiment, to which notes may refer.
    """
    labels = {table.number: f"{prefix}:{table.label}" for table in [*tables, *other_tables]}
    filters = {
        "label": tex.render_label,
        "prose": partial(tex.render_prose, labels=labels),
        "cell": render_cell,
    }
    template = load_template(
        "tables.tex.j2",
        filters,
        # These delimiters of Jinja, unlike {{ and {%, do not occur in TeX.
        variable_start_string="<<",
        variable_end_string=">>",
        block_start_string="<%",
        block_end_string="%>",
        comment_start_string="<#",
        comment_end_string="#>",
        keep_trailing_newline=True,
        autoescape=False,
    )
    pieces_by_table = [
        (table, lay_out(table, _list_notes_below(table, style), style)) for table in tables
    ]
    at_end = _collect_notes(tables) if style.notes == "end" else {}
    experiment = prefix if prefix != DEFAULT_PREFIX else ""
    return template.render(
        pieces_by_table=pieces_by_table,
        style=style,
        labels=labels,
        at_end=at_end,
        experiment=experiment,
    )


def _list_notes_below(table: Table, style: PaperStyle) -> list[Note]:
    """Return the paragraphs below a table.

    The notes stand there if style.notes is "below". The named notes, each a paragraph of its own,
    stand there if it is "below" or "caption", and the footnotes in any case.
    """
    notes = [Note(" ".join(table.notes))] if table.notes and style.notes == "below" else []
    if style.notes in ("below", "caption"):
        notes += [Note(text, name=name) for name, text in table.named_notes]
    return notes + [Note(f"{reason}.", key=key) for reason, key in table.footnotes.items()]


def _collect_notes(tables: Sequence[Table]) -> dict[Note, list[int]]:
    """Return the distinct notes of all tables, each with the numbers of the tables that have it."""
    numbers: dict[Note, list[int]] = {}
    for table in tables:
        notes = [Note(text) for text in table.notes]
        for note in [*notes, *(Note(text, name=name) for name, text in table.named_notes)]:
            numbers.setdefault(note, []).append(table.number)
    return numbers


def render_cell(entry: Cell, footnotes: dict[str, str]) -> str:
    """Return a cell with its mark, its footnote's key, further lines, and a dagger for a tie.

    `footnotes` has the key of each footnote (a, b, ...), by the reason why a value is missing.
    """
    command = {"best": r"\textbf", "runner-up": r"\underline", "": ""}[entry.mark]
    text = tex.escape(entry.text)
    if command:
        text = f"{command}{{{text}}}"
    signs = r"$\dagger$" * entry.tied + (footnotes[entry.reason] if entry.reason else "")
    if signs:
        # \rlap gives the signs no width, so that the numbers of a column stay centred.
        text += rf"\rlap{{\textsuperscript{{{signs}}}}}"
    if not entry.lines:
        return text
    below = "".join(rf"\\{{\scriptsize {tex.escape(line)}}}" for line in entry.lines)
    return rf"\makecell{{{text}{below}}}"
