"""report.html: everything of the report in one file that opens offline.

Styles are in it and figures too, as images. A figure in a table opens a box with the runs that it is
from, by the browser's own popovers: there is no script. Links to runs are relative to the file.
"""

import base64
import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import jinja2
import pandas as pd
from markupsafe import Markup, escape

from rapid.config.specs import BASE
from reports import claims, formats, notes, sections
from reports.plots.style import Figure
from reports.sections import Content
from reports.table import MISSING, Table

VERDICTS = {claims.HOLDS: "holds", claims.FAILS: "fails", claims.UNTESTED: "untested"}
SIGNS = {"holds": "\N{CHECK MARK}", "fails": "\N{MULTIPLICATION X}", "untested": "\N{EN DASH}"}


@dataclass(frozen=True)
class Page:
    """What the template needs beside the content."""

    frame: pd.DataFrame
    content: Content
    figures: dict[str, Figure]
    images: dict[str, bytes]  # name -> SVG
    root: Path
    folder: Path  # of report.html

    def exists(self, path: str) -> bool:
        """Whether there is such a file below the root: what is missing is named and not linked."""
        return (self.root / path).is_file()

    def href(self, path: str) -> str:
        """From report.html to a file below the root."""
        return quote(Path(os.path.relpath(self.root / path, self.folder)).as_posix())


def render(page: Page) -> str:
    """The text of report.html."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("reports"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        autoescape=True,
    )
    environment.filters |= {
        "symbols": symbols,
        "image": image,
        "verdict": verdict,
        "short": notes.short,
    }
    environment.tests["table"] = lambda item: isinstance(item, Table)
    return environment.get_template("report.html.j2").render(
        page=page,
        missing=sections.missing(page.frame),
        counts=sections.counts(page.frame),
        facts=facts(page.frame),
        runs=runs(page.frame),
        signs=SIGNS,
        dash=MISSING,
    )


def facts(frame: pd.DataFrame) -> list[tuple[str, str]]:
    """Names and values for the head of the page."""
    trained = frame[(frame.no_summary == "") & (frame.algorithm != BASE)]
    found = [
        ("Commits", [notes.short(name) for name in trained.commit]),
        ("Hardware", list(trained.hardware)),
        ("Models", list(trained.model)),
        ("Seeds", [str(seed) for seed in sorted(trained.seed)]),
    ]
    return [
        (
            name,
            formats.listing([text or "not recorded" for text in dict.fromkeys(values)]) or MISSING,
        )
        for name, values in found
    ]


def runs(frame: pd.DataFrame) -> list[dict]:
    """A row a run for the list at the end: printed figures, and what is missing."""
    rows = []
    for _, run in frame.iterrows():
        accuracies = [
            f"Pass@{name.removeprefix('pass@')} {formats.percent(run[name])}"
            for name in frame.columns
            if name.startswith("pass@") and pd.notna(run[name])
        ]
        trains = run.algorithm != BASE
        rows.append(
            {
                "name": f"{run.benchmark}/{run.model}/{run.algorithm}/seed{run.seed}",
                "accuracy": ", ".join(accuracies) or MISSING,
                "runtime": formats.duration(run.runtime) if pd.notna(run.runtime) else MISSING,
                "commit": notes.short(run.commit) or MISSING,
                "evaluation": "" if run.no_evaluation else run.evaluation_path,
                "summary": run.summary_path if trains and not run.no_summary else "",
                "why": "; ".join(
                    filter(None, [run.no_summary if trains else "", run.no_evaluation])
                ),
            }
        )
    return rows


def symbols(text: str) -> Markup:
    """Our own wording, escaped, with H as a variable."""
    return Markup(re.sub(r"\bH\b", "<i>H</i>", str(escape(text))))


def image(svg: bytes) -> Markup:
    """An SVG as the address of an image, which keeps its names apart from other figures'."""
    return Markup("data:image/svg+xml;base64," + base64.b64encode(svg).decode())


def verdict(text: str) -> str:
    """The class of a verdict, or "" for another text."""
    return VERDICTS.get(text, "")
