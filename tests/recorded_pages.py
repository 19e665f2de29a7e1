"""Parts of the reports on arenas and studies for the documents, from archives (`reports.record`).

`arena`, `study` and `ratios` are generator functions of `tests.documents`.
"""

import textwrap
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from rapid.config.params import Params, load_files
from rapid.config.specs import list_arena_runs, list_study_runs
from rapid.text import join_words, render_markdown_table
from reports import record
from reports.contents import Content, build_arena, build_studies
from reports.render import markdown
from reports.render import text as as_text
from reports.report_data import ReportData
from reports.tables.table import MISSING, Table
from tests.conftest import ROOT
from tests.reports.reading import read_text

# The ratios of RAPID's training time to PG's in README.md: the problems; then for each ratio the
# file, the number of the table, the column, and the row.
CLAIM, CLAIM_ON_SAME_H = "RAPID (H={h}) sooner than PG", "RAPID (H={h}) sooner than PG (H={h})"
WITHOUT_BASELINE = "RAPID (H={h}), baseline = none"
RATIOS = {
    "MBPP+, H = 8": [
        ("pooled.txt", 1, "Estimate", CLAIM.format(h=8)),
        ("pooled.txt", 1, "Estimate", CLAIM_ON_SAME_H.format(h=8)),
        ("tables.txt", 3, "Ratio to PG", WITHOUT_BASELINE.format(h=16)),
    ],
    "MATH, H = 4": [
        ("pooled.txt", 2, "Estimate", CLAIM.format(h=4)),
        ("pooled.txt", 2, "Estimate", CLAIM_ON_SAME_H.format(h=4)),
        ("tables.txt", 4, "Ratio to PG", WITHOUT_BASELINE.format(h=16)),
    ],
    # The intervals of the estimates have no upper limit.
    "MiniF2F with Lean, H = 8": [
        ("minif2f-tables.txt", 1, "Median ratio", CLAIM.format(h=8)),
        ("minif2f-tables.txt", 1, "Median ratio", CLAIM_ON_SAME_H.format(h=8)),
        ("minif2f-tables.txt", 2, "Ratio to PG", WITHOUT_BASELINE.format(h=8)),
    ],
    "MBPP+, new problems, H = 8": [
        ("rivals-tables.txt", 1, "Estimate", CLAIM.format(h=8)),
        ("rivals-tables.txt", 1, "Estimate", CLAIM_ON_SAME_H.format(h=8)),
        ("rivals-tables.txt", 2, "Ratio to PG", WITHOUT_BASELINE.format(h=8)),
    ],
}


def ratios(text: str, root: Path) -> str:
    """Return a table of ratios of training times, from the recorded tables of all arenas."""
    rows = []
    for problems, places in RATIOS.items():
        cells = []
        for file, number, column, label in places:
            path = ROOT / f"experiments/arena-{file}"
            printed = read_text(path.read_text(encoding="utf-8"))[number]
            cell = printed.rows[printed.labels.index(label)][printed.columns.index(column)].text
            note = " (median)" if column == "Median ratio" else ""
            cells.append(cell + note + (" (H = 16)" if "H=16" in label else ""))
        rows.append([problems, *cells])
    heads = ["generated problems of", "RAPID / PG", "RAPID / PG with the same H"]
    return render_markdown_table([*heads, "RAPID without baseline / PG"], rows)


def arena(text: str, root: Path, part: str, overlay: str) -> str:
    """Return a part of the report of an arena that is recorded seed by seed (`_show_part`)."""
    return _show_part(part, overlay, build_arena, list_arena_runs)


def study(text: str, root: Path, part: str, overlay: str) -> str:
    """Return a part of the report of studies that are recorded seed by seed (`_show_part`).

    A table is Markdown, without its notes.
    """
    return _show_part(part, overlay, build_studies, list_study_runs, _render_without_notes)


def _render_without_notes(table: Table) -> str:
    return markdown.render(replace(table, notes=[], named_notes=[]))


def _render_as_code(table: Table) -> str:
    return indent_lines(as_text.render([table]).splitlines())


def _show_part(
    part: str,
    overlay: str,
    build: Callable,
    list_runs: Callable,
    render: Callable[[Table], str] = _render_as_code,
) -> str:
    """Return a part of a report.

    While seeds have no archive, the text is a dash with the reason, so that no page shows results
    of only some seeds.

    Args:
        part: summary, or the label of a table without "tab:".
        overlay: the file of the experiment's parameters, beside which its archives are.
        build: function that returns the contents of the report on a `ReportData`.
        list_runs: function that lists the runs of the parameters.
        render: function that returns a table as a text.
    """
    params, name = load_params(overlay), str(ROOT / overlay.removesuffix(".yaml"))
    if missing := record.list_missing_seeds(params, name):
        seeds = join_words([*map(str, missing)])
        reason = f"these runs have not been made: seeds {seeds}"
        return "\n" + textwrap.fill(f"{MISSING} ({reason})", 100) + "\n"
    content = read_content(name, overlay, build, list_runs)
    if part == "summary":
        return "\n" + textwrap.fill(" ".join(content.lead), 100) + "\n"
    (table,) = (table for table in content.results if table.label == f"tab:{part}")
    return "\n" + render(table)


def load_params(*overlays: str) -> Params:
    """Return the default's parameters with overlays on them."""
    return load_files(ROOT / "params.yaml", *(ROOT / path for path in overlays))


def indent_lines(lines: list[str]) -> str:
    """Return lines as a block of code."""
    return "".join(f"    {line}".rstrip() + "\n" for line in lines)


@cache
def read_content(name: str, overlay: str, build: Callable, list_runs: Callable) -> Content:
    """Return the contents of a report.

    Args:
        name: the beginning of the paths of the experiment's archives.
        overlay, build, list_runs: see `_show_part`.
    """
    params = load_params(overlay)
    with TemporaryDirectory() as folder:
        record.unpack_archives(name, Path(folder))
        return build(ReportData.read(params, folder, list_runs(params)))
