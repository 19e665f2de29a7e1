"""A batch of completions for tests of losses, and its advantages, computed by plain loops."""

import math

import torch

from rapid.algorithms.base import LossInputs

GROUP_SIZE = 4
LENGTHS = [5, 3, 0, 4, 1, 5, 2, 5, 5, 4, 3, 2]
# Some rewards equal the mean of their group.
REWARDS = [1.0, 0.0, 0.0, 1.0, 0.25, 0.75, 0.5, 0.5, 1.0, 1.0, 1.0, 0.0]


def draw_batch(seed: int) -> LossInputs:
    """Return completions of up to 5 tokens, some with a large change of log-probability."""
    generator = torch.Generator().manual_seed(seed)
    shape = len(LENGTHS), 5
    logp = -0.05 - 3 * torch.rand(shape, generator=generator, dtype=torch.float64)
    scale = 1 + 3 * (torch.rand(shape, generator=generator) < 0.3)
    change = 0.4 * scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    behavior_logp = (logp - change).clamp(max=-0.01)
    mask = (torch.arange(5) < torch.tensor(LENGTHS)[:, None]).double()
    rewards = torch.tensor(REWARDS, dtype=torch.float64)
    return LossInputs(
        logp.requires_grad_(), behavior_logp, behavior_logp, mask, rewards, GROUP_SIZE
    )


def compute_advantages(standardized: bool) -> list[float]:
    advantages = []
    for start in range(0, len(REWARDS), GROUP_SIZE):
        group = REWARDS[start : start + GROUP_SIZE]
        mean = sum(group) / GROUP_SIZE
        std = math.sqrt(sum((r - mean) ** 2 for r in group) / (GROUP_SIZE - 1)) + 1e-4
        advantages += [(r - mean) / (std if standardized else 1) for r in group]
    return advantages
