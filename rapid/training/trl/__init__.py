"""Everything that bends TRL, and which of its behaviours forces each bend.

A method that is overridden says in its docstring why. docs/architecture.md says what each file is
for. Here are the names of TRL's that the code depends on, and the import of vLLM.

tests/training/test_trl.py compares all of it with the TRL that is installed. This module imports
nothing of TRL: `without_vllm` has to come first.
"""

from functools import cache

# Columns of the batch that `_generate_and_score_completions` returns, and their names here, where
# log-probabilities have the names of their policies.
BATCH_COLUMNS = {
    **{name: name for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")},
    "tool_mask": "tool_mask",
    "ref_per_token_logps": "reference_logp",
    "sampling_per_token_logps": "sampler_logp",
}
# All that TRL's own loss gets of a micro-batch.
LOSS_COLUMNS = {
    **BATCH_COLUMNS,
    "advantages": "advantages",
    "old_per_token_logps": "behavior_logp",
    "importance_sampling_ratio": "importance_sampling_ratio",
}
# Columns of what this trainer does not train on.
REFUSED_COLUMNS = ("pixel_values",)

# Fields with which GRPOConfig shapes GRPOTrainer's loss, and that no other objective has.
DECIDED_BY_THE_OBJECTIVE = (
    "loss_type",
    "importance_sampling_level",
    "multi_objective_aggregation",
    "delta",
    "top_entropy_quantile",
    "off_policy_mask_threshold",
    "entropy_coef",
    "entropy_coef_min",
    "entropy_coef_max",
    "entropy_coef_delta",
    "entropy_target",
    "use_adaptive_entropy",
    "use_bias_correction_kl",
    "router_aux_loss_coef",
    "sapo_temperature_neg",
    "sapo_temperature_pos",
    "vespo_k_pos",
    "vespo_lambda_pos",
    "vespo_k_neg",
    "vespo_lambda_neg",
    "vllm_importance_sampling_correction",
    "vllm_importance_sampling_mode",
    "vllm_importance_sampling_clip_max",
    "vllm_importance_sampling_clip_min",
    "vllm_importance_sampling_cap",
)


def without_vllm() -> None:
    """Keep TRL from importing vLLM, which takes seconds, where transformers does the sampling.

    TRL imports vLLM together with GRPOTrainer, wherever it is installed.
    """
    import trl.import_utils as trl_imports

    trl_imports.is_vllm_available = lambda *_, **__: False


def cache_package_lookups() -> None:
    """Let accelerate remember which packages are installed.

    It asks whenever it unwraps a model, and reads a package's metadata each time: milliseconds, as
    long as it takes to sample a token of many completions.
    """
    from accelerate.utils import imports

    # Another accelerate may look otherwise: it is slower then, and no less right.
    look = getattr(imports, "_is_package_available", None)
    if look and not hasattr(look, "cache_info"):
        imports._is_package_available = cache(look)
