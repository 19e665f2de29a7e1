"""The weight sync of a vLLM engine that lives in the trainer's process."""

import torch
from trl.generation.vllm_generation import VLLMGeneration

from rapid.training.clock import PhaseClock


def dtype(generation: VLLMGeneration) -> torch.dtype | None:
    """What the engine computes in; None of an engine on another server, which does not say."""
    if generation.mode != "colocate":
        return None
    return generation.llm.llm_engine.model_config.dtype


def mend_weight_sync(generation: VLLMGeneration, in_one_call: bool, clock: PhaseClock) -> None:
    """Make `generation.sync_weights` right on CPUs, and fast everywhere.

    TRL loads one tensor at a time. On CPUs that fails, for vLLM has packed the linear layers for its
    kernels: they have to be reloaded, and packed again.
    """
    raise NotImplementedError
