"""The metrics of training, each declared once: as a field of `StepMetrics`.

From a declaration follow the trainer's logs that are kept, the columns of steps.jsonl, the
statistics in summary.json and in the data frame of reports, what `dvc exp show` compares, and the
table in docs/watching.md. `rapid.training.metrics`, or the loss of an algorithm, computes the value
under the metric's name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any, Literal

from pydantic import Field

from rapid.artifacts.files import Count, Record, Seconds, Share


@dataclass(frozen=True)
class Metric:
    """Declaration of a metric's logs, labels and summaries. Its field has the name and description.

    Args:
        over: what its value at a step is averaged over: the whole mini-batch, or the micro-batches
            that were trained on.
        unit: of its values; "" is a plain number.
        label: its title in tables.
        better: which values are better, if any are.
        summary: what summary.json has of it: the "mean" over the steps, or the "ends", NAME_first
            and NAME_last, which are means over the first and the last tenth of the steps.
        compared: whether `dvc exp show` has it, and `dvc plots` its curve.
        log: its name in the trainer's logs; "" is rapid/NAME. What follows after a / is ignored.
    """

    over: Literal["mini-batch", "micro-batches"]
    unit: str
    label: str
    better: Literal["", "higher", "lower"] = ""
    summary: Literal["", "mean", "ends"] = ""
    compared: bool = False
    log: str = ""


class StepMetrics(Record):
    """One optimizer step. A metric is `None` where it is not defined."""

    step: Count = Field(description="number of the optimizer step, from 1")
    seconds: Seconds = Field(description="training time when the step ended")
    loss: Annotated[float, Metric("micro-batches", unit="", label="Loss", log="loss")] = Field(
        description="training loss"
    )
    gradient_norm: Annotated[
        float, Metric("micro-batches", unit="", label="Gradient", log="grad_norm")
    ] = Field(description="gradient norm before clipping")
    reward: Annotated[
        Share,
        Metric(
            "mini-batch",
            unit="share",
            label="Reward",
            better="higher",
            summary="ends",
            compared=True,
            log="rapid/accuracy",
        ),
    ] = Field(None, description="mean task reward")
    signal: Annotated[Share, Metric("mini-batch", unit="share", label="Signal")] = Field(
        None, description="share of groups whose rewards differ"
    )
    completion_length: Annotated[
        float | None,
        Metric("mini-batch", unit="tokens", label="Length", summary="mean", log="rapid/length"),
    ] = Field(None, ge=0, description="mean length of completions")
    staleness: Annotated[
        float | None,
        Metric(
            "micro-batches",
            unit="nats",
            label="Stale",
            better="lower",
            summary="mean",
            compared=True,
        ),
    ] = Field(None, description="mean |log min(w, eta)| of the importance weights w")
    clip_fraction: Annotated[
        Share,
        Metric(
            "micro-batches",
            unit="share",
            label="Clipped",
            better="lower",
            summary="mean",
            compared=True,
        ),
    ] = Field(None, description="share of importance weights or ratios that are clipped")
    weight: Annotated[float | None, Metric("micro-batches", unit="", label="Weight")] = Field(
        None, description="mean importance weight before clipping"
    )
    kl: Annotated[float | None, Metric("micro-batches", unit="nats per token", label="KL")] = Field(
        None, description="KL divergence from the reference policy"
    )
    run: Annotated[Share, Metric("micro-batches", unit="share", label="Run", summary="mean")] = (
        Field(
            None,
            description="share of the mini-batch trained on; groups without a gradient are skipped",
        )
    )


METRICS: dict[str, Metric] = {
    name: annotation
    for name, field in StepMetrics.model_fields.items()
    for annotation in field.metadata
    if isinstance(annotation, Metric)
}
COMPARED = tuple(name for name, metric in METRICS.items() if metric.compared)
# The statistics of a metric: what is added to its name, and the steps that they are means over.
STATISTICS: dict[str, dict[str, str]] = {
    "": {},
    "mean": {"": "the steps"},
    "ends": {"_first": "the first tenth of the steps", "_last": "the last tenth of the steps"},
}


def select_metrics(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declared metrics among the logs of a step, by their names in steps.jsonl."""
    return {
        name: next((logs[key] for key in logs if key == log or key.startswith(f"{log}/")), None)
        for name, metric in METRICS.items()
        for log in [metric.log or f"rapid/{name}"]
    }


def build_summary_fields() -> dict[str, Any]:
    """Return the statistics' fields of summary.json, a type and a default each, in its order.

    Means come before ends, and those over passes before those over mini-batches.
    """

    def sort_key(name: str) -> tuple[bool, bool]:
        return METRICS[name].summary == "ends", METRICS[name].over == "mini-batch"

    summary_fields: dict[str, Any] = {}
    for name in sorted(METRICS, key=sort_key):
        field = StepMetrics.model_fields[name]
        for suffix, steps in STATISTICS[METRICS[name].summary].items():
            description = f"{field.description}: mean over {steps}"
            default = Field(None, description=description)
            summary_fields[f"{name}{suffix}"] = (field.rebuild_annotation(), default)
    return summary_fields


def summarize_steps(steps: Sequence[StepMetrics]) -> dict[str, float | None]:
    """Return the statistics of a run's steps; None where no step has the metric."""
    tenth = max(1, len(steps) // 10)
    parts = {"": steps, "_first": steps[:tenth], "_last": steps[-tenth:]}
    statistics: dict[str, float | None] = {}
    for name, metric in METRICS.items():
        for suffix in STATISTICS[metric.summary]:
            values = [getattr(step, name) for step in parts[suffix]]
            values = [value for value in values if value is not None]
            statistics[f"{name}{suffix}"] = fmean(values) if values else None
    return statistics
