"""The contents of each kind of report, as contents.yaml orders them: a first screen, then sections.

Figures and tables that no section names are put into a last section. Besides the main report, with
the paper's tables, there are reports on:

studies   ablations: each study compares variants of an algorithm on one benchmark (docs/studies.md)
arena     a preregistered comparison of many algorithms with tuned learning rates (docs/arena.md)
tuning    the trials that choose the arena's learning rates
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from rapid.config.specs import BASE
from reports import findings, labels, paper
from reports.examples import Example, collect_arena_examples
from reports.measured import BASELINE, Measured
from reports.outcomes import fields
from reports.tables import APPENDIX, RESULTS, arena, build, claims, phases, studies, tuning
from reports.tables.claims import Headline
from reports.tables.notes import fill_template, origin_facts, render_notes
from reports.tables.table import Table

FILE = Path(__file__).with_name("contents.yaml")


@dataclass(frozen=True)
class ReportSection:
    """A section of the report.

    Args:
        anchor: the id of the section in report.html.
        items: labels of tables and names of figures; in the result of `Content.with_figures` the
            tables themselves in place of their labels.
        folded: whether a click opens its tables.
    """

    anchor: str
    title: str
    intro: str
    items: Sequence[Table | str]
    folded: bool = False


@dataclass(frozen=True)
class Content:
    """The contents of a report, independent of the format in which it is printed.

    Args:
        lead: the first paragraphs, with the main findings.
        figure: name of the figure beside the lead; "" for none.
        headlines: the main claims with their verdicts.
        results: the tables of tables.tex.
        appendix: the tables of appendix.tex.
        examples: completions of a few test problems.
    """

    title: str
    lead: list[str]
    figure: str
    headlines: Sequence[Headline]
    results: list[Table]
    appendix: list[Table]
    sections: list[ReportSection]
    examples: Sequence[Example] = ()

    def with_figures(self, figures: list[str]) -> list[ReportSection]:
        """Return the sections with their tables and figures; what does not exist is left out.

        The figure of the first screen is not repeated in a section.

        Args:
            figures: names of the figures that exist.
        """
        tables = {table.label: table for table in [*self.results, *self.appendix]}
        items = tables | {name: name for name in figures if name != self.figure}
        named = {item for section in self.sections for item in section.items}
        last_section = ReportSection(
            "more", "More", "", [name for name in items if name not in named]
        )
        sections = [
            replace(section, items=[items[item] for item in section.items if item in items])
            for section in [*self.sections, last_section]
        ]
        return [section for section in sections if section.items]


def build_report(measured: Measured) -> Content:
    """Return the contents of the main report, with all of its tables computed."""
    results, appendix = build(RESULTS, measured), build(APPENDIX, measured)
    (claims_table,) = (table for table in appendix if table.label == "tab:claims")
    machines = origin_facts([name for name in measured.frame.hardware if name], [])
    return _arrange(
        "report",
        measured,
        results,
        appendix,
        claims.headlines(claims_table),
        verdicts=claims.summarize(claims_table),
        paper=paper.load(),
        hardware=" ".join(render_notes(["hardware"], machines)),
        **findings.compare_with_baseline(measured),
    )


def build_studies(measured: Measured) -> Content:
    """Return the contents of the studies' report: a section for each study."""
    tables = studies.tables(measured)
    (claims_table,) = (table for table in tables if table.label == "tab:studied-claims")
    facts = findings.compare_variants(measured)
    content = _arrange(
        "studies", measured, tables, headlines=claims.headlines(claims_table), **facts
    )
    sections = []
    for study in studies.studies(measured):
        name = study.name
        items = [
            f"{name}-sweep", name, f"{name}-curves", f"tab:{name}", f"tab:{name}-reach"
        ]  # fmt: skip
        sections.append(ReportSection(name, study.title, "", items))
    return replace(content, sections=[*sections, *content.sections])


def build_arena(measured: Measured) -> Content:
    """Return the contents of the arena's report, or of the report on its tuning."""
    spec = measured.params.arena
    if spec.tuning:
        return _arrange("tuning", measured, tuning.tables(measured))
    # With `arena.only`, new algorithms are ranked among the recorded results of an earlier arena,
    # and no claim is tested.
    verdicts = [] if spec.only else arena.judge(fields(measured))
    tables = arena.claims(measured, verdicts)
    for outcomes in fields(measured):  # a field has the algorithms compared on one benchmark
        tables.append(arena.standings(outcomes, len(tables) + 1))
    # The trials of learning rates, read from a file that `reports.tuning` wrote.
    tables += tuning.recorded(measured, len(tables) + 1)
    tables += [phases.build(field, len(tables) + n) for n, field in enumerate(fields(measured), 1)]
    # "Places" are the ranks of algorithms.
    summary = arena.summarize(measured, verdicts) if verdicts else arena.describe_places(measured)
    headlines = arena.headlines(verdicts)
    content = _arrange("arena", measured, tables, headlines=headlines, summary=summary)
    examples = [item for field in fields(measured) for item in collect_arena_examples(field)]
    return replace(content, examples=examples)


def _arrange(
    kind: str,
    measured: Measured,
    results: list[Table],
    appendix: Sequence[Table] = (),
    headlines: Sequence[Headline] = (),
    **facts: Any,
) -> Content:
    """Return the contents of a kind of report, in the sections that contents.yaml declares.

    Args:
        facts: variables of the templates in contents.yaml.
    """
    document = yaml.safe_load(FILE.read_text(encoding="utf-8"))[kind]
    benchmarks = list(measured.params.benchmarks)
    facts |= {
        "model": measured.params.tables.main.model, "baseline": labels.algorithm(BASELINE)
    }  # fmt: skip
    sections = [
        ReportSection(
            anchor,
            section["title"],
            fill_template(section.get("intro", ""), facts),
            [
                item.format(benchmark=benchmark)
                for item in section["items"]
                for benchmark in (benchmarks if "{" in item else [""])
            ],
            section.get("folded", False),
        )
        for anchor, section in document["sections"].items()
    ]
    paragraphs = [fill_template(paragraph, facts) for paragraph in document["lead"]]
    return Content(
        title=document["title"],
        lead=[paragraph for paragraph in paragraphs if paragraph],
        figure=document.get("figure", "").format(benchmark=benchmarks[0]),
        headlines=headlines,
        results=results,
        appendix=list(appendix),
        sections=sections,
    )


def path(run: pd.Series) -> str:
    """Return the name of a run: benchmark/model/algorithm/seed1."""
    return f"{run.benchmark}/{run.model}/{run.algorithm}/seed{run.seed}"


def missing(frame: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Return the reasons for missing results, each with the names of its runs."""
    by_reason: dict[str, list[str]] = {}
    for _, run in frame.iterrows():
        # These columns have the reason why a result is missing, or "" if it exists.
        reasons = [run.no_evaluation] + ([run.no_summary] if run.algorithm != BASE else [])
        for reason in filter(None, reasons):
            by_reason.setdefault(reason, []).append(path(run))
    return list(by_reason.items())


def counts(frame: pd.DataFrame) -> str:
    """Return how many of the needed evaluations and training runs have results, in words."""
    trained = frame[frame.algorithm != BASE]
    return (
        f"{(frame.no_evaluation == '').sum()} of {len(frame)} evaluations and "
        f"{(trained.no_summary == '').sum()} of {len(trained)} training runs"
    )
