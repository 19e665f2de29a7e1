"""Utilization of the processor by a training loop: operations counted, beside its rate."""

import torch
from torch.utils.benchmark import Timer

from rapid.cost.shapes import Shape, from_values

# Of sampling, and of a forward and a backward pass; the latter multiplies twice as much.
FORWARD_PASSES = 1 + 1 + 2
REPEATS = 5


def count_operations(trainer) -> float:
    """Return the operations to sample and to train on each completion that was sampled last, once.

    What a trainer leaves out of that counts too, what it adds does not.
    """
    reward = trainer.reward_funcs[0]
    shape = from_values(trainer.model.config.to_dict(), "the model's config")
    prompts = map(len, trainer.processing_class(reward.prompts)["input_ids"])
    lengths = zip(prompts, reward.lengths, strict=True)
    return FORWARD_PASSES * sum(count_forward(shape, *pair) for pair in lengths)


def count_forward(shape: Shape, prompt: int, completion: int) -> float:
    """Return the operations of one sequence's forward pass, 2 for each multiply-add.

    The output layer is needed for the completion's tokens only. Attention is causal.
    """
    head = shape.vocabulary * shape.hidden
    total = prompt + completion
    # Scores, and weighted values, of each token with itself and those before it.
    attention = 2 * shape.layers * shape.query_width * total * (total + 1) / 2
    return 2 * ((shape.multiplied - head) * total + head * completion + attention)


def measure_peak_rate(device: torch.device, bf16: bool) -> float:
    """Return the operations per second of one large product of matrices."""
    size = 8192 if device.type == "cuda" else 128  # some CPUs have no bfloat16
    values = torch.randn(2, size, size, device=device, dtype=torch.bfloat16 if bf16 else None)
    product = Timer("x @ y", globals=dict(zip("xy", values, strict=True)))
    return 2 * size**3 / min(product.timeit(10).mean for _ in range(REPEATS))
