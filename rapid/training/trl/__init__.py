"""Everything that bends TRL, and which of its behaviours forces each bend.

trainer   SamplingTrainer, GRPOTrainer with only its sampling, grading and logging left: a method
          overridden there says in its docstring why
vllm      the engine that TRL builds in this process: its precision, its seed, its weights
here      names of TRL's that the code depends on, GRPOConfig's batch sizes, the import of vLLM

tests/training/test_trl.py compares all of it with the TRL that is installed. This module imports
nothing of TRL: `without_vllm` has to come first.
"""

from collections.abc import Callable

# Columns of the batch that `_generate_and_score_completions` returns, and their names here, where
# log-probabilities have the names of their policies.
COLUMNS = {
    **{name: name for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")},
    "ref_per_token_logps": "reference_logp",
    "sampling_per_token_logps": "sampler_logp",
}
# Columns of what this trainer does not train on.
REFUSED_COLUMNS = ("tool_mask", "pixel_values")

# Fields with which GRPOConfig shapes GRPOTrainer's loss. Set, they would be ignored: refused.
DECIDED_BY_THE_OBJECTIVE = (
    "loss_type",
    "scale_rewards",
    "importance_sampling_level",
    "multi_objective_aggregation",
    "delta",
    "top_entropy_quantile",
    "off_policy_mask_threshold",
    "entropy_coef",
    "use_adaptive_entropy",
    "use_bias_correction_kl",
    "vllm_importance_sampling_correction",
)


def without_vllm() -> None:
    """Keep TRL from importing vLLM, which takes seconds, where transformers does the sampling.

    TRL imports vLLM together with GRPOTrainer, wherever it is installed.
    """
    import trl.import_utils as trl_imports

    trl_imports.is_vllm_available = lambda *_, **__: False


def set_batch_sizes(config, sizes: dict[str, int], check: Callable) -> None:
    """Let GRPOConfig check itself, and give it these batch sizes.

    GRPOConfig takes one of generation_batch_size and steps_per_generation, and finds the other. It
    wants as many completions of a step in each process; here these share an inference batch. Hence
    it sees the inference batch as one step while it checks.

    Args:
        check: GRPOConfig's `__post_init__`.
    """
    vars(config).update(sizes, steps_per_generation=None)
    config.per_device_train_batch_size = sizes["generation_batch_size"] // config.world_size
    check()
    vars(config).update(sizes)
