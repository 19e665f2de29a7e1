"""Naive GRPO (paper, Figure 1): it samples few completions at a time, in the paper N_step.

N_step is the number of completions per optimizer step.
"""

from typing import Any

from pydantic import Field, PositiveInt

from rapid.algorithms.base import Parameters, PlotStyle
from rapid.algorithms.grpo import Grpo, GrpoParameters


class NaiveGrpoSection(Parameters):
    sampling_batch: PositiveInt = Field(description="Completions sampled at a time.")


class NaiveGrpo(Grpo):
    """GRPO that samples `sampling_batch` completions at a time, not a whole inference batch.

    Its loss and the parameters of the loss are GRPO's.
    """

    name = "naive-grpo"
    label = "naive GRPO"
    plot_style = PlotStyle("#56B4E9", "s", (0, (4, 2)))
    section = NaiveGrpoSection
    h_in_name = "none"
    uses_vllm_server = True

    @property
    def hyperparameter_rows(self) -> dict[str, str]:
        return {"completions sampled at a time": "sampling_batch"}

    def get_loss_parameters(self, params: Any) -> GrpoParameters:
        return params.grpo

    def get_sampling_batch_size(self, params: Any) -> int:
        return params.naive_grpo.sampling_batch

    def find_config_error(self, params: Any, group_size: int) -> tuple[str, Any, str] | None:
        batch_size = self.get_sampling_batch_size(params)
        if params.compute.sampler == "vllm" and batch_size % group_size:
            reason = (
                f"must be a multiple of {group_size}, the group size, because vLLM samples whole "
                "groups"
            )
            return "naive_grpo.sampling_batch", batch_size, reason
        return None
