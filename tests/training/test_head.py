"""Token scores computed in chunks, and their gradients, match those of whole logits."""

import peft
import pytest
import torch
from trl.trainer.utils import add_fused_lm_head

from rapid.training import head
from rapid.training.head import LogitTransform, patch_head, score_on_cpu
from tests.training.conformance.families import build_untrained
from tests.training.loops import ROUNDING

TOKENS, WIDTH, WORDS = 11, 5, 37
OUTPUTS = ("log_probs", "entropy", "is_top1")
TRANSFORMS = [
    LogitTransform(1.0, None, 1.0),
    LogitTransform(0.3, None, 0.7),
    LogitTransform(1.5, 2.0, 0.7),
]


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of four tokens, parts of three, slices of ten words; TRL's tiles are never used."""
    monkeypatch.setattr(head, "MAX_TILED_LOGITS", 0)
    monkeypatch.setattr(head, "CHUNK_BYTES", 4 * WORDS * 8)
    monkeypatch.setattr(head, "PART_LOGITS", 3 * WORDS)
    monkeypatch.setattr(head, "SLICE_ROWS", 10)


def draw_inputs(bias: bool, dtype=torch.float64) -> list[torch.Tensor]:
    """Return hidden states, weights, bias or None, and targets."""
    torch.manual_seed(0)
    sizes = [(TOKENS, WIDTH), (WORDS, WIDTH), *([(WORDS,)] if bias else [])]
    parameters = [torch.randn(size, dtype=dtype, requires_grad=True) for size in sizes]
    return [*parameters, *([] if bias else [None]), torch.randint(0, WORDS, (TOKENS,))]


def score_in_chunks(hidden, weight, bias, targets, transform):
    scale, cap, temperature = transform
    scores = score_on_cpu(hidden, weight, bias, targets, temperature, 8, cap, scale, OUTPUTS)
    return scores[0], scores[1], scores[4]


def score_whole_logits(hidden, weight, bias, targets, transform):
    """Return the same scores from whole logits."""
    logits = hidden @ weight.t() + (0 if bias is None else bias)
    logp = transform.values(
        logits.to(torch.promote_types(logits.dtype, torch.float32))
    ).log_softmax(-1)
    entropy = -(logp.exp() * logp).sum(-1)
    return logp.gather(1, targets[:, None])[:, 0], entropy, logp.argmax(-1) == targets


def compute_gradients(scores, tensors) -> list[torch.Tensor]:
    weights = torch.linspace(-1, 2, TOKENS), torch.linspace(1, -2, TOKENS)
    loss = sum(
        (score_weights * score).sum() for score_weights, score in zip(weights, scores, strict=False)
    )
    return torch.autograd.grad(loss, [tensor for tensor in tensors[:3] if tensor is not None])


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("bias", [False, True])
def test_chunked_scores_and_gradients_match_whole_logits(bias, transform, small_chunks):
    tensors = draw_inputs(bias)
    chunked, expected = (
        score(*tensors, transform) for score in (score_in_chunks, score_whole_logits)
    )
    for scores, expected_scores in zip(chunked[:2], expected[:2], strict=True):
        torch.testing.assert_close(scores, expected_scores, rtol=0, atol=1e-12)
    assert torch.equal(chunked[2], expected[2])
    gradients = compute_gradients(chunked, tensors), compute_gradients(expected, tensors)
    for gradient, expected_gradient in zip(*gradients, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-12)


def test_only_inputs_that_require_it_get_a_gradient(small_chunks):
    hidden, weight, bias, targets = draw_inputs(bias=True)
    scores = score_in_chunks(hidden, weight.detach(), bias.detach(), targets, TRANSFORMS[0])
    gradients = torch.autograd.grad(scores[0].sum(), hidden)
    assert gradients[0].norm() > 0
    logp, entropy, *_ = score_on_cpu(
        hidden.detach(), weight, None, targets, 1.0, 8, None, 1.0, ("log_probs",)
    )
    assert entropy is None
    assert torch.autograd.grad(logp.sum(), weight)[0].norm() > 0


@pytest.mark.parametrize("autocast", [False, True])
def test_bfloat16_errors_are_rounding_only(autocast, small_chunks):
    """Errors to float64 are as small as those of whole logits, which round gradients once."""
    exact_tensors = draw_inputs(bias=True)
    reference = compute_gradients(score_whole_logits(*exact_tensors, TRANSFORMS[0]), exact_tensors)
    errors = []
    for score_function in (score_in_chunks, score_whole_logits):
        dtype = torch.float32 if autocast else torch.bfloat16
        tensors = [
            tensor.detach().to(dtype).requires_grad_() for tensor in exact_tensors[:3]
        ] + exact_tensors[3:]
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            scores = score_function(*tensors, TRANSFORMS[0])
        assert scores[0].dtype == torch.float32
        gradients = compute_gradients(scores, tensors)
        errors.append(
            sum(
                (a.double() - b).norm() / b.norm()
                for a, b in zip(gradients, reference, strict=True)
            )
        )
    assert errors[0] <= 2 * errors[1] < 0.2


def score_tokens(model, ids):
    with patch_head(model):
        output = model(input_ids=ids, labels=ids, fused_lm_head=True)
    logits = model(input_ids=ids).logits[:, :-1]
    logp = logits.log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
    return output.log_probs, logp


@pytest.mark.parametrize("family", ["Qwen2", "Gemma2", "Cohere", "Granite", "Phi"])
def test_scale_cap_bias_and_tied_weights_of_models_are_applied(family, monkeypatch):
    monkeypatch.setattr(head, "MAX_TILED_LOGITS", 0)
    monkeypatch.setattr(head, "CHUNK_BYTES", 2**12)
    model = build_untrained(family)
    add_fused_lm_head(model, outputs=OUTPUTS)
    results = []
    for logp in score_tokens(model, torch.arange(2, 26).view(3, 8)):
        model.zero_grad()
        logp.sum().backward()
        results.append((logp.detach(), model.get_input_embeddings().weight.grad.clone()))
    (logp, gradient), (expected, expected_gradient) = results
    torch.testing.assert_close(logp, expected, rtol=0, atol=ROUNDING)
    assert (gradient - expected_gradient).norm() <= ROUNDING * expected_gradient.norm() > 0


@pytest.mark.parametrize("kind", ["lora", "dora", "ia3"])
def test_adapter_on_head_changes_scores_and_gets_gradient(kind, monkeypatch):
    """TRL's forward reads the head's weights without the adapter."""
    monkeypatch.setattr(head, "CHUNK_BYTES", 2**12)
    targets = {"target_modules": ["lm_head", "q_proj"]}
    if kind == "ia3":
        config = peft.IA3Config(**targets, feedforward_modules=[], init_ia3_weights=False)
    else:
        config = peft.LoraConfig(**targets, r=4, init_lora_weights=False, use_dora=kind == "dora")
    torch.manual_seed(0)
    model = build_untrained("Llama")
    add_fused_lm_head(model, outputs=OUTPUTS)
    model = peft.get_peft_model(model, config)
    ids = torch.arange(2, 26).view(3, 8)
    without_adapter = model(input_ids=ids, labels=ids, fused_lm_head=True).log_probs
    results = []
    for logp in score_tokens(model, ids):
        model.zero_grad()
        logp.sum().backward()
        gradients = [p.grad.flatten() for n, p in model.named_parameters() if p.grad is not None]
        assert any("lm_head" in n for n, p in model.named_parameters() if p.grad is not None)
        results.append((logp.detach(), torch.cat(gradients)))
    (logp, gradient), (expected, expected_gradient) = results
    torch.testing.assert_close(logp, expected, rtol=0, atol=ROUNDING)
    assert (gradient - expected_gradient).norm() <= ROUNDING * expected_gradient.norm() > 0
    assert (without_adapter - expected).abs().max() > 100 * ROUNDING  # the adapter has an effect
