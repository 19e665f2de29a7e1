"""The optimizer that makes the embedded models: Muon for matrices, AdamW for all else.

Muon (K. Jordan, 2024) moves a matrix along its momentum, whose singular values it first brings near
1. `torch.optim.Muon` does this in bfloat16, which a processor that only has AVX2 computes so slowly
that it took four fifths of pre-training. Here it is float32.
"""

import torch
from torch import Tensor

MOMENTUM = 0.95
ADAMW_STEP_SIZE = 0.2  # the usual size of an entry of AdamW's step, in learning rates
BETAS = 0.9, 0.98  # of AdamW
# Of x -> ax + bx^3 + cx^5, applied five times: what is in (0, 1] comes near 1, the small ones fast.
NEWTON_SCHULZ_COEFFICIENTS, NEWTON_SCHULZ_STEPS = (3.4445, -4.7750, 2.0315), 5


class MuonAndAdamW(torch.optim.AdamW):
    """Muon for `matrices`, (A, B) each, and AdamW for the rest; one learning rate for both."""

    def __init__(self, matrices: list[Tensor], rest: list[Tensor], learning_rate: float):
        groups = [{"params": matrices, "muon": True}, {"params": rest, "muon": False}]
        super().__init__(groups, lr=learning_rate, betas=BETAS, weight_decay=0.0)

    @torch.no_grad()
    def step(self, closure=None):
        """Make a step. Matrices have no gradient afterwards: AdamW passes over those without."""
        for group in self.param_groups:
            for weight in group["params"] if group["muon"] else ():
                momentum = self.state[weight].setdefault("momentum", torch.zeros_like(weight))
                momentum.lerp_(weight.grad, 1 - MOMENTUM)
                direction = orthogonal(weight.grad.lerp(momentum, MOMENTUM))
                size = group["lr"] * ADAMW_STEP_SIZE * max(weight.shape) ** 0.5
                weight.sub_(direction, alpha=size)
                weight.grad = None
        return super().step(closure)


def orthogonal(matrix: Tensor) -> Tensor:
    """Return a matrix, (A, B), with the same singular vectors and singular values of 0.68 to 1.21.

    Those below 1/500 of the matrix's norm come out smaller.
    """
    wide = matrix if matrix.size(0) <= matrix.size(1) else matrix.T
    wide = wide / wide.norm().clamp(min=1e-7)
    a, b, c = NEWTON_SCHULZ_COEFFICIENTS
    for _ in range(NEWTON_SCHULZ_STEPS):
        square = wide @ wide.T
        polynomial = torch.addmm(square, square, square, beta=b, alpha=c)
        wide = torch.addmm(wide, polynomial, wide, beta=a)
    return wide if matrix.size(0) <= matrix.size(1) else wide.T
