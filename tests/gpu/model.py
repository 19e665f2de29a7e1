"""A model of 60 million parameters with random weights, large enough for a GPU's memory to show it."""

from pathlib import Path

import torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

SHAPE = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 12}


def save(tokenizer_of: Path, folder: Path) -> Path:
    """Write it with the toy model's tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_of)
    torch.manual_seed(0)
    config = Qwen2Config(
        **SHAPE,
        vocab_size=32_000,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
