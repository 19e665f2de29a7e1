"""Schema of the files that a training run writes in addition to its model.

The name of a run's algorithm, such as rapid-H4, contains H: the number of optimizer steps per
inference batch (the completions that are sampled together). It also contains the parameters that
differ from params.yaml (changes).
"""

from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, create_model, model_validator

from rapid.artifacts.files import ROUNDING, Count, Record, Seconds, read_json, read_jsonl
from rapid.artifacts.metrics import StepMetrics, build_summary_fields

# In a run's folder: models saved during training for evaluation, and the record `TokenWeights`.
SNAPSHOTS, TOKEN_WEIGHTS = "snapshots", "token_weights.json"
# While the run is under way: the folder of checkpoints to resume from, and a file in each of them.
CHECKPOINTS, PROGRESS = "checkpoints", "progress.jsonl"


class StepRecord(StepMetrics):
    """steps.jsonl: one optimizer step, its metrics, and the seconds that each phase took."""

    sampling: float | None = Field(None, description="time of sampling in this step")
    grading: float | None = Field(None, description="time of waiting for verdicts")
    backpropagation: float | None = Field(
        None, description="time of forward and backward passes and of the optimizer"
    )
    sync: float | None = Field(None, description="time of copying the weights to vLLM")


# The phases of a step: sampling, grading, backpropagation, sync. Their fields are in seconds.
PHASES = tuple(name for name in StepRecord.model_fields if name not in StepMetrics.model_fields)


class Progress(StepRecord):
    """progress.jsonl: one step of a run that is under way, for displays such as `rapid watch`."""

    total_steps: Count = Field(description="number of steps of the whole run")


def read_progress(run: Path) -> list[Progress]:
    """Return the steps of a run that is under way; [] before it begins and after it ends."""
    return [
        step
        for file in run.glob(f"{CHECKPOINTS}/*/{PROGRESS}")
        for step in read_progress_file(file)
    ]


def read_progress_file(file: Path) -> list[Progress]:
    """Return the steps in a progress file; [] if there is no file."""
    steps = []
    with suppress(OSError):  # the run may end and delete the file at any moment
        for line in file.read_bytes().splitlines():
            with suppress(ValidationError):  # the last line may be half written
                steps.append(Progress.model_validate_json(line))
    return steps


class Runtime(Record):
    """Wall-clock seconds of a training job, by phase.

    `startup` (imports, loading the model, starting the grader) comes before the training loop and
    is not part of `total`.
    """

    total: Seconds = Field(
        description="time of the training loop: the sum of the five phases sampling to other"
    )
    sampling: Seconds = Field(0.0, description="time of sampling")
    grading: Seconds = Field(0.0, description="time of waiting for verdicts")
    backpropagation: Seconds = Field(
        0.0, description="time of forward and backward passes and of the optimizer"
    )
    sync: Seconds = Field(0.0, description="time of copying the weights to vLLM")
    other: float = Field(0.0, description="time of the training loop that is in no other phase")
    startup: Seconds = Field(
        0.0, description="time of imports and loading before the training loop; not part of total"
    )

    @model_validator(mode="after")
    def _check_phases(self):
        phases = self.sampling + self.grading + self.backpropagation + self.sync + self.other
        if not abs(phases - self.total) <= ROUNDING * self.total:
            raise ValueError(f"total: {self.total} s, but its phases take {phases} s")
        if self.other < -self.total / 100:
            raise ValueError(
                f"other: {self.other} s is below 0: sampling, grading, backpropagation and sync "
                "together take longer than total"
            )
        return self


class _BeforeMetrics(Record):
    """The keys of summary.json that come before the statistics of metrics."""

    benchmark: str = Field(description="name of the benchmark")
    model: str = Field(description="name of the model in params.yaml")
    algorithm: str = Field(description="name of the algorithm, with H and changed parameters")
    seed: int = Field(description="seed of the run")
    status: Literal["ok", "unavailable"] = Field(
        "ok", description="`ok`, or `unavailable` if nothing was trained"
    )
    note: str = Field("", description="why the status is `unavailable`")
    runtime: Runtime | None = Field(None, description="wall-clock seconds, by phase")
    cpu: float | None = Field(
        None, description="CPU seconds of the process and its descendants in the training loop"
    )
    waited: float | None = Field(
        None, description="seconds in which another process used the run's core, outside grading"
    )
    stolen: float | None = Field(
        None,
        description="seconds in which the host ran other virtual machines, averaged over cores",
    )
    disturbed: bool = Field(
        False, description="whether `waited` and `stolen` together exceed 20 % of the training loop"
    )
    attempt: int = Field(
        1, description="number of the attempt, from 1; some disturbed runs are repeated"
    )
    interrupted: Count = Field(0, description="how often the run was interrupted and resumed")
    lost: Seconds = Field(
        0.0, description="seconds of steps that were lost and repeated; not part of runtime"
    )
    optimizer_steps: Count = Field(0, description="number of optimizer steps")
    completions: Count = Field(
        0,
        description="number of sampled completions, including those that dynamic sampling replaced",
    )


class _AfterMetrics(_BeforeMetrics):
    """The keys of summary.json that come after the statistics of metrics."""

    reasons: dict[str, Count] = Field(
        default_factory=dict, description="number of verdicts by reason"
    )
    peak_memory_mb: float = Field(
        0.0,
        ge=0,
        description="peak memory in 1e6 bytes: GPU memory, or on a CPU the resident memory",
    )
    precision: str = Field("", description="the precision of forward and backward passes")
    pass_completions: Count = Field(
        0,
        description="number of full-length completions in a micro-batch that `micro_batch: auto` "
        "chose; 0 without `auto`",
    )
    halvings: Count = Field(
        0, description="how often micro-batches were halved because memory ran out"
    )
    hardware: str = Field("", description="name and number of GPUs, or of processor cores")
    commit: str = Field(
        "", description="git commit of the code, with +dirty if tracked files differ from it"
    )


_Metrics: Any = create_model("_Metrics", __base__=_BeforeMetrics, **build_summary_fields())


class RunSummary(_AfterMetrics, _Metrics):
    """summary.json of a training job.

    The statistics of metrics (`rapid.artifacts.metrics`) are means over optimizer steps, as in the
    paper's Table 3. Their fields are between those of `_BeforeMetrics` and `_AfterMetrics`.
    """


def had_no_signal(run: Path) -> bool:
    """Return whether all rewards were equal in each group of a run.

    Returns False if the algorithm has no rewards.

    Raises:
        BadFile: steps.jsonl is damaged.
    """
    steps = read_jsonl(run / "steps.jsonl", StepRecord)
    # By step, the share of groups whose rewards differ.
    signals = [step.signal for step in steps if step.signal is not None]
    return bool(signals) and not any(signals)


def explain_untrained(model: Path) -> str:
    """Return why the run that should have written this model trained nothing.

    Returns "" if the run did train, or if no run writes this model.
    """
    summary = model.with_name("summary.json")
    return read_json(summary, RunSummary).note if summary.is_file() else ""


class TokenWeights(Record):
    """token_weights.json: importance weights of the tokens of one completion.

    The completion is from the last optimizer step of a run. A weight is pi / mu: the token's
    probability under the policy, divided by that under the behaviour policy, which sampled it.
    """

    tokens: list[str] = Field(min_length=1, description="the completion's tokens, as text")
    log_weights: list[float] = Field(description="log pi - log mu, nats, one per token")
    H: int
    step: int = Field(description="optimizer step, from 1")
    benchmark: str
    id: str = Field(description="id of the problem")

    @model_validator(mode="after")
    def _check_lengths(self):
        if len(self.tokens) != len(self.log_weights):
            raise ValueError(
                f"{len(self.tokens)} tokens, but {len(self.log_weights)} log_weights: one per token"
            )
        return self
