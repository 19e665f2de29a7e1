"""Log-probabilities and entropies of tokens from hidden states, without holding all logits.

TRL patches the model's forward method, which then calls a function of TRL. This function, here
called TRL's function, is made for GPUs and works on tiles of the vocabulary. It has two problems,
which `patch_head` solves:

1. On a CPU, tiles are slower than whole logits, especially in bfloat16. `TokenChunks` works on
   chunks of tokens instead, each with the whole vocabulary.
2. TRL's function reads the weights of the output layer, so that an adapter (PEFT) of this layer has
   no effect. `score_by_layer` calls the layer instead.

In this file a chunk is some tokens of a forward pass, and a part is some tokens of a chunk.

Shapes: N tokens, D hidden units, V words of the vocabulary, n tokens of a chunk or part.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import trl.trainer.utils
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rapid.training.caches import unwrap_model

MAX_TILED_LOGITS = 2**22  # on a CPU, TRL's tiles are used for at most this number of logits
CHUNK_BYTES = 2**27  # bytes of the logits of a chunk
PART_LOGITS = 2**21  # number of logits of a part, whose probabilities are computed together
# If the sum over chunks of the weights' gradient has a higher precision than a chunk's gradient,
# this many rows of the gradient (one per word) are converted and added at a time.
SLICE_ROWS = 2**13
TRL_SCORES: Any = trl.trainer.utils._ChunkedLogProbFunction  # TRL's function
# What TRL's function returns: log pi, entropies, two values that are not used here, top-1 flags.
Scores = tuple[Tensor, Tensor | None, None, None, Tensor | None]


def patch_head(model) -> AbstractContextManager:
    """Within this context, replace TRL's function for models for which it is slow or wrong.

    These are models on a CPU, and models with an adapter in the output layer.
    """
    layer = unwrap_model(model).get_output_embeddings()
    score: Any = score_on_cpu
    if hasattr(layer, "base_layer"):  # a layer with an adapter of PEFT
        score = partial(score_by_layer, layer)
    elif layer.weight.device.type != "cpu":
        return nullcontext()
    # TRL calls `apply` of a subclass of `torch.autograd.Function`.
    return patch.object(trl.trainer.utils, "_ChunkedLogProbFunction", SimpleNamespace(apply=score))


class LogitTransform(NamedTuple):
    """The logit z of a product x of hidden state and weights: z(x) = cap tanh(s x / cap) / T.

    Args:
        scale: s, the model's factor of logits.
        cap: the model's soft cap of logits; with None, z(x) = s x / T.
        temperature: T, of sampling.
    """

    scale: float
    cap: float | None
    temperature: float

    def values(self, products: Tensor) -> Tensor:
        """Return the logits z of products x, of any shape."""
        logits = products * self.scale
        if self.cap is not None:
            logits = self.cap * torch.tanh(logits / self.cap)
        return logits / self.temperature

    def slopes(self, values: Tensor) -> Tensor | float:
        """Return the derivative dz/dx at the values of z."""
        slope = self.scale / self.temperature
        if self.cap is None:
            return slope
        return slope * (1 - (values * self.temperature / self.cap).square())


def score_on_cpu(
    hidden, weight, bias, targets, temperature, tile, cap, scale, outputs: tuple[str, ...]
) -> Scores:
    """Return scores of the targets: log pi and entropies, (N,), and top-1 flags.

    A top-1 flag, (N,) bool, says whether the target is the most probable word.

    Args:
        hidden: (N, D) hidden states.
        weight: (V, D) weights of the output layer.
        bias: (V,), or None.
        targets: (N,) token ids.
        temperature, cap, scale: see `LogitTransform`.
        tile: words per tile of TRL's function.
        outputs: names of what is returned besides log pi: "entropy", "is_top1".
    """
    # TRL's function computes in float32, and is not used for weights in float64.
    if len(hidden) * len(weight) <= MAX_TILED_LOGITS and hidden.dtype != torch.float64:
        args = (hidden, weight, bias, targets, temperature, tile, cap, scale, outputs)
        return TRL_SCORES.apply(*args)
    transform = LogitTransform(scale, cap, temperature)
    logp, entropy, is_top1 = TokenChunks.apply(hidden, weight, bias, targets, transform, outputs)
    return logp, entropy, None, None, is_top1


def score_by_layer(
    layer, hidden, weight, bias, targets, temperature, tile, cap, scale, outputs
) -> Scores:
    """Return all that `score_on_cpu` can return, but call the layer instead of reading its weights.

    `outputs` is not used. Logits are computed again in the backward pass.
    """
    transform = LogitTransform(scale, cap, temperature)
    size = _compute_chunk_size(hidden.dtype, len(weight))

    def score(hidden_chunk: Tensor, chunk_targets: Tensor) -> tuple[Tensor, ...]:
        products = layer(hidden_chunk)
        logp_dtype = torch.promote_types(products.dtype, torch.float32)
        logp = transform.values(products.to(logp_dtype)).log_softmax(-1)
        entropy = -(logp.exp() * logp).nan_to_num().sum(-1)
        is_top1 = logp.argmax(-1) == chunk_targets
        return logp.gather(1, chunk_targets[:, None])[:, 0], entropy, is_top1

    chunks = zip(hidden.split(size), targets.split(size), strict=True)
    scores = [checkpoint(score, *chunk, use_reentrant=False) for chunk in chunks]
    logp, entropy, is_top1 = (torch.cat(column) for column in zip(*scores, strict=True))
    return logp, entropy, None, None, is_top1


class TokenChunks(torch.autograd.Function):
    """Computes the scores of tokens in chunks; the backward pass computes the logits again.

    Products of hidden states and weights have the precision of the model, or of autocast.
    Probabilities, their sums, and the sum of gradients over chunks have float32 or float64.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, targets, transform, outputs):
        device, dtype = hidden.device.type, hidden.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        logp_dtype = torch.promote_types(dtype, torch.float32)
        logp, entropy, log_normalizer = (
            hidden.new_empty(len(hidden), dtype=logp_dtype) for _ in range(3)
        )
        is_top1 = torch.empty_like(targets, dtype=torch.bool) if "is_top1" in outputs else None
        with torch.autocast(device, enabled=False):
            for chunk_rows, products in _compute_chunks(hidden, weight, bias, dtype):
                for rows, part_products in _split_chunk(chunk_rows, products):
                    values = transform.values(part_products.to(logp_dtype))
                    log_normalizer[rows] = values.logsumexp(-1)
                    target_values = values.gather(1, targets[rows, None])[:, 0]
                    logp[rows] = target_values - log_normalizer[rows]
                    if is_top1 is not None:
                        is_top1[rows] = values.argmax(-1) == targets[rows]
                    if "entropy" in outputs:
                        p = (values - log_normalizer[rows, None]).exp_()
                        entropy[rows] = log_normalizer[rows] - p.mul_(values).sum(-1)
        ctx.save_for_backward(hidden, weight, bias, targets, log_normalizer, entropy)
        ctx.transform, ctx.dtype = transform, dtype
        ctx.set_materialize_grads(False)
        if is_top1 is not None:
            ctx.mark_non_differentiable(is_top1)
        return logp, entropy if "entropy" in outputs else None, is_top1

    @staticmethod
    def backward(ctx, d_logp, d_entropy, _):
        """Return the gradients of hidden states, weights and bias. With p = softmax(z):

        d log pi / dz = onehot(target) - p,    d entropy / dz = -p (log p + entropy)
        """
        hidden, weight, bias, targets, log_normalizer, entropy = ctx.saved_tensors
        sum_dtype = log_normalizer.dtype
        d_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        d_weight = torch.zeros_like(weight, dtype=sum_dtype) if ctx.needs_input_grad[1] else None
        d_bias = torch.zeros_like(bias, dtype=sum_dtype) if ctx.needs_input_grad[2] else None
        vocabulary_weights = weight.to(ctx.dtype)
        for chunk_rows, products in _compute_chunks(hidden, vocabulary_weights, bias, ctx.dtype):
            for rows, part_products in _split_chunk(chunk_rows, products):
                values = ctx.transform.values(part_products.to(sum_dtype))
                slopes = ctx.transform.slopes(values)
                log_p = values.sub_(log_normalizer[rows, None])
                p = log_p.exp()
                d_values = torch.zeros_like(p) if d_logp is None else p * -d_logp[rows, None]
                if d_entropy is not None:
                    log_p.add_(entropy[rows, None]).mul_(p)  # p (log p + entropy), in place
                    d_values.sub_(log_p.mul_(d_entropy[rows, None]))
                if d_logp is not None:
                    d_values.scatter_add_(1, targets[rows, None], d_logp[rows, None])
                # A part is a view of `products`, which thus becomes the gradient of the products.
                part_products.copy_(d_values.mul_(slopes))
            if d_hidden is not None:
                d_hidden[chunk_rows] = products @ vocabulary_weights
            if d_weight is not None:
                _add_product(d_weight, products.t(), hidden[chunk_rows].to(ctx.dtype))
            if d_bias is not None:
                d_bias += products.sum(0, dtype=d_bias.dtype)
        d_weight, d_bias = (
            None if gradient is None else gradient.to(parameter.dtype)
            for gradient, parameter in ((d_weight, weight), (d_bias, bias))
        )
        return d_hidden, d_weight, d_bias, None, None, None


def _compute_chunks(hidden, weight, bias, dtype) -> Iterator[tuple[slice, Tensor]]:
    """Yield the rows of each chunk, and hidden states times weights plus bias for them, (n, V)."""
    transposed = weight.to(dtype).t()
    size = _compute_chunk_size(dtype, len(weight))
    for start in range(0, len(hidden), size):
        products = hidden[start : start + size].to(dtype) @ transposed
        yield slice(start, start + size), products if bias is None else products.add_(bias)


def _compute_chunk_size(dtype: torch.dtype, vocabulary_size: int) -> int:
    return max(1, CHUNK_BYTES // (vocabulary_size * dtype.itemsize))


def _split_chunk(chunk_rows: slice, products: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield the rows of each part of a chunk, as a slice of all N rows, and their products."""
    size = max(1, PART_LOGITS // products.size(1))
    for number, part in enumerate(products.split(size)):
        first = chunk_rows.start + number * size
        yield slice(first, first + len(part)), part


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a @ b to `total` in place; `total` may have a higher precision than a and b."""
    if total.dtype == a.dtype:
        total.addmm_(a, b)
        return
    for start in range(0, len(total), SLICE_ROWS):
        total[start : start + SLICE_ROWS] += a[start : start + SLICE_ROWS] @ b
