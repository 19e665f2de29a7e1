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
        over: what its value at a step is taken over: the whole mini-batch, or the passes of it that
            ran.
        unit: of its values; "" is a plain number.
        label: its title in tables.
        better: which values are better, if any are.
        summary: what summary.json has of it: the "mean" over the steps, or the "ends", NAME_first
            and NAME_last, which are means over the first and the last tenth of the steps.
        compared: whether `dvc exp show` has it, and `dvc plots` its curve.
        log: its name in the trainer's logs; "" is rapid/NAME. What follows after a / is ignored.
    """

    over: Literal["mini-batch", "passes"]
    unit: str
    label: str
    better: Literal["", "higher", "lower"] = ""
    summary: Literal["", "mean", "ends"] = ""
    compared: bool = False
    log: str = ""


class StepMetrics(Record):
    """One optimizer step. A metric is `None` where it is not defined."""

    step: Count
    seconds: Seconds = Field(description="since the training loop began")
    loss: Annotated[float, Metric("passes", unit="", label="Loss", log="loss")] = Field(
        description="the loss that was minimised"
    )
    gradient_norm: Annotated[
        float, Metric("passes", unit="", label="Gradient", log="grad_norm")
    ] = Field(description="norm of the gradient before it is clipped")
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
    ] = Field(None, ge=0, description="mean tokens per completion")
    staleness: Annotated[
        float | None,
        Metric("passes", unit="nats", label="Stale", better="lower", summary="mean", compared=True),
    ] = Field(None, description="mean |log min(w, eta)|")
    clip_fraction: Annotated[
        Share,
        Metric(
            "passes", unit="share", label="Clipped", better="lower", summary="mean", compared=True
        ),
    ] = Field(None, description="share of clipped weights or ratios")
    weight: Annotated[float | None, Metric("passes", unit="", label="Weight")] = Field(
        None, description="mean importance weight before clipping"
    )
    kl: Annotated[float | None, Metric("passes", unit="nats per token", label="KL")] = Field(
        None, description="divergence from the model before training"
    )
    run: Annotated[Share, Metric("passes", unit="share", label="Run", summary="mean")] = Field(
        None, description="share of the mini-batch with a gradient, which ran"
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
            description = f"{field.description}: the mean over {steps}"
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
