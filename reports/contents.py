"""The report as a list of sections, by contents.yaml; and the report of the studies.

A figure or table that no section names comes in a section of its own at the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import yaml

from rapid.config.specs import BASE
from reports.measured import Measured
from reports.outcomes import fields
from reports.paper import load as load_paper
from reports.tables import APPENDIX, RESULTS, arena, build, claims, notes, studies, tuning
from reports.tables.table import Table

WHO = "Every algorithm gets H, and a learning rate that was tuned for it by the same trials."
CLAIMED = "Verdicts are adjusted for the number of claims. What neither holds nor fails is open."
FIELD = "Intervals are not adjusted: they describe, and the claims decide."
FILE = Path(__file__).with_name("contents.yaml")


@dataclass(frozen=True)
class Section:
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
    sections: list[Section]

    def with_figures(self, figures: list[str]) -> list[Section]:
        """Return the sections with the items that exist: tables, and names of these figures."""
        tables = {table.label: table for table in [*self.results, *self.appendix]}
        known = tables | dict(zip(figures, figures, strict=True))
        named = {item for section in self.sections for item in section.items}
        more = Section("more", "More", "", [name for name in known if name not in named])
        return [
            replace(one, items=[known[item] for item in one.items if item in known])
            for one in [*self.sections, *([more] if more.items else [])]
        ]


def build_report(measured: Measured) -> Content:
    """Compute every table of the paper, and arrange them with the figures."""
    results, appendix = build(RESULTS, measured), build(APPENDIX, measured)
    (judged,) = (table for table in appendix if table.label == "tab:claims")
    lead = f"The paper's claims, benchmark by benchmark: {claims.verdicts(judged)} here."
    scale = _scale(measured)
    sections = [
        Section(anchor, one["title"], one.get("intro", "").format(scale=scale), one["items"])
        for anchor, one in yaml.safe_load(FILE.read_text(encoding="utf-8")).items()
    ]
    return Content("RAPID, measured", lead, results, appendix, sections)


def build_studies(measured: Measured) -> Content:
    """Compute the tables of the studies: a section each, with its figures and tables."""
    sections = []
    for one in studies.studies(measured):
        items = [one.name, f"{one.name}-curves", f"tab:{one.name}", f"tab:{one.name}-reach"]
        sections.append(Section(one.name, one.title, "", items))
    sections.append(Section("claims", "The paper's claims", "", ["tab:studied-claims"]))
    lead = f"One thing changed at a time, in training {measured.params.tables.main.model}."
    return Content("RAPID, studied", lead, studies.tables(measured), [], sections)


def build_arena(measured: Measured) -> Content:
    """Compute the tables of the arena, or of its tuning."""
    if measured.params.arena.tuning:
        lead = "Learning rates, tried on problems that the arena does not test on."
        return Content("The arena's tuning", lead, tuning.tables(measured), [], [])
    verdicts = [] if measured.params.arena.only else arena.judge(measured)
    found = fields(measured)
    judged = arena.claims(measured, verdicts)
    standings = [arena.standings(one, n) for n, one in enumerate(found, start=len(judged) + 1)]
    tuned = tuning.recorded(measured, len(judged) + len(standings) + 1)
    first = [f"arena-{one.benchmark}" for one in found]
    sections = [
        Section("first", "Who reaches the accuracy first", WHO, first),
        Section("claims", "What was claimed beforehand", CLAIMED, [one.label for one in judged]),
        Section("map", "Where H pays", "", ["arena-map"] if measured.params.arena.mapped else []),
        Section("field", "Every algorithm", FIELD, [one.label for one in standings]),
        Section("tuning", "Learning rates", "", [one.label for one in tuned]),
    ]
    tables = [*judged, *standings, *tuned]
    lead = arena.summary(measured, verdicts) if verdicts else arena.places(measured)
    return Content("The arena", lead, tables, [], [one for one in sections if one.items])


def _scale(measured: Measured) -> str:
    paper = load_paper()
    machines = notes.machines([name for name in measured.frame.hardware if name])
    return (
        f"The paper trained {paper['main']['model']} on {paper['hardware']}, with the published "
        f"problems; Table 1 here is {measured.params.tables.main.model}. Seconds and accuracies of "
        "the two do not compare. "
        f"Ratios, orders and signs can. {' '.join(machines)}"
    ).strip()


def path(run: pd.Series) -> str:
    """Return what names a run: benchmark/model/algorithm/seed1."""
    return f"{run.benchmark}/{run.model}/{run.algorithm}/seed{run.seed}"


def missing(frame: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Return what is not there: reasons with their runs, in the order met."""
    found: dict[str, list[str]] = {}
    for _, run in frame.iterrows():
        reasons = [run.no_evaluation] + ([run.no_summary] if run.algorithm != BASE else [])
        for reason in filter(None, reasons):
            found.setdefault(reason, []).append(path(run))
    return list(found.items())


def counts(frame: pd.DataFrame) -> str:
    """Return how many of the files that the tables need were there."""
    trained = frame[frame.algorithm != BASE]
    return (
        f"{(frame.no_evaluation == '').sum()} of {len(frame)} evaluations and "
        f"{(trained.no_summary == '').sum()} of {len(trained)} training runs"
    )
