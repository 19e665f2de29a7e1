"""The vLLM engine that TRL builds and owns in the trainer's process.

Around TRL's calls, this does what TRL does not: give the engine the policy's precision and the
run's seed, give it all weights at once, and sync weights on CPUs.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from unittest.mock import patch

import torch
from trl.generation import vllm_generation
from trl.generation.vllm_generation import VLLMGeneration

from rapid.training.clock import PhaseClock

MIXED_PRECISION_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}  # accelerate's names
# Else vLLM takes a share of the machine's memory, or fails where that is not free.
CPU_KVCACHE_GIB = 2
# Tokens of a block of vLLM's cache on a CPU, the fewest that it takes. It computes a group's prompt
# once up to its last whole block; its own 128 are more than most prompts have.
CPU_BLOCK = 32


def engine_dtype(generation: VLLMGeneration) -> torch.dtype | None:
    """Return what the engine computes in; None for a server, which does not say."""
    if generation.mode != "colocate":
        return None
    return generation.llm.llm_engine.model_config.dtype


# Building -----------------------------------------------------------------------------------------


@contextmanager
def match_engine_to_policy(seed: int) -> Iterator[None]:
    """Let TRL meanwhile build its engine with the policy's precision, and with this seed.

    TRL asks for neither. A model saved in float32 becomes bfloat16 in vLLM, whose log-probabilities
    are then some hundredths of a nat off at every token. And vLLM seeds all random generators of
    the process, with the same number in every run: all would sample with the same noise.

    Nothing changes where no engine is built in this process.
    """
    initialize = VLLMGeneration._init_vllm

    def initialize_matching_policy(generation: VLLMGeneration) -> None:
        if generation.mode != "colocate" or not hasattr(vllm_generation, "LLM"):
            initialize(generation)  # the server has its own settings; without vLLM TRL says so
            return
        # Ranks that share a tensor-parallel engine have to sample alike.
        rank = generation.accelerator.process_index // generation.tensor_parallel_size
        llm = vllm_generation.LLM
        settings = {"dtype": _policy_dtype(generation), "seed": seed + rank} | prepare_engine()
        with patch.object(vllm_generation, "LLM", lambda **named: llm(**named | settings)):
            initialize(generation)

    with patch.object(VLLMGeneration, "_init_vllm", initialize_matching_policy):
        yield


def _policy_dtype(generation: VLLMGeneration) -> torch.dtype:
    """Return what the policy computes in; float32 for float64, which vLLM does not know."""
    computed = MIXED_PRECISION_DTYPES.get(
        generation.accelerator.mixed_precision, generation.model.dtype
    )
    return torch.float32 if computed == torch.float64 else computed


def prepare_engine() -> dict[str, int]:
    """Return what an engine here needs to be told, and set what it reads from the environment.

    On CPUs that is how much memory vLLM may use for its cache, unless the user has set it. vLLM
    0.31 cannot load what it compiled ahead of time for a CPU, and compiles it in each process
    again: a minute for 135 million parameters. Its older cache is loaded, in a quarter of that.
    """
    if torch.cuda.is_available():
        return {}
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(CPU_KVCACHE_GIB))
    os.environ.setdefault("VLLM_USE_AOT_COMPILE", "0")
    return {"block_size": CPU_BLOCK}


# Weights ------------------------------------------------------------------------------------------


def patch_weight_sync(generation: VLLMGeneration, clock: PhaseClock) -> None:
    """Make `generation.sync_weights` right on CPUs, fast elsewhere, and count its time to "sync".

    TRL hands the engine one tensor at a time; its loader is made for all in one call. A server gets
    its weights as TRL sends them.
    """
    sync = generation.sync_weights
    if generation.mode == "colocate":
        sync = partial(
            _sync_weights,
            generation,
            _load_weights if torch.cuda.is_available() else _reload_weights,
        )

    def timed_sync() -> None:
        with clock.phase("sync"):
            sync()

    generation.sync_weights = timed_sync  # type: ignore[method-assign] # TRL has no hook for it


def _sync_weights(generation: VLLMGeneration, give: Callable[[VLLMGeneration], None]) -> None:
    """Do what TRL's `sync_weights` does in this process, but for how weights are given."""
    if generation.enable_sleep_mode:  # weights must not be written to memory that was unmapped
        vllm_generation.empty_cache()
        generation.llm.wake_up(tags=["weights"])
        generation._llm_weights_sleeping = False
    give(generation)
    generation.llm.reset_prefix_cache()


def _load_weights(generation: VLLMGeneration) -> None:
    _model_runner(generation).model.load_weights(generation._iter_named_params())


def _reload_weights(generation: VLLMGeneration) -> None:
    """Give the weights to an engine on CPUs, which keeps them packed for its kernels.

    Packed weights cannot be loaded into ("no attribute 'weight_loader'"): vLLM has to unpack its
    layers, load, and pack again. It does so with the whole model, and of a layer that was given in
    part (q_proj of qkv_proj) the rest is lost. Hence not one tensor at a time.
    """
    runner = _model_runner(generation)
    # vLLM keeps tensors until their layer is complete, but TRL may have gathered them for the
    # moment only, or merged an adapter that it takes out again.
    weights = ((name, tensor.clone()) for name, tensor in generation._iter_named_params())
    runner.reload_weights(weights_iterator=weights)
    _pack_heads(runner.get_model())


def _pack_heads(model: torch.nn.Module) -> None:
    """Pack the LM head again where it shares the embedding's weights.

    Nothing is loaded into such a head by its own name, so vLLM leaves its packed copy as it was.
    Completions would be sampled with the head of the model's folder, and nothing would say so.
    """
    from vllm.model_executor.layers.vocab_parallel_embedding import (
        ParallelLMHead,
        UnquantizedEmbeddingMethod,
    )

    for module in model.modules():
        if isinstance(module, ParallelLMHead) and isinstance(
            module.quant_method, UnquantizedEmbeddingMethod
        ):
            module.quant_method.process_weights_after_loading(module)


def _model_runner(generation: VLLMGeneration):
    return generation.llm.llm_engine.model_executor.driver_worker.model_runner
