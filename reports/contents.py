"""The contents of each kind of report, as contents.yaml orders them: a first screen, then sections.

Figures and tables that no section names are put into a last section. Besides the main report, with
the paper's tables, there are reports on the studies (docs/studies.md), on the arena (docs/arena.md)
and on the tuning, the trials that choose the arena's learning rates.
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
from reports.outcomes import list_fields
from reports.report_data import BASELINE, ReportData
from reports.tables import (
    APPENDIX,
    RESULTS,
    arena,
    build_tables,
    claims,
    maps,
    phases,
    profiles,
    standings,
    studies,
    tuning,
)
from reports.tables.claims import Headline
from reports.tables.notes import collect_origin_facts, fill_template, render_notes
from reports.tables.table import Table

FILE = Path(__file__).with_name("contents.yaml")


@dataclass(frozen=True)
class ReportSection:
    """A section of the report.

    Args:
        anchor: the id of the section in report.html.
        items: labels of tables and names of figures; in the result of `Content.list_sections` the
            tables themselves in place of their labels.
        folded: whether the section's tables are hidden until a click.
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

    def list_sections(self, figures: list[str]) -> list[ReportSection]:
        """Return the sections with those of their tables and figures that exist.

        The figure of the first screen is not repeated in a section.
        """
        tables = {table.label: table for table in [*self.results, *self.appendix]}
        items = tables | {name: name for name in figures if name != self.figure}
        named_items = {item for section in self.sections for item in section.items}
        other_items = [name for name in items if name not in named_items]
        last_section = ReportSection("more", "More", "", other_items)
        sections = [
            replace(section, items=[items[item] for item in section.items if item in items])
            for section in [*self.sections, last_section]
        ]
        return [section for section in sections if section.items]


def build_report(data: ReportData) -> Content:
    """Return the contents of the main report, with all of its tables computed."""
    results, appendix = build_tables(RESULTS, data), build_tables(APPENDIX, data)
    (claims_table,) = (table for table in appendix if table.label == "tab:claims")
    # The lead names the machines, but no commits.
    machines = [name for name in data.frame.hardware if name]
    origin_facts = collect_origin_facts(machines, commits=[])
    return _build_content(
        "report",
        data,
        results,
        appendix,
        claims.build_headlines(claims_table),
        verdicts=claims.summarize_verdicts(claims_table),
        paper=paper.load_paper(),
        hardware=" ".join(render_notes(["hardware"], origin_facts)),
        **findings.compare_with_baseline(data),
    )


def build_studies(data: ReportData) -> Content:
    """Return the contents of the studies' report: a section for each study."""
    tables = studies.build_tables(data)
    (claims_table,) = (table for table in tables if table.label == "tab:studied-claims")
    facts = findings.compare_variants(data)
    content = _build_content(
        "studies", data, tables, headlines=claims.build_headlines(claims_table), **facts
    )
    sections = []
    for study in studies.list_studies(data):
        name = study.name
        items = [
            f"{name}-sweep", name, f"{name}-curves", f"tab:{name}", f"tab:{name}-reach"
        ]  # fmt: skip
        sections.append(ReportSection(name, study.title, "", items))
    return replace(content, sections=[*sections, *content.sections])


def build_arena(data: ReportData) -> Content:
    """Return the contents of the arena's report, or of the report on its tuning."""
    arena_params = data.params.arena
    if arena_params.tuning:
        return _build_content("tuning", data, tuning.build_trial_tables(data))
    # With `arena.only`, new algorithms are ranked among the recorded results of an earlier arena,
    # and no claim is tested.
    fields = list_fields(data)  # for each benchmark, the results of the algorithms compared on it
    judged_claims = [] if arena_params.only else arena.judge_claims(fields)
    tables = arena.build_claims_tables(data, judged_claims)
    for field_outcomes in fields:
        tables.append(standings.build_standings_table(field_outcomes, len(tables) + 1))
    # The trials of learning rates, read from a file that `reports.tuning` wrote.
    tables += tuning.build_recorded_tables(data, len(tables) + 1)
    for field_outcomes in fields:
        tables.append(phases.build_phases_table(field_outcomes, len(tables) + 1))
    for field_outcomes in fields:
        tables.append(profiles.build_profile_table([field_outcomes], len(tables) + 1))
    tables += maps.build_map_tables(data, len(tables) + 1)
    summary = (
        arena.summarize(fields, judged_claims)
        if judged_claims
        else standings.describe_new_ranks(fields)
    )
    headlines = arena.build_headlines(judged_claims)
    content = _build_content("arena", data, tables, headlines=headlines, summary=summary)
    examples = [
        example for field_outcomes in fields for example in collect_arena_examples(field_outcomes)
    ]
    return replace(content, examples=examples)


def _build_content(
    kind: str,
    data: ReportData,
    results: list[Table],
    appendix: Sequence[Table] = (),
    headlines: Sequence[Headline] = (),
    **facts: Any,
) -> Content:
    """Return the contents of a kind of report; `facts` are for the templates in contents.yaml."""
    document = yaml.safe_load(FILE.read_text(encoding="utf-8"))[kind]
    benchmarks = list(data.params.benchmarks)
    facts |= {
        "model": data.params.tables.main.model, "baseline": labels.algorithm(BASELINE)
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


def format_run_name(run: pd.Series) -> str:
    """Return the name of a run: benchmark/model/algorithm/seed1."""
    return f"{run.benchmark}/{run.model}/{run.algorithm}/seed{run.seed}"


def group_missing_results(frame: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Return each reason for missing results, with the names of its runs."""
    by_reason: dict[str, list[str]] = {}
    for _, run in frame.iterrows():
        reasons = [run.no_evaluation_reason]
        reasons += [run.no_summary_reason] if run.algorithm != BASE else []
        for reason in filter(None, reasons):
            by_reason.setdefault(reason, []).append(format_run_name(run))
    return list(by_reason.items())


def describe_counts(frame: pd.DataFrame) -> str:
    """Return how many of the needed evaluations and training runs have results, in words."""
    trained = frame[frame.algorithm != BASE]
    return (
        f"{(frame.no_evaluation_reason == '').sum()} of {len(frame)} evaluations and "
        f"{(trained.no_summary_reason == '').sum()} of {len(trained)} training runs"
    )
