"""Muon against singular value decompositions and torch's own, AdamW against torch's."""

import pytest
import torch

from rapid.embedded_models.muon import MuonAndAdamW, orthogonal

RATE = 0.01


def drawn(*shapes: tuple[int, ...]) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]


@pytest.mark.parametrize("shape", [(8, 8), (6, 20), (20, 6)])
def test_singular_vectors_stay_and_singular_values_come_near_1(shape):
    torch.manual_seed(0)
    matrix = 100 * torch.randn(shape, dtype=torch.float64)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    assert (values / values.norm()).min() > 1 / 500
    found = left.T @ orthogonal(matrix) @ right.T
    assert torch.allclose(found, found.diag().diag(), atol=1e-9)
    assert found.diag().min() > 0.68 and found.diag().max() < 1.21


def test_a_matrix_of_zeros_has_no_direction():
    assert not orthogonal(torch.zeros(3, 4)).any()


def test_matrices_go_where_torch_s_muon_goes():
    """That computes in bfloat16, whose numbers are 0.4 % apart: steps differ by a few of these."""
    torch.manual_seed(0)
    weights = drawn((16, 48), (48, 16))
    copies = [torch.nn.Parameter(weight.detach().clone()) for weight in weights]
    starts = [weight.detach().clone() for weight in weights]
    ours = MuonAndAdamW(weights, [], RATE)
    theirs = torch.optim.Muon(copies, lr=RATE, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        for weight, copy in zip(weights, copies, strict=True):
            weight.grad = torch.randn_like(weight)
            copy.grad = weight.grad.clone()
        ours.step()
        theirs.step()
    for weight, copy, start in zip(weights, copies, starts, strict=True):
        moved, difference = (weight - start).norm(), (weight - copy).norm()
        assert 0 < difference < 0.05 * moved


def test_the_others_go_exactly_where_torch_s_adamw_goes():
    torch.manual_seed(0)
    matrices, others = drawn((4, 4)), drawn((5,), (7, 3))
    copies = [torch.nn.Parameter(weight.detach().clone()) for weight in others]
    ours = MuonAndAdamW(matrices, others, RATE)
    theirs = torch.optim.AdamW(copies, lr=RATE, betas=(0.9, 0.98), weight_decay=0.0)
    for _ in range(3):
        for weight, copy in zip(others, copies, strict=True):
            weight.grad = torch.randn_like(weight)
            copy.grad = weight.grad.clone()
        for matrix in matrices:
            matrix.grad = torch.randn_like(matrix)
        ours.step()
        theirs.step()
    assert all(map(torch.equal, others, copies))
