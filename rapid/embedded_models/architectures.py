"""The architectures of the embedded models, the tiny models that the pipeline itself pre-trains.

They are Qwen2, Llama and Gemma 3.
"""

from typing import Any

from rapid.config.params_schema import EmbeddedModel

HEAD_DIM = 64  # units per attention head; vLLM's attention kernels need this size
CONTEXT = 512  # maximum number of tokens of prompt and completion


def get_sizes(params: EmbeddedModel, vocabulary: int) -> dict[str, Any]:
    """Return a model's sizes as in its config.json; it has `params.hidden` / 64 attention heads.

    Args:
        params: architecture, hidden units and layers, from params.yaml.
        vocabulary: number of tokens.
    """
    heads = params.hidden // HEAD_DIM
    return {
        "vocab_size": vocabulary,
        "hidden_size": params.hidden,
        "intermediate_size": 3 * params.hidden,
        "num_hidden_layers": params.layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": HEAD_DIM,
        "tie_word_embeddings": True,
    }


def build_model(params: EmbeddedModel, tokenizer):
    """Return an untrained model with these parameters.

    Args:
        tokenizer: determines the size of the vocabulary and the ids of special tokens.
    """
    import transformers

    common = get_sizes(params, len(tokenizer)) | {
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.05,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "bos_token_id": tokenizer.bos_token_id,
    }
    match params.architecture:
        case "qwen2":
            config = transformers.Qwen2Config(**common)
        case "llama":
            config = transformers.LlamaConfig(**common)
        case "gemma3":
            config = transformers.Gemma3TextConfig(
                **common, query_pre_attn_scalar=HEAD_DIM, sliding_window=CONTEXT
            )
    return transformers.AutoModelForCausalLM.from_config(config)
