"""The contents of each kind of report, by contents.yaml: a lead, sections of tables and figures.

A figure or table that no section names comes in a section of its own at the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from rapid.config.specs import BASE
from reports import paper
from reports.measured import Measured
from reports.outcomes import fields
from reports.tables import APPENDIX, RESULTS, arena, build, claims, studies, tuning
from reports.tables.notes import fill_template, origin_facts, render_notes
from reports.tables.table import Table

FILE = Path(__file__).with_name("contents.yaml")


@dataclass(frozen=True)
class ReportSection:
    """A part of the report. `items` are tables, and the names of tables and figures."""

    anchor: str
    title: str
    intro: str
    items: Sequence[Table | str]


@dataclass(frozen=True)
class Content:
    """All that is reported, whatever it is printed as."""

    title: str
    lead: str  # what to know first
    results: list[Table]  # Tables 1 to 4, or those of the studies
    appendix: list[Table]  # the other tables
    sections: list[ReportSection]

    def with_figures(self, figures: list[str]) -> list[ReportSection]:
        """Return the sections with the items that exist: tables, and names of these figures."""
        tables = {table.label: table for table in [*self.results, *self.appendix]}
        items = tables | dict(zip(figures, figures, strict=True))
        named = {item for section in self.sections for item in section.items}
        more = ReportSection("more", "More", "", [name for name in items if name not in named])
        sections = [
            replace(section, items=[items[item] for item in section.items if item in items])
            for section in [*self.sections, more]
        ]
        return [section for section in sections if section.items]


def build_report(measured: Measured) -> Content:
    """Compute every table of the paper, and arrange them with the figures."""
    results, appendix = build(RESULTS, measured), build(APPENDIX, measured)
    (claims_table,) = (table for table in appendix if table.label == "tab:claims")
    machines = origin_facts([name for name in measured.frame.hardware if name], [])
    return _arrange(
        "report",
        measured,
        results,
        appendix,
        verdicts=claims.summarize(claims_table),
        paper=paper.load(),
        hardware=" ".join(render_notes(["hardware"], machines)),
    )


def build_studies(measured: Measured) -> Content:
    """Compute the tables of the studies: a section each, with its figures and tables."""
    content = _arrange("studies", measured, studies.tables(measured))
    sections = []
    for study in studies.studies(measured):
        name = study.name
        items = [name, f"{name}-curves", f"tab:{name}", f"tab:{name}-reach"]
        sections.append(ReportSection(name, study.title, "", items))
    return replace(content, sections=[*sections, *content.sections])


def build_arena(measured: Measured) -> Content:
    """Compute the tables of the arena, or of its tuning."""
    spec = measured.params.arena
    if spec.tuning:
        return _arrange("tuning", measured, tuning.tables(measured))
    verdicts = [] if spec.only else arena.judge(measured)
    tables = arena.claims(measured, verdicts)
    for outcomes in fields(measured):
        tables.append(arena.standings(outcomes, len(tables) + 1))
    tables += tuning.recorded(measured, len(tables) + 1)
    summary = arena.summarize(measured, verdicts) if verdicts else arena.describe_places(measured)
    return _arrange("arena", measured, tables, summary=summary)


def _arrange(
    kind: str,
    measured: Measured,
    results: list[Table],
    appendix: Sequence[Table] = (),
    **facts: Any,
) -> Content:
    """Return the tables of a kind of report in the sections of contents.yaml."""
    document = yaml.safe_load(FILE.read_text(encoding="utf-8"))[kind]
    facts["model"] = measured.params.tables.main.model
    sections = [
        ReportSection(
            anchor,
            section["title"],
            fill_template(section.get("intro", ""), facts),
            [
                item.format(benchmark=benchmark)
                for item in section["items"]
                for benchmark in (measured.params.benchmarks if "{" in item else [""])
            ],
        )
        for anchor, section in document["sections"].items()
    ]
    lead = fill_template(document["lead"], facts)
    return Content(document["title"], lead, results, list(appendix), sections)


def path(run: pd.Series) -> str:
    """Return what names a run: benchmark/model/algorithm/seed1."""
    return f"{run.benchmark}/{run.model}/{run.algorithm}/seed{run.seed}"


def missing(frame: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Return what is not there: reasons with their runs, in the order met."""
    by_reason: dict[str, list[str]] = {}
    for _, run in frame.iterrows():
        reasons = [run.no_evaluation] + ([run.no_summary] if run.algorithm != BASE else [])
        for reason in filter(None, reasons):
            by_reason.setdefault(reason, []).append(path(run))
    return list(by_reason.items())


def counts(frame: pd.DataFrame) -> str:
    """Return how many of the files that the tables need were there."""
    trained = frame[frame.algorithm != BASE]
    return (
        f"{(frame.no_evaluation == '').sum()} of {len(frame)} evaluations and "
        f"{(trained.no_summary == '').sum()} of {len(trained)} training runs"
    )
