"""Supervised fine-tuning on the teacher's correct completions, by TRL's SFTTrainer."""

from typing import Annotated, Any

from pydantic import Field, PositiveFloat, PositiveInt

from rapid.algorithms.base import Algorithm, Look, Parameters, Precision


class SftParameters(Parameters):
    learning_rate: PositiveFloat
    epochs: PositiveInt
    batch: PositiveInt = Field(description="demonstrations per optimizer step")
    micro_batch: PositiveInt = Field(
        description="demonstrations per forward and backward pass, at most"
    )
    temperature: PositiveFloat = Field(description="the teacher's")
    top_p: Annotated[float, Field(gt=0, le=1, description="the teacher's")]
    samples: PositiveInt = Field(description="teacher completions per prompt; the correct are kept")
    precision: Precision = "float32"
    teacher_precision: Precision = "float32"


class Sft(Algorithm):
    name = "sft"
    label = "SFT"
    look = Look("#8C8C8C", "h", (0, (1, 1)))
    parameters = SftParameters
    H = "none"
    imitates = True

    def refused(self, params: Any, group_size: int) -> tuple[str, Any, str] | None:
        batch, processes = params.sft.batch, params.compute.processes
        if batch % processes:
            return "sft.batch", batch, f"a multiple of compute.processes, {processes}"
        return None
