"""The report as a list of sections: which tables and figures, in which order, with what to say first.

There are two: of the paper's tables, and of the studies.
"""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from rapid.config.params import Params
from rapid.config.specs import BASE
from reports import beside, claims, evidence, manifests, memory, notes, setup, studies, tables
from reports.formats import listing
from reports.paper import load as load_paper
from reports.table import Table


@dataclass(frozen=True)
class Section:
    """`items` are tables, and names of figures, in the order of reading."""

    anchor: str
    title: str
    intro: str
    items: list[Table | str]


@dataclass(frozen=True)
class Content:
    """All that is reported, whatever it is printed as."""

    title: str
    lead: str  # what to know first
    results: list[Table]  # Tables 1 to 4, or those of the studies
    appendix: list[Table]  # the others, by number
    sections: list[Section]


def build(params: Params, frame: pd.DataFrame, root: Path) -> Content:
    """Compute every table, and arrange them with the figures."""
    results = tables.build(params, frame)
    made = setup.tables(params, manifests.read(params, root))
    noise = evidence.tables(params, frame)
    compared = beside.tables(params, frame)
    held = memory.table(params, frame)
    by_label = {table.label: table for table in [*results, *made, *noise, *compared, held]}

    def table(label: str) -> list[Table]:
        return [by_label[label]] if label in by_label else []

    sections = [
        Section(
            "claims",
            "The paper's claims",
            "Each claim with the paper's number, the number of these runs and the rule that decides.",
            table("tab:claims"),
        ),
        Section(
            "results",
            "Accuracy and runtime",
            "A click on a figure shows its runs.",
            [*table("tab:main"), "tradeoff", *table("fig:family_size_ablate")],
        ),
        Section(
            "noise",
            "What the noise allows to say",
            "Intervals over problems and seeds, and RAPID paired with the strongest baselines.",
            [*table("tab:comparisons"), *table("tab:intervals")],
        ),
        Section(
            "time",
            "Where the time goes, and what it buys",
            "",
            ["phases", "learning-by-time", "learning-by-step", *table("tab:memory")],
        ),
        Section(
            "ratio",
            "The batch size ratio H",
            "H optimizer steps are taken on each batch of completions.",
            [
                *table("tab:staleness"),
                *table("tab:ninf-corrs"),
                "length-and-time",
                "clipped",
                "tokens",
            ],
        ),
        Section(
            "beside",
            "Beside the paper",
            _scale(params, frame),
            [
                *table("tab:beside-ratios"),
                *table("tab:beside-orders"),
                *table("tab:beside-signs"),
            ],
        ),
        Section(
            "setup",
            "How the runs were made",
            "Read from the manifests that the jobs wrote.",
            [*table("tab:sft-para"), *table("tab:rl-para"), *table("tab:package")],
        ),
    ]
    appendix = sorted([*made, *noise, *compared, held], key=lambda one: one.number)
    said = f"The paper's claims, benchmark by benchmark: {verdicts(appendix)} here."
    return Content("RAPID, measured", said, results, appendix, sections)


def build_studies(params: Params, frame: pd.DataFrame, root: Path) -> Content:
    """The studies' content: a section each, with its figures and tables."""
    made = studies.tables(params, frame, root)
    sections = []
    for study in studies.studies(params, frame):
        labels = [f"tab:{study.name}", f"tab:{study.name}-reach"]
        sections.append(
            Section(
                study.name,
                study.title,
                "",
                [study.name, f"{study.name}-curves", *(t for t in made if t.label in labels)],
            )
        )
    said = f"One thing changed at a time, in training {params.tables.main.model}."
    return Content("RAPID, studied", said, made, [], sections)


def _scale(params: Params, frame: pd.DataFrame) -> str:
    paper = load_paper()
    machines = notes.machines([name for name in frame.hardware if name])
    return (
        f"The paper trained {paper['main']['model']} on {paper['hardware']}; Table 1 here is "
        f"{params.tables.main.model}. Seconds and accuracies of the two do not compare. Ratios, orders "
        f"and signs can. {' '.join(machines)}"
    ).strip()


def missing(frame: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """What is not there: reason -> runs, in the order met."""
    found: dict[str, list[str]] = {}
    for _, run in frame.iterrows():
        name = f"{run.benchmark}/{run.model}/{run.algorithm}/seed{run.seed}"
        reasons = [run.no_evaluation] + ([run.no_summary] if run.algorithm != BASE else [])
        for reason in filter(None, reasons):
            found.setdefault(reason, []).append(name)
    return list(found.items())


def counts(frame: pd.DataFrame) -> str:
    """How many of the files that the tables need were there."""
    trained = frame[frame.algorithm != BASE]
    return (
        f"{(frame.no_evaluation == '').sum()} of {len(frame)} evaluations and "
        f"{(trained.no_summary == '').sum()} of {len(trained)} training runs"
    )


def verdicts(tables: list[Table]) -> str:
    """9 hold, 3 do not hold, 8 are not tested."""
    (table,) = (one for one in tables if one.label == "tab:claims")
    said = [row.cells[0][0].text for row in table.rows]
    words = {claims.HOLDS: "hold", claims.FAILS: "do not hold", claims.UNTESTED: "are not tested"}
    return listing([f"{said.count(verdict)} {word}" for verdict, word in words.items()])
