"""Scores of tokens in chunks are those of whole logits, and so are their gradients."""

import peft
import pytest
import torch
from trl.trainer.utils import add_fused_lm_head

from rapid.training import head
from rapid.training.head import CpuScores, LogitTransform, patch_head
from tests.training.conformance.families import untrained
from tests.training.loops import ROUNDING

TOKENS, WIDTH, WORDS = 11, 5, 37
OUTPUTS = ("log_probs", "entropy", "is_top1")
CURVES = [
    LogitTransform(1.0, None, 1.0),
    LogitTransform(0.3, None, 0.7),
    LogitTransform(1.5, 2.0, 0.7),
]


@pytest.fixture
def small_chunks(monkeypatch):
    """Four tokens a chunk, three a part, ten words a slice; nothing is left to TRL's tiles."""
    monkeypatch.setattr(head, "MAX_TILED_LOGITS", 0)
    monkeypatch.setattr(head, "CHUNK_BYTES", 4 * WORDS * 8)
    monkeypatch.setattr(head, "PART_LOGITS", 3 * WORDS)
    monkeypatch.setattr(head, "SLICE_ENTRIES", 10)


def inputs(bias: bool, dtype=torch.float64) -> list[torch.Tensor]:
    """Hidden states, weights and bias, and targets."""
    torch.manual_seed(0)
    sizes = [(TOKENS, WIDTH), (WORDS, WIDTH), *([(WORDS,)] if bias else [])]
    learned = [torch.randn(size, dtype=dtype, requires_grad=True) for size in sizes]
    return [*learned, *([] if bias else [None]), torch.randint(0, WORDS, (TOKENS,))]


def in_chunks(hidden, weight, bias, targets, curve):
    scale, cap, temperature = curve
    found = CpuScores.apply(hidden, weight, bias, targets, temperature, 8, cap, scale, OUTPUTS)
    return found[0], found[1], found[4]


def whole(hidden, weight, bias, targets, curve):
    """The same, from logits."""
    logits = hidden @ weight.t() + (0 if bias is None else bias)
    logp = curve.values(logits.to(torch.promote_types(logits.dtype, torch.float32))).log_softmax(-1)
    entropy = -(logp.exp() * logp).sum(-1)
    return logp.gather(1, targets[:, None])[:, 0], entropy, logp.argmax(-1) == targets


def gradients(scores, tensors) -> list[torch.Tensor]:
    weights = torch.linspace(-1, 2, TOKENS), torch.linspace(1, -2, TOKENS)
    loss = sum((w * score).sum() for w, score in zip(weights, scores, strict=False))
    return torch.autograd.grad(loss, [one for one in tensors[:3] if one is not None])


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("bias", [False, True])
def test_they_are_those_of_whole_logits(bias, curve, small_chunks):
    tensors = inputs(bias)
    found, expected = (score(*tensors, curve) for score in (in_chunks, whole))
    for one, other in zip(found[:2], expected[:2], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    assert torch.equal(found[2], expected[2])
    for one, other in zip(gradients(found, tensors), gradients(expected, tensors), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("curve", CURVES)
def test_the_gradient_is_that_of_finite_differences(curve, small_chunks):
    *learned, targets = inputs(bias=True)

    def scores(hidden, weight, bias):
        return in_chunks(hidden, weight, bias, targets, curve)[:2]

    assert torch.autograd.gradcheck(scores, learned)


def test_what_has_no_gradient_gets_none(small_chunks):
    hidden, weight, bias, targets = inputs(bias=True)
    scores = in_chunks(hidden, weight.detach(), bias.detach(), targets, CURVES[0])
    only_logp = torch.autograd.grad(scores[0].sum(), hidden)
    assert only_logp[0].norm() > 0
    logp, entropy, *_ = CpuScores.apply(
        hidden.detach(), weight, None, targets, 1.0, 8, None, 1.0, ("log_probs",)
    )
    assert entropy is None
    assert torch.autograd.grad(logp.sum(), weight)[0].norm() > 0


@pytest.mark.parametrize("autocast", [False, True])
def test_bfloat16_has_its_rounding_only(autocast, small_chunks):
    """Beside float64, chunks are as near as whole logits, whose gradient is rounded once."""
    exact = inputs(bias=True)
    reference = gradients(whole(*exact, CURVES[0]), exact)
    errors = []
    for score in (in_chunks, whole):
        dtype = torch.float32 if autocast else torch.bfloat16
        tensors = [one.detach().to(dtype).requires_grad_() for one in exact[:3]] + exact[3:]
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            scores = score(*tensors, CURVES[0])
        assert scores[0].dtype == torch.float32
        found = gradients(scores, tensors)
        errors.append(
            sum((a.double() - b).norm() / b.norm() for a, b in zip(found, reference, strict=True))
        )
    assert errors[0] <= 2 * errors[1] < 0.2


def scored(model, ids):
    with patch_head(model):
        output = model(input_ids=ids, labels=ids, fused_lm_head=True)
    logits = model(input_ids=ids).logits[:, :-1]
    logp = logits.log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
    return output.log_probs, logp


@pytest.mark.parametrize("family", ["Qwen2", "Gemma2", "Cohere", "Granite", "Phi"])
def test_a_models_scale_cap_bias_and_tied_weights_are_heeded(family, monkeypatch):
    monkeypatch.setattr(head, "MAX_TILED_LOGITS", 0)
    monkeypatch.setattr(head, "CHUNK_BYTES", 2**12)
    model = untrained(family)
    add_fused_lm_head(model, outputs=OUTPUTS)
    found = []
    for logp in scored(model, torch.arange(2, 26).view(3, 8)):
        model.zero_grad()
        logp.sum().backward()
        found.append((logp.detach(), model.get_input_embeddings().weight.grad.clone()))
    (one, its), (other, others) = found
    torch.testing.assert_close(one, other, rtol=0, atol=ROUNDING)
    assert (its - others).norm() <= ROUNDING * others.norm() > 0


@pytest.mark.parametrize("kind", ["lora", "dora", "ia3"])
def test_an_adapter_on_the_head_has_its_effect_and_its_gradient(kind, monkeypatch):
    """TRL's forward reads the weights below it."""
    monkeypatch.setattr(head, "CHUNK_BYTES", 2**12)
    targets = {"target_modules": ["lm_head", "q_proj"], "init_weights": False}
    if kind == "ia3":
        config = peft.IA3Config(
            target_modules=["lm_head", "q_proj"], feedforward_modules=[], init_ia3_weights=False
        )
    else:
        config = peft.LoraConfig(
            r=4,
            target_modules=targets["target_modules"],
            init_lora_weights=False,
            use_dora=kind == "dora",
        )
    torch.manual_seed(0)
    model = untrained("Llama")
    add_fused_lm_head(model, outputs=OUTPUTS)
    model = peft.get_peft_model(model, config)
    ids = torch.arange(2, 26).view(3, 8)
    plain = model(input_ids=ids, labels=ids, fused_lm_head=True).log_probs
    found = []
    for logp in scored(model, ids):
        model.zero_grad()
        logp.sum().backward()
        grads = [p.grad.flatten() for n, p in model.named_parameters() if p.grad is not None]
        assert any("lm_head" in n for n, p in model.named_parameters() if p.grad is not None)
        found.append((logp.detach(), torch.cat(grads)))
    (one, its), (other, others) = found
    torch.testing.assert_close(one, other, rtol=0, atol=ROUNDING)
    assert (its - others).norm() <= ROUNDING * others.norm() > 0
    assert (plain - other).abs().max() > 100 * ROUNDING  # else the test shows nothing
