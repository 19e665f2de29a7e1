"""What tests share. Everything runs offline, on one thread, from a seed."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # also silences telemetry
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["RAPID_ATTEMPTS"] = "1"  # runtimes are not looked at
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent


@pytest.fixture
def values() -> dict:
    """params.yaml as a fresh dict, to change."""
    return yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))


def save_qwen2(folder: Path, tokenizer, **shape) -> Path:
    """Save an untrained Qwen2 of this shape with its tokenizer."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        **shape,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory) -> Path:
    """A folder with an untrained Qwen2 of one layer and a byte-level tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(["<pad>", "<eos>", *alphabet])}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(["<pad>", "<eos>"])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )
    return save_qwen2(
        tmp_path_factory.mktemp("toy-model"),
        tokenizer,
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        intermediate_size=64,
    )
