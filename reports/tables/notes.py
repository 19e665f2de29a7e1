"""Renders captions and notes of tables, and computes the facts that they state."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
import yaml

from rapid.algorithms import SFT
from rapid.config.specs import BASE
from rapid.grading.verdicts import INFRASTRUCTURE
from rapid.text import join_words, shorten_commit
from reports import formats, labels
from reports.report_data import BASELINE

FILES = [Path(__file__).with_name(name) for name in ("captions.yaml", "arena_captions.yaml")]
ENVIRONMENT = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)
# {{ table("main") }} renders as "Table 1", and {{ items | listing }} as "a, b and c".
ENVIRONMENT.globals["table"] = lambda name: (
    f"Table\N{NO-BREAK SPACE}{load_descriptions()['tables'][name]['number']}"
)
ENVIRONMENT.filters["listing"] = lambda items, last="and": join_words([*map(str, items)], last)


@cache
def load_descriptions() -> dict[str, Any]:
    """Return the texts of all tables (`tables`) and the shared notes (`notes`), by name."""
    documents = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in FILES]
    return {
        key: {name: text for document in documents for name, text in document[key].items()}
        for key in ("tables", "notes")
    }


def fill_template(template: str, facts: dict[str, Any]) -> str:
    """Return a template rendered with these facts, on one line."""
    return re.sub(r"[ \n]+", " ", ENVIRONMENT.from_string(template).render(facts)).strip()


def render_notes(notes: Iterable[str], facts: dict[str, Any]) -> list[str]:
    """Return the rendered notes (templates, or names of shared notes) without the empty ones.

    A shared note may be a list of notes, each of which is rendered.
    """
    sentences = []
    for note in notes:
        template = load_descriptions()["notes"].get(note, note)
        if isinstance(template, list):
            sentences += render_notes(template, facts)
        elif sentence := fill_template(template, facts):
            sentences.append(sentence)
    return sentences


# Facts --------------------------------------------------------------------------------------------


def collect_run_facts(runs: pd.DataFrame) -> dict[str, Any]:
    """Return the facts about runs (rows of `collect_runs`) that notes state."""
    trained, evaluated = runs[runs.no_summary_reason == ""], runs[runs.samples.notna()]
    benchmarks = list(evaluated.groupby("label", sort=False))
    starts = trained[trained.start != BASE]
    return {
        **collect_origin_facts(trained.hardware, trained.commit),
        **collect_permission_facts(runs.sandbox_permissions),
        "trained": len(trained),
        "starts": list(map(labels.algorithm, starts.start.unique())),
        "start_runs": list(dict.fromkeys(map(_describe_start, starts.start, starts.start_seed))),
        "repeated": (trained.attempt > 1).sum(),
        "disturbed": trained.disturbed.sum(),
        "accepted": runs.accepted.sum(),
        "ungraded": _describe_ungraded(runs),
        "runs_without_scores": (
            (runs.no_evaluation_reason == "") & (runs.scores.map(len) == 0)
        ).sum(),
        "runs_without_settings": ((runs.no_evaluation_reason == "") & runs.samples.isna()).sum(),
        "samples": _list_distinct_numbers(evaluated.samples),
        "temperature": _list_distinct_numbers(evaluated.temperature),
        "top_p": _list_distinct_numbers(evaluated.top_p),
        "evaluated": [
            f"{join_words(_list_distinct_numbers(part.problems), 'or')} of {label}"
            for label, part in benchmarks
        ],
        "flawed": [
            f"{len(flawed)} of {label}"
            for label, part in benchmarks
            if (flawed := frozenset().union(*part.flawed))
        ],
        # The weight of one problem in the accuracy, and of one completion, in percentage points.
        "resolution": [
            f"{100 / (n := part.problems.min()):.2g} on {label} "
            f"({100 / n / part.samples.min():.2g})"
            for label, part in benchmarks
        ],
    }


def collect_ranking_facts(
    runs: pd.DataFrame, algorithms: Sequence[str], is_ranked: Callable[[str, pd.DataFrame], bool]
) -> dict[str, list[str]]:
    """Return which algorithms a column does not rank, in the whole table or in some of its blocks.

    A block has the runs of a model on a benchmark, and is ranked by itself.
    """
    blocks = {
        label if runs.model.nunique() == 1 else f"{label} with {model}": block
        for (label, model), block in runs.groupby(["label", "model"], sort=False)
    }
    unranked, unranked_in = [], []
    for name in algorithms:
        places = [place for place, block in blocks.items() if not is_ranked(name, block)]
        if len(places) == len(blocks):
            unranked.append(labels.algorithm(name))
        elif places:
            unranked_in.append(f"{labels.algorithm(name)} on {join_words(places)}")
    return {"unranked": unranked, "unranked_in": unranked_in}


def _describe_start(algorithm: str, seed: float) -> str:
    """Return the run that other runs start from, in words; NaN stands for their own seed."""
    words = "the same seed" if math.isnan(seed) else f"seed {seed:.0f}"
    return f"{labels.algorithm(algorithm)} trained with {words}"


def collect_origin_facts(hardware: Iterable[str], commits: Iterable[str]) -> dict[str, list[str]]:
    """Return the distinct machines and commits that jobs recorded."""
    return {
        "machines": list(dict.fromkeys(name or "not recorded" for name in hardware)),
        "commits": list(dict.fromkeys(shorten_commit(name) or "not recorded" for name in commits)),
    }


def collect_permission_facts(permissions: Sequence[set[str]]) -> dict[str, Any]:
    """Return how many jobs were allowed to grade without a sandbox, and the keys that allowed it.

    `permissions` has, for each job, those of these keys of `grading` in params.yaml that were on.
    """
    keys = sorted(set().union(*permissions))
    return {
        "results": len(permissions),
        "permitted_jobs": sum(map(bool, permissions)),
        "permission_keys": [f"grading.{key}" for key in keys],
    }


def collect_sft_facts(runs: pd.DataFrame) -> dict[str, Any]:
    """Return by how much SFT is more accurate than the baseline, by benchmark and model.

    In the paper SFT is less accurate, and is not ranked for this reason.
    """
    differences = []
    if "pass@1" in runs:
        means = runs.groupby(["label", "model", "algorithm"], sort=False)["pass@1"].mean()
        by_name = means.unstack().reindex(columns=[SFT.name, BASELINE])
        difference = (by_name[SFT.name] - by_name[BASELINE]).dropna()
        has_several_models = difference.index.get_level_values("model").nunique() > 1
        differences = [
            f"{formats.points(points)} on {label}{f' ({model})' * has_several_models}"
            for (label, model), points in difference.items()
        ]
    return {
        "sft_label": SFT.label,
        "baseline": labels.algorithm(BASELINE),
        "differences": differences,
    }


def _describe_ungraded(runs: pd.DataFrame) -> list[str]:
    """Return how many completions of each run and stage have no verdict because the grader died."""
    return [
        f"{reasons[INFRASTRUCTURE]} of {sum(reasons.values())} {stage} of "
        f"{labels.algorithm(run.algorithm)} on {run.label} ({run.model}, seed {run.seed})"
        for run in runs.itertuples()
        for stage, reasons in (
            ("in training", run.reasons),
            ("in the evaluation", run.evaluation_reasons),
        )
        if INFRASTRUCTURE in reasons
    ]


def _list_distinct_numbers(values: pd.Series) -> list[str]:
    return [f"{value:g}" for value in sorted(set(values))]
