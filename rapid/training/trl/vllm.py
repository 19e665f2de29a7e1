"""Patches for the vLLM engine that TRL creates in the trainer's process ("colocate" mode).

TRL does not pass the policy's precision and the run's seed to the engine. It returns completions
only when the last one of a batch has ended. It passes weights to the engine one tensor at a time,
which is slow on GPUs and fails on CPUs. The functions here wrap or replace TRL's calls to change
all this.
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

MIXED_PRECISION_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}  # keys: accelerate's
# GiB of memory for vLLM's key-value cache on a CPU. By default vLLM takes a share of the machine's
# memory, and fails if that much is not free.
CPU_KVCACHE_GIB = 2
# Tokens per block of vLLM's key-value cache on a CPU: the smallest number that vLLM accepts. The
# completions of a group share their prompt's whole blocks, and most prompts are shorter than the
# default of 128 tokens.
CPU_BLOCK = 32
# Value of vLLM's --logprobs-mode: log-probabilities at the temperature of sampling.
PROCESSED_LOGPROBS = "processed_logprobs"


def get_engine_dtype(generation: VLLMGeneration) -> torch.dtype | None:
    """Return the precision in which the engine computes; None for a server, where it is unknown."""
    if generation.mode != "colocate":
        return None
    return generation.llm.llm_engine.model_config.dtype


# Building -----------------------------------------------------------------------------------------


@contextmanager
def match_engine_to_policy(seed: int) -> Iterator[None]:
    """Within this context, let TRL create its engine with the policy's precision and this seed.

    TRL passes neither. By default vLLM loads a float32 model in bfloat16. Its log-probabilities
    then differ from the policy's by some hundredths of a nat per token; in equal precision they
    differ by at most some thousandths (`rapid.training.sampler_check`). vLLM also seeds all random
    generators of the process with a constant, so that all runs would sample with the same noise.

    Nothing changes if no engine is created in this process.
    """
    initialize = VLLMGeneration._init_vllm

    def initialize_matching_policy(generation: VLLMGeneration) -> None:
        if generation.mode != "colocate" or not hasattr(vllm_generation, "LLM"):
            # A server has settings of its own. If vLLM is not installed, TRL raises an error.
            initialize(generation)
            return
        # Processes that share a tensor-parallel engine have to draw the same random numbers.
        engine_index = generation.accelerator.process_index // generation.tensor_parallel_size
        llm, dtype = vllm_generation.LLM, _get_policy_dtype(generation)
        settings = {"dtype": dtype, "seed": seed + engine_index} | prepare_engine()
        with patch.object(vllm_generation, "LLM", lambda **kwargs: llm(**kwargs | settings)):
            initialize(generation)

    with patch.object(VLLMGeneration, "_init_vllm", initialize_matching_policy):
        yield


def _get_policy_dtype(generation: VLLMGeneration) -> torch.dtype:
    """Return the precision in which the policy computes; float32 for float64, which vLLM lacks."""
    computed = MIXED_PRECISION_DTYPES.get(
        generation.accelerator.mixed_precision, generation.model.dtype
    )
    return torch.float32 if computed == torch.float64 else computed


def prepare_engine() -> dict[str, int]:
    """Return further arguments for an engine on CPUs, and set vLLM's environment variables.

    Variables that the user has set are kept. On a GPU there are no further arguments, and one
    variable is set: vLLM samples with its own kernels. By default it samples with FlashInfer's if
    top-p or top-k is used, and tries them at the engine's start. FlashInfer compiles them with
    nvcc, and fails on machines where it does not find CUDA's compiler, such as those with PyTorch's
    CUDA libraries only.

    On CPUs two variables are set: the memory for vLLM's key-value cache, and the choice of vLLM's
    older compile cache. vLLM 0.31 cannot load what it compiled ahead of time for a CPU, and
    compiles again in each process, which takes a minute for 135 million parameters. Loading from
    the older cache takes a quarter of this time.
    """
    if torch.cuda.is_available():
        os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
        return {}
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(CPU_KVCACHE_GIB))
    os.environ.setdefault("VLLM_USE_AOT_COMPILE", "0")
    return {"block_size": CPU_BLOCK}


def refuse_unprocessed_logprobs(generation: VLLMGeneration, temperature: float) -> None:
    """Raise an error if a server returns other log-probabilities than those it samples from.

    vLLM's default, "raw_logprobs", ignores the temperature. An engine in this process gets
    "processed_logprobs" from TRL. Only the main process is connected to the server.

    Raises:
        ValueError: the server has to be started with another option.
    """
    if generation.mode != "server" or not generation.accelerator.is_main_process:
        return
    mode = generation.vllm_client.get_server_info()["model_config"].get("logprobs_mode")
    allowed = {PROCESSED_LOGPROBS, None} | ({"raw_logprobs"} if temperature == 1 else set())
    if mode not in allowed:
        raise ValueError(
            f"vLLM's server returns {mode}, which are not the log-probabilities that it samples "
            f"from at temperature={temperature:g}: start it with --logprobs-mode "
            f"{PROCESSED_LOGPROBS}, as `trl vllm-serve` does"
        )


# Sampling -----------------------------------------------------------------------------------------


@contextmanager
def report_ended_completions(
    generation: VLLMGeneration, on_end: Callable[[int, list[int]], None] | None
) -> Iterator[list[torch.Tensor]]:
    """Within this context, report each completion of the engine's next batch as soon as it ends.

    `LLM.generate` numbers its requests in the order of the prompts, and returns the completions of
    all of them together. Nothing is reported for a server, or for an engine that processes share
    (tensor parallelism), whose batch also has the prompts of other processes.

    Args:
        on_end: called with the index of the prompt and the completion's tokens; None reports
            nothing.

    Yields:
        The list of recorded log-probabilities, as `use_decoder` does. It stays empty, because TRL
        returns vLLM's log-probabilities together with the completions.
    """
    if on_end is None or generation.mode != "colocate" or generation.tensor_parallel_size > 1:
        yield []
        return
    engine, first = generation.llm.llm_engine, generation.llm.request_counter.counter
    step = engine.step

    def step_and_report() -> list:
        outputs = step()
        for output in outputs:
            if output.finished:
                on_end(int(output.request_id) - first, [*output.outputs[0].token_ids])
        return outputs

    with patch.object(engine, "step", step_and_report):
        yield []


# Weights ------------------------------------------------------------------------------------------


def patch_weight_sync(generation: VLLMGeneration, clock: PhaseClock) -> None:
    """Replace `generation.sync_weights`, and count its time as the phase "sync".

    TRL calls the engine's weight loader once per tensor. That is slow on GPUs, because the loader
    expects all tensors in one call, and fails on CPUs: see `_reload_weights`. To a server TRL still
    sends the weights itself.
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


def _sync_weights(generation: VLLMGeneration, load: Callable[[VLLMGeneration], None]) -> None:
    """Do what TRL's `sync_weights` does for an engine in this process, but load with `load`."""
    if generation.enable_sleep_mode:  # map the weights' memory again before writing to it
        vllm_generation.empty_cache()
        generation.llm.wake_up(tags=["weights"])
        generation._llm_weights_sleeping = False
    load(generation)
    generation.llm.reset_prefix_cache()


def _load_weights(generation: VLLMGeneration) -> None:
    """Load the policy's weights into an engine on GPUs."""
    _get_model_runner(generation).model.load_weights(generation._iter_named_params())


def _reload_weights(generation: VLLMGeneration) -> None:
    """Load the policy's weights into an engine on CPUs, which packs weights for its kernels.

    Loading into packed weights fails with "no attribute 'weight_loader'". `reload_weights` unpacks
    all layers, loads, and packs again. If it gets only a part of a layer, such as the q_proj of
    qkv_proj, it loses the rest. So it is called once, with all tensors.
    """
    runner = _get_model_runner(generation)
    # Cloned, because vLLM keeps tensors until their layer is complete, while TRL may free gathered
    # tensors, or take a merged adapter out again, as soon as the next tensor is read.
    weights = ((name, tensor.clone()) for name, tensor in generation._iter_named_params())
    runner.reload_weights(weights_iterator=weights)
    _pack_heads(runner.get_model())


def _pack_heads(model: torch.nn.Module) -> None:
    """Pack the LM head again, which may share the embedding's weights (tied embeddings).

    If its weights are the embedding's, no tensor is loaded under the head's own name, and vLLM
    keeps the packed copy that it has. Without this function, completions would be sampled, without
    an error, with the LM head of the model before training.
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


def _get_model_runner(generation: VLLMGeneration):
    return generation.llm.llm_engine.model_executor.driver_worker.model_runner
