"""MuonAndAdamW against singular value decompositions and torch's optimizers."""

import pytest
import torch

from rapid.embedded_models.muon import MuonAndAdamW, orthogonalize

RATE = 0.01


def draw_weights(*shapes: tuple[int, ...]) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]


@pytest.mark.parametrize("shape", [(8, 8), (6, 20), (20, 6)])
def test_orthogonalize_keeps_singular_vectors_and_brings_singular_values_near_1(shape):
    torch.manual_seed(0)
    matrix = 100 * torch.randn(shape, dtype=torch.float64)
    left_vectors, values, right_vectors = torch.linalg.svd(matrix, full_matrices=False)
    assert (values / values.norm()).min() > 1 / 500
    diagonalized = left_vectors.T @ orthogonalize(matrix) @ right_vectors.T
    assert torch.allclose(diagonalized, diagonalized.diag().diag(), atol=1e-9)
    assert diagonalized.diag().min() > 0.68 and diagonalized.diag().max() < 1.21


def test_zero_matrix_stays_zero():
    assert not orthogonalize(torch.zeros(3, 4)).any()


def test_matrices_follow_torch_muon():
    """torch.optim.Muon computes in bfloat16, whose rounding errors are up to 0.4 %."""
    torch.manual_seed(0)
    weights = draw_weights((16, 48), (48, 16))
    copies = [torch.nn.Parameter(weight.detach().clone()) for weight in weights]
    starts = [weight.detach().clone() for weight in weights]
    optimizer = MuonAndAdamW(weights, [], RATE)
    torch_optimizer = torch.optim.Muon(
        copies, lr=RATE, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"
    )
    for _ in range(3):
        for weight, copy in zip(weights, copies, strict=True):
            weight.grad = torch.randn_like(weight)
            copy.grad = weight.grad.clone()
        optimizer.step()
        torch_optimizer.step()
    for weight, copy, start in zip(weights, copies, starts, strict=True):
        step_norm, difference = (weight - start).norm(), (weight - copy).norm()
        assert 0 < difference < 0.05 * step_norm


def test_vectors_follow_torch_adamw_exactly():
    torch.manual_seed(0)
    matrices, vectors = draw_weights((4, 4)), draw_weights((5,), (7, 3))
    copies = [torch.nn.Parameter(weight.detach().clone()) for weight in vectors]
    optimizer = MuonAndAdamW(matrices, vectors, RATE)
    torch_optimizer = torch.optim.AdamW(copies, lr=RATE, betas=(0.9, 0.98), weight_decay=0.0)
    for _ in range(3):
        for weight, copy in zip(vectors, copies, strict=True):
            weight.grad = torch.randn_like(weight)
            copy.grad = weight.grad.clone()
        for matrix in matrices:
            matrix.grad = torch.randn_like(matrix)
        optimizer.step()
        torch_optimizer.step()
    assert all(map(torch.equal, vectors, copies))
