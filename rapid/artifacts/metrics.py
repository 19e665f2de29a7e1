"""The metrics of training and evaluation, each declared once.

Metrics of training are the fields of `StepMetrics`; metrics of evaluation are in
`EVALUATION_METRICS`, and pass@k in `rapid.artifacts.evaluations`.

The declarations of the training metrics determine which of the trainer's logs are kept, the columns
of steps.jsonl, the statistics in summary.json and in the reports' data frame, the metrics that `dvc
exp show` compares, and the table in docs/watching.md. `rapid.training.batch_statistics` or an
algorithm's loss computes the values, which are logged as rapid/NAME or as `Metric.log`.

The importance weight w of a completion or token is its probability under the policy, divided by
that under the behaviour policy, which sampled it. RAPID clips w to at most eta.

A mini-batch holds the completions of one optimizer step. It is trained on in micro-batches, parts
that fit into memory. Groups (completions of one prompt) without a gradient are in no micro-batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import is_
from statistics import fmean
from typing import Annotated, Any, Literal

from pydantic import Field

from rapid.artifacts.files import Count, OptionalShare, Record, Seconds


@dataclass(frozen=True)
class Metric:
    """The logging, label and summary of a metric.

    The annotated field has the name and the description of the metric.

    Args:
        over: what the value is averaged over. In training: the mini-batch, or only the
            micro-batches that were trained on. In an evaluation: completions, tokens or problems.
        unit: unit of the values; "" for a number without unit.
        label: title in tables.
        better: whether higher or lower values are better; "" if neither is.
        summary: statistics in summary.json. "mean": the mean over the steps. "ends": NAME_first and
            NAME_last, the means over the first and the last tenth of the steps. "": none.
        compared: whether `dvc exp show` lists the metric and `dvc plots` draws its curve.
        log: name in the trainer's logs; "" stands for rapid/NAME. The value may also be logged
            under this name with a suffix, such as rapid/accuracy/math.
    """

    over: Literal["mini-batch", "micro-batches", "completions", "tokens", "problems"]
    unit: str
    label: str
    better: Literal["", "higher", "lower"] = ""
    summary: Literal["", "mean", "ends"] = ""
    compared: bool = False
    log: str = ""


class StepMetrics(Record):
    """Metrics of one optimizer step. A metric that the algorithm does not define is None."""

    step: Count = Field(description="number of the optimizer step, from 1")
    seconds: Seconds = Field(description="training time when the step ended")
    loss: Annotated[float, Metric("micro-batches", unit="", label="Loss", log="loss")] = Field(
        description="loss of the algorithm"
    )
    gradient_norm: Annotated[
        float, Metric("micro-batches", unit="", label="Gradient", log="grad_norm")
    ] = Field(description="gradient norm before clipping")
    # Logged as accuracy: the mean of rewards of 0 and 1 is the share of correct completions.
    reward: Annotated[
        OptionalShare,
        Metric(
            "mini-batch",
            unit="share",
            label="Reward",
            better="higher",
            summary="ends",
            compared=True,
            log="rapid/accuracy",
        ),
    ] = Field(None, description="mean reward by the first reward function")
    signal: Annotated[OptionalShare, Metric("mini-batch", unit="share", label="Signal")] = Field(
        None, description="share of groups whose rewards differ"
    )
    completion_length: Annotated[
        float | None,
        Metric("mini-batch", unit="tokens", label="Length", summary="mean", log="rapid/length"),
    ] = Field(None, ge=0, description="mean number of tokens in a completion")
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
    ] = Field(
        None, description="mean |log w| of the importance weights w (RAPID: |log min(w, eta)|)"
    )
    clip_fraction: Annotated[
        OptionalShare,
        Metric(
            "micro-batches",
            unit="share",
            label="Clipped",
            better="lower",
            summary="mean",
            compared=True,
        ),
    ] = Field(None, description="share of importance weights that are clipped")
    weight: Annotated[float | None, Metric("micro-batches", unit="", label="Weight")] = Field(
        None,
        description="mean of the importance weight before clipping, or of the factor that an "
        "algorithm has in its place",
    )
    kl: Annotated[float | None, Metric("micro-batches", unit="nats per token", label="KL")] = Field(
        None, description="KL divergence from the reference policy"
    )
    # Completions are "run" if they are in a forward and backward pass; elsewhere a run is a
    # training run. The value is a share of the whole mini-batch. Still `over` is "micro-batches",
    # because the value is computed together with the means over micro-batches.
    run: Annotated[
        OptionalShare, Metric("micro-batches", unit="share", label="Trained", summary="mean")
    ] = Field(
        None,
        description="share of completions trained on: those whose group has a gradient",
    )


class DiversityMetrics(Record):
    """Metrics of an evaluation with `evaluation.diversity`. Missing values are not written."""

    entropy: Annotated[float | None, Metric("tokens", unit="nats", label="Entropy")] = Field(
        None,
        exclude_if=partial(is_, None),
        description="mean entropy of the distribution of the next token, at the temperature of "
        "sampling",
    )
    distinct: Annotated[OptionalShare, Metric("problems", unit="share", label="Distinct")] = Field(
        None,
        exclude_if=partial(is_, None),
        description="number of different completions of a problem, divided by the number of all",
    )
    distinct_correct: Annotated[
        float | None, Metric("problems", unit="", label="Distinct solutions")
    ] = Field(
        None,
        ge=0,
        exclude_if=partial(is_, None),
        description="number of different correct completions of a problem",
    )


def _collect_metrics(record: type[Record]) -> dict[str, Metric]:
    """Return the metrics that a record declares, by name."""
    return {
        name: annotation
        for name, field in record.model_fields.items()
        for annotation in field.metadata
        if isinstance(annotation, Metric)
    }


METRICS = _collect_metrics(StepMetrics)
# Metrics of an evaluation besides pass@k, and their descriptions. `Evaluation` derives "unparsable"
# from its counts of verdicts.
EVALUATION_METRICS = {
    "unparsable": Metric("completions", unit="share", label="Unparsable", better="lower"),
    **_collect_metrics(DiversityMetrics),
}
EVALUATION_DESCRIPTIONS = {
    "unparsable": "share of graded completions that are no program, proof or expression",
    **{name: field.description for name, field in DiversityMetrics.model_fields.items()},
}
COMPARED = tuple(name for name, metric in METRICS.items() if metric.compared)
# `Metric.summary` -> suffix of a statistic's name -> the steps that the statistic averages.
STATISTICS: dict[str, dict[str, str]] = {
    "": {},
    "mean": {"": "all steps"},
    "ends": {"_first": "the first tenth of the steps", "_last": "the last tenth of the steps"},
}


def select_metrics(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Return each declared metric from the trainer's logs of a step; None if it was not logged."""
    return {
        name: next((logs[key] for key in logs if key == log or key.startswith(f"{log}/")), None)
        for name, metric in METRICS.items()
        for log in [metric.log or f"rapid/{name}"]
    }


def build_summary_fields() -> dict[str, Any]:
    """Return the fields of summary.json that hold statistics, as a type and a default by name.

    Means over all steps come first, then those over the first and last tenth of the steps. Within
    each of these two parts, metrics over micro-batches come before metrics over mini-batches.
    """

    def sort_key(name: str) -> tuple[bool, bool]:
        return METRICS[name].summary == "ends", METRICS[name].over == "mini-batch"

    summary_fields: dict[str, Any] = {}
    for name in sorted(METRICS, key=sort_key):
        field = StepMetrics.model_fields[name]
        for suffix, steps in STATISTICS[METRICS[name].summary].items():
            description = f"{field.description}, averaged over {steps}"
            default = Field(None, description=description)
            summary_fields[f"{name}{suffix}"] = (field.rebuild_annotation(), default)
    return summary_fields


def summarize_steps(steps: Sequence[StepMetrics]) -> dict[str, float | None]:
    """Return the statistics of a run's steps, by their names in summary.json.

    A statistic is None if no step has the metric.
    """
    tenth = max(1, len(steps) // 10)
    steps_by_suffix = {"": steps, "_first": steps[:tenth], "_last": steps[-tenth:]}
    statistics: dict[str, float | None] = {}
    for name, metric in METRICS.items():
        for suffix in STATISTICS[metric.summary]:
            values = [getattr(step, name) for step in steps_by_suffix[suffix]]
            values = [value for value in values if value is not None]
            statistics[f"{name}{suffix}"] = fmean(values) if values else None
    return statistics
