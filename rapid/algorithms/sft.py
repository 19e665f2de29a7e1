"""Supervised fine-tuning (SFT).

Demonstrations are a teacher's correct completions, or are written by the generator of the problems.
`rapid.training.sft` has the trainer; the loss is that of TRL's SFTTrainer.
"""

from functools import partial
from operator import eq, not_
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from rapid.algorithms.base import Algorithm, Parameters, PlotStyle
from rapid.algorithms.training_parameters import (
    Checkpointing,
    Epochs,
    LearningRate,
    MicroBatch,
    Precision,
    PrecisionOrAuto,
    Schedule,
)


class SftParameters(Parameters):
    learning_rate: LearningRate
    epochs: Epochs
    batch: PositiveInt = Field(description="demonstrations per optimizer step")
    micro_batch: MicroBatch = Field(
        description="demonstrations per forward and backward pass; auto is as many as fit in memory"
    )
    temperature: PositiveFloat = Field(description="sampling temperature of the teacher")
    top_p: Annotated[float, Field(gt=0, le=1, description="nucleus sampling of the teacher")]
    samples: PositiveInt = Field(
        description="teacher completions per prompt; the correct ones are kept"
    )
    # `exclude_if`: a parameter at its default is not written to a run's spec.
    demonstrations: NonNegativeInt = Field(
        0,
        exclude_if=not_,
        description="number of generated demonstrations; 0 trains on the teacher's completions",
    )
    error_rate: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0,
        exclude_if=not_,
        description="share of generated demonstrations with a deliberate mistake",
    )
    checkpointing: Checkpointing = Field(False, exclude_if=not_)
    precision: PrecisionOrAuto = "float32"
    teacher_precision: Precision = "float32"
    schedule: Schedule = Field("constant", exclude_if=partial(eq, "constant"))


class Sft(Algorithm):
    name = "sft"
    label = "SFT"
    plot_style = PlotStyle("#8C8C8C", "h", (0, (1, 3)))
    parameters = SftParameters
    h_in_name = "none"
    is_supervised = True

    def find_config_error(self, params: Any, group_size: int) -> tuple[str, Any, str] | None:
        """Return an error if `sft.batch` cannot be divided among processes; see `Algorithm`."""
        batch, processes = params.sft.batch, params.compute.processes
        if batch % processes:
            reason = f"must be a multiple of {processes}, which is compute.processes"
            return "sft.batch", batch, reason
        return None
