"""Measures how well a training loop uses the processor: counted operations, and the peak rate."""

import torch
from torch.utils.benchmark import Timer

from rapid.cost.shapes import Shape, parse_shape

# The operations on a completion as a multiple of its forward pass: sampling (1), training's forward
# pass (1) and backward pass (2).
FORWARD_PASSES = 1 + 1 + 2
REPEATS = 5  # of the measurement of the peak rate, of which the fastest counts


def count_operations(trainer) -> float:
    """Return the operations for sampling and training once on each recorded completion.

    The count does not depend on the trainer: operations that a trainer skips are included, and
    operations that it repeats are not.
    """
    reward = trainer.reward_funcs[0]
    shape = parse_shape(trainer.model.config.to_dict(), "the model's config")
    prompts = map(len, trainer.processing_class(reward.prompts)["input_ids"])
    lengths = zip(prompts, reward.lengths, strict=True)
    return FORWARD_PASSES * sum(count_forward(shape, *pair) for pair in lengths)


def count_forward(shape: Shape, prompt: int, completion: int) -> float:
    """Return the operations of one sequence's forward pass, 2 for each multiply-add.

    The output layer is counted for the completion's tokens only. Attention is causal.

    Args:
        prompt, completion: numbers of tokens.
    """
    head = shape.vocabulary * shape.hidden
    total = prompt + completion
    # The attention scores and the weighted sum of values, of each token with itself and all before.
    attention = 2 * shape.layers * shape.query_width * total * (total + 1) / 2
    return 2 * ((shape.matmul_weights - head) * total + head * completion + attention)


def measure_peak_rate(device: torch.device, bf16: bool) -> float:
    """Measure the operations per second of one large matrix product."""
    # On a CPU the matrices are small, because CPUs without bfloat16 instructions are very slow.
    size = 8192 if device.type == "cuda" else 128
    values = torch.randn(2, size, size, device=device, dtype=torch.bfloat16 if bf16 else None)
    product = Timer("x @ y", globals=dict(zip("xy", values, strict=True)))
    return 2 * size**3 / min(product.timeit(10).mean for _ in range(REPEATS))
