"""Tiny untrained models of many families, for the toy tokenizer of tests/conftest.py.

The families are those of TRL's tests and those that are trained most. All are text models.
"""

import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedModel

from rapid.training.dropout import remove_dropout

SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
}
TWO_HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
MAMBA = {
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_d_ssm": 64,
    "mamba_d_state": 8,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 8,
}
GATED_DELTA = {
    "layer_types": ["linear_attention", "full_attention"],
    "head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
STATE_SPACE = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "time_step_rank": 4}
SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}

# Name of the configuration's class without "Config": settings that differ from SHAPE.
ATTENTION = {
    "Apertus": {},
    "Arcee": {},
    "Bloom": {"n_layer": 2, "n_head": 4},
    "Cohere": {},
    "Cohere2": SLIDING,
    "DeepseekV3": {
        **TWO_HEADS,
        **EXPERTS,
        "n_routed_experts": 4,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "kv_lora_rank": 8,
        "q_lora_rank": 8,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
    },
    "Falcon": {"num_kv_heads": 2},
    "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "GPTNeoX": {},
    "Gemma": {"head_dim": 8},
    "Gemma2": {"head_dim": 8, "sliding_window": 8},
    "Gemma3Text": {"head_dim": 8, **SLIDING},
    "Glm4Moe": {**EXPERTS, "head_dim": 8, "n_routed_experts": 4, "first_k_dense_replace": 1},
    "GptOss": {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 8, **SLIDING},
    "Granite": {},
    "Llama": {},
    "Mistral": {"sliding_window": 8},
    "Mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "OPT": {"ffn_dim": 32, "word_embed_proj_dim": 32},
    "Olmo2": {},
    "Olmo3": SLIDING,
    "Olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "Phi": {},
    "Phi3": {},
    "Qwen2": {},
    "Qwen3": {"head_dim": 8},
    "Qwen3Moe": {**EXPERTS, "num_experts": 4, "head_dim": 8},
    "SmolLM3": {},
    "StableLm": {},
    "Starcoder2": {},
}
# Families whose cache of a prompt is, in part or as a whole, a state instead of keys and values.
STATES = {
    "Bamba": {**MAMBA, "attn_layer_indices": [1]},
    "FalconH1": MAMBA,
    "FalconMamba": STATE_SPACE,
    "Jamba": {
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "num_experts": 2,
        "use_mamba_kernels": False,
        "mamba_d_state": 8,
        "mamba_dt_rank": 4,
    },
    "Lfm2": {"full_attn_idxs": [1], "block_multiple_of": 8},
    "Mamba": STATE_SPACE,
    "Mamba2": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_heads": 4,
        "head_dim": 16,
        "state_size": 8,
        "n_groups": 1,
        "chunk_size": 8,
    },
    "MiniMax": {
        "layer_types": ["linear_attention", "full_attention"],
        "num_local_experts": 2,
        "head_dim": 8,
        "block_size": 8,
    },
    "NemotronH": {
        "layers_block_type": ["mamba", "attention", "moe"],
        "mamba_num_heads": 8,
        "mamba_head_dim": 4,
        "mamba_n_groups": 1,
        "ssm_state_size": 8,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "moe_shared_expert_intermediate_size": 16,
        "use_mamba_kernels": False,
        "chunk_size": 8,
    },
    "Qwen3Next": {**GATED_DELTA, **EXPERTS, "num_experts": 4},
    "Qwen3_5Text": GATED_DELTA,
    "Zamba2": {
        "layers_block_type": ["mamba", "hybrid"],
        "mamba_d_state": 8,
        "mamba_headdim": 16,
        "n_mamba_heads": 4,
        "mamba_ngroups": 1,
        "chunk_size": 8,
        "num_mem_blocks": 1,
        "attention_head_dim": 16,
        "use_mem_rope": True,
    },
}
FAMILIES = ATTENTION | STATES
WITHOUT_SHAPE = ("Bloom", "FalconMamba", "GPT2", "Mamba", "Mamba2")  # name their sizes differently


def build_untrained(family: str, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """Return an untrained model of a family, the same each time."""
    settings = FAMILIES[family] if family in WITHOUT_SHAPE else SHAPE | FAMILIES[family]
    special_tokens = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
    config = getattr(transformers, f"{family}Config")(vocab_size=258, **special_tokens, **settings)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).to(dtype)


def build_without_dropout(family: str) -> PreTrainedModel:
    """Return an untrained model without dropout; TRL's disable_dropout keeps OPT's."""
    remove_dropout(model := build_untrained(family))
    return model
