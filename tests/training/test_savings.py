"""Settings that save time do not change training: weights after 8 steps are the same."""

from itertools import pairwise

import torch

from rapid.training.clock import PhaseClock
from tests.training.loops import (
    ALL_SAVINGS,
    NO_SAVINGS,
    SAVINGS,
    assert_same_training,
    build_rapid_trainer,
    train_rapid,
)


def test_all_savings_learn_same_as_plain_loop(toy_model, tmp_path):
    """Completions are sampled; test_ungraded.py compares scripted ones with an oracle."""
    plain = train_rapid(toy_model, tmp_path, "rapid", **NO_SAVINGS)
    saved = train_rapid(toy_model, tmp_path, "rapid", **ALL_SAVINGS)
    assert saved.state.global_step == 8
    assert_same_training(saved, plain, toy_model)


def record_input_sizes(model) -> list[int]:
    """Return a list that collects the size of the inputs of each forward pass with gradient."""
    sizes: list[int] = []

    def record_size(module, args, kwargs):
        if torch.is_grad_enabled():
            sizes.append(kwargs["input_ids"].numel())

    model.register_forward_pre_hook(record_size, with_kwargs=True)
    return sizes


def test_reference_runs_only_micro_batches_of_policy(toy_model, tmp_path):
    trainer, reference_tokens = build_rapid_trainer(toy_model, tmp_path, "grpo", **ALL_SAVINGS), []
    # Each forward pass of the reference takes a second of this clock.
    trainer.clock = PhaseClock(lambda: len(reference_tokens))
    policy_tokens = record_input_sizes(trainer.model.model)
    trainer.ref_model.model.register_forward_pre_hook(
        lambda module, args, kwargs: reference_tokens.append(kwargs["input_ids"].numel()),
        with_kwargs=True,
    )
    trainer.train()
    assert policy_tokens and sorted(reference_tokens) == sorted(policy_tokens)
    seconds = {name: value for name, value in trainer.clock.seconds.items() if value}
    assert seconds == {"backpropagation": len(reference_tokens)}


def test_each_saving_reduces_tokens(toy_model, tmp_path):
    settings, sizes = {**NO_SAVINGS, "max_steps": 4}, []
    for saving in ({}, *map(SAVINGS.get, ("skip_zero_groups", "pack", "share_prefill"))):
        settings |= saving
        trainer = build_rapid_trainer(toy_model, tmp_path, "rapid", **settings)
        tokens = record_input_sizes(trainer.model.model)
        trainer.train()
        sizes.append(sum(tokens))
    assert all(size < 0.9 * previous for previous, size in pairwise(sizes))


def test_step_with_all_groups_skipped_applies_momentum(toy_model, tmp_path):
    """Groups have equal rewards now and then; skipping all of a step must not stop Adam."""

    def reward(prompts, completions, **_):
        return [
            float(sum(map(ord, text)) % 2) * (len(prompt) % 2)
            for prompt, text in zip(prompts, completions, strict=True)
        ]

    small = {"optim": "adamw_torch", "learning_rate": 1e-4, "n_step": 4, "micro_batch_size": 4}
    not_skipped, skipped = (
        train_rapid(
            toy_model, tmp_path, "rapid", reward, **NO_SAVINGS | small | {"skip_zero_groups": skip}
        )
        for skip in (False, True)
    )
    shares = [row["rapid/run"] for row in skipped.state.log_history if "rapid/run" in row]
    assert 0 in shares[1:] and max(shares) == 1
    assert_same_training(skipped, not_skipped, toy_model)
