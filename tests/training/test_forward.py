"""Log-probabilities with shared prompts, and their gradient, are those of a plain forward pass."""

import pytest
import torch
import transformers
from trl.trainer.utils import add_fused_lm_head

from rapid.training.caches import positions
from rapid.training.forward import completion_logp
from tests.training.loops import ROUNDING

COMMON = {
    "vocab_size": 50,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "pad_token_id": 0,
}
CONFIGS = {
    "qwen2": lambda: transformers.Qwen2Config(**COMMON, tie_word_embeddings=True),
    "llama": lambda: transformers.LlamaConfig(**COMMON),
    "gemma3": lambda: transformers.Gemma3TextConfig(
        **COMMON, query_pre_attn_scalar=64, sliding_window=4, final_logit_softcapping=5.0
    ),
}
TEMPERATURE = 0.7


def model(name):
    torch.manual_seed(0)
    made = transformers.AutoModelForCausalLM.from_config(CONFIGS[name]()).double()
    add_fused_lm_head(made, temperature=TEMPERATURE)
    return made


@pytest.fixture
def piece():
    """Two groups of three: prompts of 7 and 4 tokens, completions of 1 to 6."""
    generator = torch.Generator().manual_seed(1)
    prompts = torch.randint(1, 50, (2, 7), generator=generator).repeat_interleave(3, dim=0)
    prompt_mask = torch.ones_like(prompts)
    prompt_mask[3:, :3] = 0
    completions = torch.randint(1, 50, (6, 6), generator=generator)
    lengths = torch.tensor([6, 1, 3, 2, 6, 5])
    mask = (torch.arange(6) < lengths[:, None]).long()
    return {
        "prompt_ids": prompts * prompt_mask,
        "prompt_mask": prompt_mask,
        "completion_ids": completions * mask,
        "completion_mask": mask,
    }


def logp_and_gradient(made, piece, share):
    made.zero_grad()
    logp = completion_logp(made, piece, 3, TEMPERATURE, share) * piece["completion_mask"]
    (logp * torch.arange(1, 7)).sum().backward()
    return logp.detach(), torch.cat([p.grad.flatten() for p in made.parameters()])


@pytest.mark.parametrize("name", CONFIGS)
def test_shared_prompts_give_the_same_numbers_and_gradient(name, piece):
    made = model(name)
    plain, plain_gradient = logp_and_gradient(made, piece, share=False)
    shared, shared_gradient = logp_and_gradient(made, piece, share=True)
    torch.testing.assert_close(shared, plain, rtol=0, atol=ROUNDING)
    assert (shared_gradient - plain_gradient).norm() <= ROUNDING * plain_gradient.norm()


def test_they_are_the_log_softmax_of_tempered_logits(piece):
    made = model("qwen2")
    ids = torch.cat([piece["prompt_ids"], piece["completion_ids"]], dim=1)
    mask = torch.cat([piece["prompt_mask"], piece["completion_mask"]], dim=1)
    logits = made(input_ids=ids, attention_mask=mask, position_ids=positions(mask)).logits
    logp = torch.log_softmax(logits[:, 6:-1] / TEMPERATURE, dim=-1)
    expected = logp.gather(2, piece["completion_ids"][:, :, None])[:, :, 0]
    found = completion_logp(made, piece, 3, TEMPERATURE, True)
    seen = piece["completion_mask"].bool()
    torch.testing.assert_close(found[seen].double(), expected[seen], rtol=0, atol=ROUNDING)


def test_completions_of_one_token(piece):
    made = model("llama")
    piece = {k: v[:, :1] if k.startswith("completion") else v for k, v in piece.items()}
    plain, shared = (completion_logp(made, piece, 3, TEMPERATURE, share) for share in (False, True))
    assert shared.shape == (6, 1)
    torch.testing.assert_close(shared, plain, rtol=0, atol=ROUNDING)


def test_positions_count_what_the_mask_shows():
    assert positions(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])).tolist() == [
        [0, 0, 0, 1],
        [0, 1, 2, 3],
    ]
