"""Changes to TRL's and transformers' behaviour that RapidTrainer needs.

The docstring of each overridden method says what TRL does and why it is changed. This module lists
names of TRL that the code depends on, and has two patches that are applied before a trainer is
built.

tests/training/test_trl.py compares these names with the installed TRL. This module must not import
TRL's trainers, because `prevent_vllm_import` has to be called before they are imported.
"""

from functools import cache

# Columns of the batch that TRL's `_generate_and_score_completions` returns, and their names here.
# The name of a column of log-probabilities begins with the policy that they are computed under.
BATCH_COLUMNS = {
    **{name: name for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")},
    "tool_mask": "tool_mask",
    "ref_per_token_logps": "reference_logp",
    "sampling_per_token_logps": "sampler_logp",
}
# Columns that TRL's own loss reads from a micro-batch.
LOSS_COLUMNS = {
    **BATCH_COLUMNS,
    "advantages": "advantages",
    "old_per_token_logps": "behavior_logp",
    "importance_sampling_ratio": "importance_sampling_ratio",
}
# Columns of images, on which RapidTrainer cannot train. A batch with them is an error.
REFUSED_COLUMNS = ("pixel_values",)

# Fields of GRPOConfig that only GRPOTrainer's own loss reads. The algorithms of `rapid.algorithms`
# have no use for them.
TRL_LOSS_ONLY_FIELDS = (
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
# All fields of GRPOConfig that GRPOTrainer's own loss reads. Other objectives read the first four,
# too.
TRL_LOSS_FIELDS = ("beta", "epsilon", "epsilon_high", "scale_rewards", *TRL_LOSS_ONLY_FIELDS)


def prevent_vllm_import() -> None:
    """Prevent TRL from importing vLLM, for processes that do not sample with vLLM.

    TRL imports vLLM together with GRPOTrainer if vLLM is installed, and the import takes seconds.
    """
    import trl.import_utils as trl_imports

    trl_imports.is_vllm_available = lambda *_, **__: False


def cache_package_lookups() -> None:
    """Cache the function by which accelerate tests whether a package is installed.

    accelerate calls it whenever it unwraps a model, and reads the package's metadata each time.
    This takes milliseconds, about as long as sampling one token for many completions.
    """
    from accelerate.utils import imports

    # Another version of accelerate may lack this private function. It then stays slow but correct.
    is_available = getattr(imports, "_is_package_available", None)
    if is_available and not hasattr(is_available, "cache_info"):
        imports._is_package_available = cache(is_available)
