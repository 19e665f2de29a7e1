"""The report as a list of sections: which tables and figures, in which order, with what to say first.

There are two reports: of the paper's tables, and of the studies. A figure or table that no section
names comes in a section of its own at the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from rapid.config.specs import BASE
from reports.measured import Measured
from reports.paper import load as load_paper
from reports.tables import APPENDIX, RESULTS, build, claims, notes, studies
from reports.tables.table import Table


@dataclass(frozen=True)
class Section:
    """A part of the report. `items` are tables, and the names of tables and figures."""

    anchor: str
    title: str
    intro: str
    items: Sequence[Table | str]


BESIDE = "beside"
SECTIONS = [
    Section(
        "claims",
        "The paper's claims",
        "Each claim with the paper's number, the number of these runs and the rule that decides.",
        ["tab:claims"],
    ),
    Section(
        "results",
        "Accuracy and runtime",
        "A click on a figure shows its runs.",
        ["tab:main", "tradeoff", "fig:family_size_ablate"],
    ),
    Section(
        "noise",
        "What the noise allows to say",
        "Intervals over problems and seeds, and RAPID paired with the strongest baselines.",
        ["tab:comparisons", "tab:intervals"],
    ),
    Section(
        "time",
        "Where the time goes, and what it buys",
        "",
        ["phases", "learning-by-time", "learning-by-step", "tab:memory"],
    ),
    Section(
        "ratio",
        "The batch size ratio H",
        "H optimizer steps are taken on each batch of completions.",
        ["tab:staleness", "tab:ninf-corrs", "length-and-time", "clipped", "tokens"],
    ),
    Section(
        BESIDE,
        "Beside the paper",
        "",
        ["tab:beside-ratios", "tab:beside-orders", "tab:beside-signs"],
    ),
    Section(
        "setup",
        "How the runs were made",
        "Read from the manifests that the jobs wrote.",
        ["tab:sft-para", "tab:rl-para", "tab:package"],
    ),
]


@dataclass(frozen=True)
class Content:
    """All that is reported, whatever it is printed as.

    Args:
        lead: what to know first.
        results: Tables 1 to 4, or those of the studies.
        appendix: the other tables.
    """

    title: str
    lead: str
    results: list[Table]
    appendix: list[Table]
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
    sections = [
        replace(one, intro=_scale(measured)) if one.anchor == BESIDE else one for one in SECTIONS
    ]
    return Content("RAPID, measured", lead, results, appendix, sections)


def build_studies(measured: Measured) -> Content:
    """Compute the tables of the studies: a section each, with its figures and tables."""
    sections = [
        Section(
            study.name,
            study.title,
            "",
            [
                study.name,
                f"{study.name}-curves",
                f"tab:{study.name}",
                f"tab:{study.name}-reach",
            ],
        )
        for study in studies.studies(measured)
    ]
    lead = f"One thing changed at a time, in training {measured.params.tables.main.model}."
    return Content("RAPID, studied", lead, studies.tables(measured), [], sections)


def _scale(measured: Measured) -> str:
    paper = load_paper()
    machines = notes.machines([name for name in measured.frame.hardware if name])
    return (
        f"The paper trained {paper['main']['model']} on {paper['hardware']}; Table 1 here is "
        f"{measured.params.tables.main.model}. Seconds and accuracies of the two do not compare. "
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
