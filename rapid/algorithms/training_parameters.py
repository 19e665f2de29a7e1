"""Declares the training parameters that algorithms share, with bounds and descriptions.

They are set in the section `training` of params.yaml. A variant's name can change some of them.
RapidConfig takes its bounds and help texts from here.
"""

from functools import partial
from operator import eq, not_
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt

from rapid.algorithms.base import Parameters


def _validate_count_or_auto(value: Any) -> Any:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)  # from Snakemake's --config, where numbers in a section are texts
    if value == "auto" or (type(value) is int and value > 0):
        return value
    raise ValueError("must be a whole number greater than 0, or auto")


LearningRate = Annotated[float, Field(gt=0, description="The step size of the optimizer.")]
# Names of transformers' schedules. All begin at `learning_rate`, without a warm-up; "linear" and
# "cosine" end at 0.
Schedule = Annotated[
    Literal["constant", "linear", "cosine"], Field(description="The learning rate over a run.")
]
Epochs = Annotated[int, Field(gt=0, description="Passes over the training problems.")]
NStep = Annotated[int, Field(gt=0, description="N_step: completions per optimizer step.")]
GroupSize = Annotated[int, Field(ge=2, description="N_group: completions per prompt.")]
Reuse = Annotated[
    int,
    Field(
        gt=0,
        description="How often each completion is used. The H mini-batches of an inference batch "
        "are run in order, and this is repeated: H * reuse optimizer steps.",
    ),
]
# Size of a forward and backward pass, in completions. "auto" finds it by trial passes.
MicroBatch = Annotated[PositiveInt | Literal["auto"], BeforeValidator(_validate_count_or_auto)]
Precision = Annotated[
    Literal["float32", "bfloat16"], Field(description="The precision of weights in computation.")
]
PrecisionOrAuto = Annotated[
    Literal["float32", "bfloat16", "auto"],
    Field(
        description="The precision of forward and backward passes. auto measures the speed of "
        "float32 and bfloat16 when a run begins, and chooses bfloat16 if it is at least 1.1 times "
        "as fast."
    ),
]
Checkpointing = Annotated[
    bool,
    Field(description="Recompute activations in the backward pass: less memory, more time."),
]


class TrainingParameters(Parameters):
    """Parameters of all RL algorithms."""

    learning_rate: LearningRate
    epochs: Epochs
    group_size: GroupSize
    # `exclude_if`: a parameter at its default is not written to a run's spec (rapid.config.specs).
    reuse: Reuse = Field(1, exclude_if=partial(eq, 1))
    micro_batch: MicroBatch = Field(
        description="Size of a forward and backward pass, as a number of completions of the "
        "greatest length in the inference batch. A pass may have more completions if they are "
        "shorter. It has whole groups, or a part of one group that is larger than a pass. "
        '"auto" is as many as fit in memory.'
    )
    temperature: PositiveFloat = Field(description="The temperature of sampling.")
    precision: PrecisionOrAuto = "float32"
    checkpointing: Checkpointing = Field(False, exclude_if=not_)
    # `reuse_logp` in this description is a field of RapidConfig that avoids forward passes for log
    # mu. In the pipeline it is always True.
    trust_sampler: bool | None = Field(
        None,
        exclude_if=partial(eq, None),
        description="Whether reuse_logp also uses the log-probs of a sampler in bfloat16 or "
        "float16, or of vLLM's server. They differ from the policy's by rounding: some thousandths "
        "of a nat per token (hundredths if the policy computes in float32), which add up over a "
        "completion. None (null) measures the difference on the first inference batch, and uses "
        "the sampler's log-probs if the error of log importance weights is at most 0.1 (root mean "
        "square). The first step on each inference batch measures it again. If it exceeds 0.1, "
        "later batches do not use the sampler's log-probs.",
    )
    schedule: Schedule = Field("constant", exclude_if=partial(eq, "constant"))
