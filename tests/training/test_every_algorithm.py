"""Every RL algorithm of the registry trains with the parameters that it has by default."""

import pytest
import torch

from rapid.algorithms import ALGORITHMS
from tests.training import loops

LEARNING = [name for name, one in ALGORITHMS.items() if not one.imitates]


@pytest.mark.parametrize("name", LEARNING)
def test_it_moves_the_weights(name, toy_model, tmp_path):
    """In two steps, the second of them off-policy."""
    h = 1 if ALGORITHMS[name].H == "none" else 2
    trainer = loops.build(toy_model, tmp_path, name, H=h, max_steps=2)
    before = loops.weights(trainer)
    trainer.train()
    after = loops.weights(trainer)
    assert torch.isfinite(after).all()
    assert not torch.equal(before, after)


class InfiniteAtPadding(loops.ScriptedTrainer):
    """Its log mu is such at padding that a ratio there is infinite."""

    def _log_pi(self, model, micro_batch):
        logp, entropy = super()._log_pi(model, micro_batch)
        if not torch.is_grad_enabled():
            logp = logp.masked_fill(micro_batch["completion_mask"] == 0, -1e4)
        return logp, entropy


@pytest.mark.parametrize("name", [one for one in LEARNING if ALGORITHMS[one].H != "none"])
def test_what_stands_at_padding_is_not_looked_at(name, toy_model, tmp_path):
    settings = {"H": 2, "max_steps": 2, "reuse_logp": False}
    one, other = (
        loops.run(toy_model, tmp_path, name, trainer=kind, **settings)
        for kind in (loops.ScriptedTrainer, InfiniteAtPadding)
    )
    assert torch.equal(loops.weights(one), loops.weights(other))


class Recording(loops.Recorded, loops.ScriptedTrainer):
    pass


def test_one_step_of_an_inference_batch_is_the_mean_of_h_steps(toy_model, tmp_path):
    """`pg,n_step=16` samples what `pg-H4` samples with N_step = 4, and takes one step for its four.

    So its gradient is the mean of theirs, as long as none of them moves the policy.
    """
    settings = {"trainer": Recording, "learning_rate": 0.0, "micro_batch_size": 4}
    one, four = (
        loops.run(toy_model, tmp_path, "pg", H=h, n_step=16 // h, max_steps=h, **settings)
        for h in (1, 4)
    )
    assert one._tokens == four._tokens > 0
    found, expected = one.gradients[0], torch.stack(four.gradients).mean(0)
    assert len(four.gradients) == 4
    assert (found - expected).norm() <= loops.ROUNDING * expected.norm() > 0
