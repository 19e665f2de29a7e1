"""No saving changes what is learned: the parameters after 8 optimizer steps are the plain loop's."""

from itertools import pairwise

import torch

from rapid.training.clock import PhaseClock
from tests.training.loops import (
    ALL_SAVINGS,
    NO_SAVINGS,
    SAVINGS,
    assert_same_learning,
    build_rapid_trainer,
    get_initial_weights,
    get_weights,
    train_rapid,
)


def test_all_savings_learn_what_the_plain_loop_learns(toy_model, tmp_path):
    """Of what is sampled; of what is scripted, test_ungraded.py holds each against an oracle."""
    plain = train_rapid(toy_model, tmp_path, "rapid", **NO_SAVINGS)
    saved = train_rapid(toy_model, tmp_path, "rapid", **ALL_SAVINGS)
    assert saved.state.global_step == 8
    assert_same_learning(get_weights(saved), get_weights(plain), get_initial_weights(toy_model))


def tokens_run(trainer_model) -> list[int]:
    """Collects the size of the inputs of each forward pass with gradient."""
    sizes: list[int] = []

    def count(module, args, kwargs):
        if torch.is_grad_enabled():
            sizes.append(kwargs["input_ids"].numel())

    trainer_model.register_forward_pre_hook(count, with_kwargs=True)
    return sizes


def test_the_reference_runs_what_the_policy_learns_from(toy_model, tmp_path):
    trainer, reference_tokens = build_rapid_trainer(toy_model, tmp_path, "grpo", **ALL_SAVINGS), []
    trainer.clock = PhaseClock(
        lambda: len(reference_tokens)
    )  # each of its forward passes takes a second
    policy_tokens = tokens_run(trainer.model.model)
    trainer.ref_model.model.register_forward_pre_hook(
        lambda module, args, kwargs: reference_tokens.append(kwargs["input_ids"].numel()),
        with_kwargs=True,
    )
    trainer.train()
    assert policy_tokens and sorted(reference_tokens) == sorted(policy_tokens)
    seconds = {name: value for name, value in trainer.clock.seconds.items() if value}
    assert seconds == {"backpropagation": len(reference_tokens)}


def test_savings_save_tokens(toy_model, tmp_path):
    settings, sizes = {**NO_SAVINGS, "max_steps": 4}, []
    for saving in ({}, *map(SAVINGS.get, ("skip_zero_groups", "pack", "share_prefill"))):
        settings |= saving
        trainer = build_rapid_trainer(toy_model, tmp_path, "rapid", **settings)
        tokens = tokens_run(trainer.model.model)
        trainer.train()
        sizes.append(sum(tokens))
    assert all(more < 0.9 * fewer for fewer, more in pairwise(sizes))


def test_a_step_without_anything_to_learn_from_still_moves_the_momentum(toy_model, tmp_path):
    """Groups are all right or all wrong in turn: what is skipped must not stop Adam."""

    def reward(prompts, completions, **_):
        return [
            float(sum(map(ord, text)) % 2) * (len(prompt) % 2)
            for prompt, text in zip(prompts, completions, strict=True)
        ]

    small = {"optim": "adamw_torch", "learning_rate": 1e-4, "n_step": 4, "micro_batch_size": 4}
    kept, skipped = (
        train_rapid(
            toy_model, tmp_path, "rapid", reward, **NO_SAVINGS | small | {"skip_zero_groups": skip}
        )
        for skip in (False, True)
    )
    share = [row["rapid/run"] for row in skipped.state.log_history if "rapid/run" in row]
    assert 0 in share[1:] and max(share) == 1
    assert_same_learning(get_weights(skipped), get_weights(kept), get_initial_weights(toy_model))
