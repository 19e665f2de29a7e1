"""Model FLOPs utilization (MFU) of training: counts FLOPs, and measures the processor's peak."""

import torch
from torch.utils.benchmark import Timer

from rapid.cost.shapes import Shape, parse_shape

# FLOPs on a completion, as a multiple of those of a forward pass: sampling (1), training's forward
# pass (1) and backward pass (2).
FORWARD_PASSES = 1 + 1 + 2
REPEATS = 5  # measurements of the peak, of which the fastest counts


def count_flops(trainer) -> float:
    """Return the FLOPs of sampling each recorded completion, and of training on it once.

    The count does not depend on the trainer: it includes FLOPs that a trainer skips, and excludes
    FLOPs that it repeats.
    """
    reward = trainer.reward_funcs[0]  # a `RecordingReward`
    shape = parse_shape(trainer.model.config.to_dict(), "the model's config")
    prompts = map(len, trainer.processing_class(reward.prompts)["input_ids"])
    lengths = zip(prompts, reward.lengths, strict=True)
    return FORWARD_PASSES * sum(count_forward_flops(shape, *pair) for pair in lengths)


def count_forward_flops(shape: Shape, prompt: int, completion: int) -> float:
    """Return the FLOPs of a forward pass on a sequence; a multiply-add has two.

    The output layer runs on the completion's tokens only. Attention is causal.

    Args:
        prompt, completion: numbers of tokens.
    """
    output_weights = shape.vocabulary * shape.hidden
    total = prompt + completion
    # Multiply-adds of attention: the scores and the weighted sums of values. Each token attends to
    # itself and those before.
    attention = 2 * shape.layers * shape.query_width * total * (total + 1) / 2
    return 2 * (
        (shape.matmul_weights - output_weights) * total + output_weights * completion + attention
    )


def measure_peak_flops_per_second(device: torch.device, bf16: bool) -> float:
    """Measure the FLOP/s of a large matrix product."""
    # On a CPU the matrices are small, because CPUs without bfloat16 instructions are very slow.
    size = 8192 if device.type == "cuda" else 128
    values = torch.randn(2, size, size, device=device, dtype=torch.bfloat16 if bf16 else None)
    product = Timer("x @ y", globals=dict(zip("xy", values, strict=True)))
    return 2 * size**3 / min(product.timeit(10).mean for _ in range(REPEATS))
