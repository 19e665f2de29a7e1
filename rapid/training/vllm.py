"""A vLLM engine in the trainer's process: built like the policy, and given its weights.

TRL builds the engine and owns it. Put right here, around it, is what it would not say or do: the
engine's precision, its seed, and the weight sync on CPUs.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from trl.generation import vllm_generation
from trl.generation.vllm_generation import VLLMGeneration

from rapid.training.clock import PhaseClock

MIXED = {"bf16": torch.bfloat16, "fp16": torch.float16}  # accelerate's names
# Else vLLM takes a share of the machine's memory, or fails where that is not free.
CPU_KVCACHE_GIB = 2


def engine_dtype(generation: VLLMGeneration) -> torch.dtype | None:
    """What the engine computes in; None of an engine on another server, which does not say."""
    if generation.mode != "colocate":
        return None
    return generation.llm.llm_engine.model_config.dtype


# Building ---------------------------------------------------------------------------------------------


@contextmanager
def engine_like_the_policy(seed: int) -> Iterator[None]:
    """Meanwhile, TRL builds its engine to compute in what the policy computes in, and from `seed`.

    TRL asks for neither. Of a model saved in float32 vLLM by itself makes bfloat16, and its
    log-probabilities are some hundredths of a nat off at every token. And vLLM seeds all random
    generators of the process, with the same number in every run: all would sample with one noise.

    Changes nothing where no engine is built in this process.
    """
    initialize = VLLMGeneration._init_vllm

    def initialize_like_the_policy(generation: VLLMGeneration) -> None:
        if generation.mode != "colocate" or not hasattr(vllm_generation, "LLM"):
            initialize(generation)  # the server has its own settings; without vLLM TRL says so
            return
        # Ranks that share a tensor-parallel engine have to sample alike.
        rank = generation.accelerator.process_index // generation.tensor_parallel_size
        llm = vllm_generation.LLM
        alike = {"dtype": _policy_dtype(generation), "seed": seed + rank}
        prepare_environment()
        with _replaced(vllm_generation, "LLM", lambda **asked: llm(**asked | alike)):
            initialize(generation)

    with _replaced(VLLMGeneration, "_init_vllm", initialize_like_the_policy):
        yield


def _policy_dtype(generation: VLLMGeneration) -> torch.dtype:
    """What the policy's forward pass computes in; float32 for float64, which vLLM does not know."""
    computed = MIXED.get(generation.accelerator.mixed_precision, generation.model.dtype)
    return torch.float32 if computed == torch.float64 else computed


def prepare_environment() -> None:
    """Say how much memory vLLM may cache keys and values in on CPUs, unless the user has said it."""
    if not torch.cuda.is_available():
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(CPU_KVCACHE_GIB))


@contextmanager
def _replaced(owner, name: str, value) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


# Weights ----------------------------------------------------------------------------------------------


def mend_weight_sync(generation: VLLMGeneration, in_one_call: bool, clock: PhaseClock) -> None:
    """Make `generation.sync_weights` right on CPUs, fast elsewhere, and count its time to "sync".

    Args:
        in_one_call: hand the engine all weights in one call, as its loader is made for; else one
            tensor at a time, as TRL does. On CPUs it is always one call (see `_reload`). A server
            gets its weights as TRL sends them.
    """
    sync = generation.sync_weights
    if generation.mode == "colocate" and _on_cpu():
        sync = partial(_sync, generation, _reload)
    elif generation.mode == "colocate" and in_one_call:
        sync = partial(_sync, generation, _load)

    def timed_sync() -> None:
        with clock.phase("sync"):
            sync()

    generation.sync_weights = timed_sync


def _on_cpu() -> bool:
    from vllm.platforms import current_platform

    return current_platform.is_cpu()


def _sync(generation: VLLMGeneration, give: Callable[[VLLMGeneration], None]) -> None:
    """TRL's `sync_weights` in the same process, but for how the weights are given."""
    if generation.enable_sleep_mode:  # weights must not be written to memory that was unmapped
        vllm_generation.empty_cache()
        generation.llm.wake_up(tags=["weights"])
        generation._llm_weights_sleeping = False
    give(generation)
    generation.llm.reset_prefix_cache()


def _load(generation: VLLMGeneration) -> None:
    _runner(generation).model.load_weights(generation._iter_named_params())


def _reload(generation: VLLMGeneration) -> None:
    """Give the weights to an engine on CPUs, which keeps them packed for its kernels.

    What is packed cannot be loaded into ("no attribute 'weight_loader'"): vLLM has to unpack its
    layers, load, and pack again. It does so with the whole model, and of a layer that was given in
    part (q_proj of qkv_proj) the rest is lost. Hence not one tensor at a time.
    """
    runner = _runner(generation)
    # vLLM keeps tensors until their layer is complete. TRL lends them only: it may have gathered them
    # for the moment, or merged an adapter that it takes out again.
    weights = ((name, tensor.clone()) for name, tensor in generation._iter_named_params())
    runner.reload_weights(weights_iterator=weights)
    _pack_heads(runner.get_model())


def _pack_heads(model: torch.nn.Module) -> None:
    """Pack the LM head again where it shares the embedding's weights.

    Nothing was loaded into such a head by its own name, so vLLM leaves its packed copy as it was:
    without this, and without a word, completions are sampled with the head of the model's folder.
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


def _runner(generation: VLLMGeneration):
    return generation.llm.llm_engine.model_executor.driver_worker.model_runner
