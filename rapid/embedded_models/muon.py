"""The optimizer for pre-training embedded models: Muon for matrices, AdamW for everything else.

Muon (K. Jordan, 2024) replaces the singular values of a matrix's momentum by values near 1, and
moves the matrix in that direction. `torch.optim.Muon` computes the direction in bfloat16. On a CPU
without instructions for bfloat16 (AVX2 only), this took four fifths of the time of pre-training. So
the direction is computed in float32 here.
"""

import torch
from torch import Tensor

MOMENTUM = 0.95  # decay of Muon's momentum per step
# Typical root mean square of the entries of AdamW's step, divided by the learning rate. Muon's
# steps are scaled to it, so that both can have the same learning rate.
ADAMW_STEP_SIZE = 0.2
BETAS = 0.9, 0.98  # decay of AdamW's first and second moments
# Coefficients a, b, c of x -> ax + bx^3 + cx^5, and how many times this function is applied to
# singular values in (0, 1], which brings them near 1.
NEWTON_SCHULZ_COEFFICIENTS, NEWTON_SCHULZ_STEPS = (3.4445, -4.7750, 2.0315), 5


class MuonAndAdamW(torch.optim.AdamW):
    """Muon for matrices, (A, B) each, and AdamW for other parameters, with one learning rate."""

    def __init__(
        self, matrices: list[Tensor], other_parameters: list[Tensor], learning_rate: float
    ):
        groups = [
            {"params": matrices, "muon": True},
            {"params": other_parameters, "muon": False},
        ]
        super().__init__(groups, lr=learning_rate, betas=BETAS, weight_decay=0.0)

    @torch.no_grad()
    def step(self, closure=None):
        """Take a step with Muon, then one with AdamW.

        The gradients of matrices are set to None, so that AdamW skips them.
        """
        for group in self.param_groups:
            for weight in group["params"] if group["muon"] else ():
                momentum = self.state[weight].setdefault("momentum", torch.zeros_like(weight))
                momentum.lerp_(weight.grad, 1 - MOMENTUM)
                # Nesterov momentum: the gradient is mixed in once more.
                direction = orthogonalize(weight.grad.lerp(momentum, MOMENTUM))
                # The entries of `direction` have a root mean square of 1 / sqrt(max(A, B)).
                step_size = group["lr"] * ADAMW_STEP_SIZE * max(weight.shape) ** 0.5
                weight.sub_(direction, alpha=step_size)
                weight.grad = None
        return super().step(closure)


def orthogonalize(matrix: Tensor) -> Tensor:
    """Return a matrix, (A, B), with the same singular vectors, and singular values near 1.

    The new singular values are between 0.68 and 1.21. But a singular value that was below 1/500 of
    the matrix's norm may become smaller than 0.68.
    """
    wide = matrix if matrix.size(0) <= matrix.size(1) else matrix.T
    wide = wide / wide.norm().clamp(min=1e-7)
    a, b, c = NEWTON_SCHULZ_COEFFICIENTS
    for _ in range(NEWTON_SCHULZ_STEPS):
        square = wide @ wide.T
        polynomial = torch.addmm(square, square, square, beta=b, alpha=c)
        wide = torch.addmm(wide, polynomial, wide, beta=a)
    return wide if matrix.size(0) <= matrix.size(1) else wide.T
