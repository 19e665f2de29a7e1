"""Log-probabilities and entropies come from logits over the temperature, prompts shared or not.

tests/training/conformance/test_families.py compares shared prompts with plain forward passes.
"""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from trl.trainer.utils import add_fused_lm_head

from rapid.training import forward
from rapid.training.caches import count_positions
from rapid.training.forward import compute_completion_logps
from tests.training import loops
from tests.training.conformance.families import build_untrained
from tests.training.conftest import GROUP_SIZE
from tests.training.loops import ROUNDING

TEMPERATURE = 0.7


@pytest.mark.parametrize("width", [6, 1])
@pytest.mark.parametrize("share", [False, True])
def test_logps_and_entropies_match_log_softmax_of_tempered_logits(micro_batch, share, width):
    micro_batch = {
        name: tensor[:, :width] if name.startswith("completion") else tensor
        for name, tensor in micro_batch.items()
    }
    model = build_untrained("Qwen2", torch.float64)
    add_fused_lm_head(model, temperature=TEMPERATURE, outputs=("log_probs", "entropy"))
    ids = torch.cat([micro_batch["prompt_ids"], micro_batch["completion_ids"]], dim=1)
    mask = torch.cat([micro_batch["prompt_mask"], micro_batch["completion_mask"]], dim=1)
    logits = model(input_ids=ids, attention_mask=mask, position_ids=count_positions(mask)).logits
    logp = torch.log_softmax(logits[:, -width - 1 : -1] / TEMPERATURE, dim=-1)
    expected = logp.gather(2, micro_batch["completion_ids"][:, :, None])[:, :, 0]
    entropy = -(logp.exp() * logp).sum(-1)
    is_token = micro_batch["completion_mask"].bool()
    values = compute_completion_logps(model, micro_batch, GROUP_SIZE, TEMPERATURE, share)
    for value, expected_value in zip(values, (expected, entropy), strict=True):
        torch.testing.assert_close(
            value[is_token].double(), expected_value[is_token], rtol=0, atol=ROUNDING
        )


@pytest.mark.parametrize("was_enabled", [True, False])
def test_training_avoids_cudnn_attention_and_restores_the_choice(was_enabled, toy_model, tmp_path):
    choices = {}

    def record_choice(*_):
        choices[torch.is_grad_enabled()] = torch.backends.cuda.cudnn_sdp_enabled()

    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(was_enabled)
        trainer = loops.build_rapid_trainer(toy_model, tmp_path, "rapid", max_steps=1)
        trainer.model.model.register_forward_pre_hook(record_choice)
        trainer.train()
        assert choices == {False: False, True: False}  # in sampling, and in passes with gradient
        assert torch.backends.cuda.cudnn_sdp_enabled() is was_enabled
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def test_cudnn_attention_stays_if_a_user_allows_no_other():
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION), forward.avoid_cudnn_attention():
        assert torch.backends.cuda.cudnn_sdp_enabled()


def test_whole_logits_have_gradient_of_trls_chunks(micro_batch, monkeypatch):
    gradients = {}
    for limit in (0, forward.MAX_WHOLE_LOGITS):
        monkeypatch.setattr(forward, "MAX_WHOLE_LOGITS", limit)
        model = build_untrained("Qwen2", torch.float64)
        add_fused_lm_head(model, temperature=TEMPERATURE, outputs=("log_probs", "entropy"))
        logp, _ = compute_completion_logps(model, micro_batch, GROUP_SIZE, TEMPERATURE, True)
        weights = torch.linspace(-1, 2, logp.numel()).view_as(logp) * micro_batch["completion_mask"]
        (logp * weights).sum().backward()
        gradients[limit] = torch.cat([p.grad.flatten() for p in model.parameters()])
    chunked, whole = gradients.values()
    assert (chunked - whole).norm() <= ROUNDING * chunked.norm() and chunked.norm() > 0
