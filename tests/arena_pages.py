"""Parts of an arena's report for the documents, from the archives that `reports.record` packs.

`arena` is a generator function of `tests.documents`.
"""

import textwrap
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from rapid.config.params import Params, load_files
from rapid.config.specs import list_arena_runs
from rapid.text import join_words
from reports import record
from reports.contents import Content, build_arena
from reports.render import text as as_text
from reports.report_data import ReportData
from reports.tables.table import MISSING
from tests.conftest import ROOT


def arena(text: str, root: Path, part: str, overlay: str) -> str:
    """Return a part of the report of an arena that is recorded seed by seed.

    While seeds have no archive, the text is a dash with the reason, so that no page shows results
    of only some seeds.

    Args:
        text, root: what all generator functions get; not used here.
        part: summary, or the label of a table without "tab:".
        overlay: the file of the arena's parameters, beside which its archives are.
    """
    params, name = load_params(overlay), str(ROOT / overlay.removesuffix(".yaml"))
    if missing := record.list_missing_seeds(params, name):
        seeds = join_words([*map(str, missing)])
        return f"\n{MISSING} (these runs have not been made: seeds {seeds})\n"
    content = read_arena(name, overlay)
    if part == "summary":
        return "\n" + textwrap.fill(" ".join(content.lead), 100) + "\n"
    (table,) = (table for table in content.results if table.label == f"tab:{part}")
    return "\n" + indent_lines(as_text.render([table]).splitlines())


def load_params(*overlays: str) -> Params:
    """Return the default's parameters with overlays on them."""
    return load_files(ROOT / "params.yaml", *(ROOT / path for path in overlays))


def indent_lines(lines: list[str]) -> str:
    """Return lines as a block of code."""
    return "".join(f"    {line}".rstrip() + "\n" for line in lines)


@cache
def read_arena(name: str, overlay: str) -> Content:
    """Return the contents of an arena's report.

    Args:
        name: the beginning of the paths of the arena's archives.
    """
    params = load_params(overlay)
    with TemporaryDirectory() as folder:
        record.unpack_archives(name, Path(folder))
        return build_arena(ReportData.read(params, folder, list_arena_runs(params)))
