"""A model of 60 million parameters with random weights: large enough for a GPU's memory to show it."""

from pathlib import Path

from transformers import AutoTokenizer

from tests.conftest import save_qwen2


def save(tokenizer_of: Path, folder: Path) -> Path:
    """Save it with the toy model's tokenizer."""
    return save_qwen2(
        folder,
        AutoTokenizer.from_pretrained(tokenizer_of),
        hidden_size=512,
        intermediate_size=1536,
        num_hidden_layers=12,
        vocab_size=32_000,
        num_attention_heads=8,
        num_key_value_heads=2,
        max_position_embeddings=4096,
    )
