"""GRPO that samples completions in batches as small as those of its training (paper, Figure 1)."""

from typing import Any

from pydantic import Field, PositiveInt

from rapid.algorithms.base import Look, Parameters
from rapid.algorithms.grpo import Grpo, GrpoParameters


class NaiveGrpoSection(Parameters):
    sampling_batch: PositiveInt = Field(description="Completions sampled at a time.")


class NaiveGrpo(Grpo):
    """Naive GRPO: the loss and its parameters are GRPO's, only the sampling differs.

    It samples `sampling_batch` completions at a time, where GRPO samples the whole inference batch
    at once.
    """

    name = "naive-grpo"
    label = "naive GRPO"
    look = Look("#56B4E9", "s", (0, (4, 2)))
    section = NaiveGrpoSection
    H = "none"
    samples_from_a_server = True

    @property
    def hyperparameter_rows(self) -> dict[str, str]:
        return {"completions sampled at a time": "sampling_batch"}

    def select_objective(self, params: Any) -> GrpoParameters:
        return params.grpo

    def sampling_batch(self, params: Any) -> int:
        return params.naive_grpo.sampling_batch

    def config_error(self, params: Any, group_size: int) -> tuple[str, Any, str] | None:
        sampled = self.sampling_batch(params)
        if params.compute.sampler == "vllm" and sampled % group_size:
            reason = (
                f"must be a multiple of {group_size}, the group size, because vLLM samples whole "
                "groups"
            )
            return "naive_grpo.sampling_batch", sampled, reason
        return None
