"""Generates tables and lists of what the code declares: fields of files, of RapidConfig, metrics.

`tests.documents` writes them into the pages. Functions with the arguments `text` and `root` are its
generator functions.
"""

import dataclasses
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import get_args, get_origin

from pydantic import BaseModel

from rapid import RapidConfig
from rapid.artifacts.evaluations import Evaluation
from rapid.artifacts.metrics import METRICS
from rapid.artifacts.runs import RunSummary, StepRecord

RECORDS = {record.__name__: record for record in (RunSummary, Evaluation)}


def steps_fields(text: str, root: Path) -> str:
    """Return a table of the fields of steps.jsonl, with the declarations of metrics."""
    rows = [["Field", "Name in logs", "Meaning", "Unit", "Averaged over", "Better"]]
    for name, description in describe_fields(StepRecord):
        if metric := METRICS.get(name):
            log = f"`{metric.log or f'rapid/{name}'}`"
            cells = [log, description, metric.unit, metric.over, metric.better]
        else:
            cells = ["", description, "" if name == "step" else "seconds", "", ""]
        rows.append([f"`{name}`", *cells])
    return render_rows(rows)


def logged_metrics(text: str, root: Path) -> str:
    """Return a table of the metrics that RapidTrainer logs, by their names in its logs."""
    rows = [["Metric", "Meaning", "Unit", "Averaged over", "Better"]]
    descriptions = dict(describe_fields(StepRecord))
    for name, metric in METRICS.items():
        cells = [metric.unit, metric.over, metric.better]
        rows.append([f"`{metric.log or f'rapid/{name}'}`", descriptions[name], *cells])
    return render_rows(rows)


def fields(text: str, root: Path, record: str) -> str:
    """Return a table of the fields of a file of a run.

    Args:
        record: a key of RECORDS.
    """
    rows = [[f"`{name}`", description] for name, description in describe_fields(RECORDS[record])]
    return render_rows([["Field", "Meaning"], *rows])


def config_fields(text: str, root: Path) -> str:
    """Return a list of the fields that RapidConfig adds to GRPOConfig, or whose default it changes.

    The descriptions are those of `help(RapidConfig)`.
    """
    settings = {setting.name: setting for setting in dataclasses.fields(RapidConfig)}
    items = []
    for name, annotation in RapidConfig.__annotations__.items():
        setting = settings[name]
        has_factory = setting.default_factory is not dataclasses.MISSING
        default = setting.default_factory() if has_factory else setting.default
        # Not `setting.type`, which transformers' parser of command lines changes.
        kind = annotation.__name__ if isinstance(annotation, type) else str(annotation)
        kind = kind.removeprefix("typing.")
        item = f"- `{name}` (`{kind}`, default `{default!r}`): {setting.metadata['help']}"
        items.append(textwrap.fill(item, 100, subsequent_indent="  ", break_on_hyphens=False))
    return "\n" + "\n".join(items) + "\n"


def describe_fields(record: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the fields of a record and of the records in it, with their descriptions."""
    for name, field in record.model_fields.items():
        yield f"{prefix}{name}", field.description or ""
        for part in get_args(field.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel):
                is_list = get_origin(field.annotation) is list
                yield from describe_fields(part, f"{prefix}{name}{'[]' if is_list else ''}.")


def render_rows(rows: list[list[str]]) -> str:
    """Return a table in Markdown; the first row is its head."""
    head, *others = rows
    rows = [head, ["---"] * len(head), *others]
    escaped = (" | ".join(cell.replace("|", r"\|") for cell in row) for row in rows)
    return "\n" + "".join(f"| {row} |\n" for row in escaped)
