"""Every RL algorithm of the registry trains with its default parameters."""

import re

import pytest
import torch

from rapid.algorithms import ALGORITHMS
from rapid.artifacts.metrics import METRICS
from tests.conftest import ROOT
from tests.training import loops

METRICS_PAGE = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
RL_ALGORITHMS = [name for name, algorithm in ALGORITHMS.items() if not algorithm.is_supervised]


@pytest.mark.parametrize("name", RL_ALGORITHMS)
def test_algorithm_moves_weights(name, toy_model, tmp_path):
    """It takes two steps, of which the second is off-policy."""
    h = 1 if ALGORITHMS[name].h_in_name == "none" else 2
    trainer = loops.build_rapid_trainer(toy_model, tmp_path, name, H=h, max_steps=2)
    before = loops.get_weights(trainer)
    trainer.train()
    after = loops.get_weights(trainer)
    assert torch.isfinite(after).all()
    assert not torch.equal(before, after)
    logged = {key for row in trainer.state.log_history for key in row if key.startswith("rapid/")}
    assert logged >= {"rapid/entropy", "rapid/graded"}
    # The page's first table is generated from the declared metrics, which have a test of their own.
    documented = {metric.log or f"rapid/{name}" for name, metric in METRICS.items()}
    documented |= set(re.findall(r"^\| `(rapid/\w+)` \|", METRICS_PAGE, re.MULTILINE))
    assert not logged - documented, "list them in docs/reference/metrics.md"


class InfiniteAtPadding(loops.ScriptedTrainer):
    """Its log mu at padding would make importance weights infinite."""

    def _compute_log_pi(self, model, micro_batch):
        logp, entropy = super()._compute_log_pi(model, micro_batch)
        if not torch.is_grad_enabled():
            logp = logp.masked_fill(micro_batch["completion_mask"] == 0, -1e4)
        return logp, entropy


@pytest.mark.parametrize(
    "name", [name for name in RL_ALGORITHMS if ALGORITHMS[name].h_in_name != "none"]
)
def test_values_at_padding_do_not_matter(name, toy_model, tmp_path):
    settings = {"H": 2, "max_steps": 2, "reuse_logp": False}
    reference, padded = (
        loops.train_rapid(toy_model, tmp_path, name, trainer_class=trainer_class, **settings)
        for trainer_class in (loops.ScriptedTrainer, InfiniteAtPadding)
    )
    assert torch.equal(loops.get_weights(reference), loops.get_weights(padded))
