"""Every RL algorithm of the registry trains off-policy too, with the parameters that it has by default."""

import pytest
import torch

from rapid.algorithms import ALGORITHMS
from tests.training import loops

LEARNING = [name for name, one in ALGORITHMS.items() if not one.imitates]


@pytest.mark.parametrize("name", LEARNING)
def test_it_moves_the_weights(name, toy_model, tmp_path, monkeypatch):
    h = 2 if ALGORITHMS[name].H == "required" else 1
    monkeypatch.setitem(loops.OBJECTIVES, name, {"objective": name, "H": h})
    trainer = loops.build(toy_model, tmp_path, name, max_steps=2)
    before = loops.weights(trainer)
    trainer.train()
    after = loops.weights(trainer)
    assert torch.isfinite(after).all()
    assert not torch.equal(before, after)
