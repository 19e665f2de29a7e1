"""A group with an ungraded completion contributes nothing to gradients and means.

The oracle does not use the trainer: it makes one forward pass of all graded groups of the sampled
completions, and takes steps of plain SGD. N stays the size of the whole mini-batch.
"""

import itertools
import math

import pytest
import torch
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer

from rapid.algorithms import dapo_loss, grpo_loss, pg_loss, rapid_loss
from rapid.training.batches import FORWARD_COLUMNS
from tests.training.loops import (
    ALL_SAVINGS,
    COMMON,
    NO_SAVINGS,
    ScriptedTrainer,
    assert_same_learning,
    compute_logps,
    get_initial_weights,
    get_weights,
    logged_values,
    make_trainer,
    partial_reward,
    take_sgd_step,
    train_rapid,
)

GROUP_SIZE, RATE = 4, 0.05
# Every setting of a loss, with a value that changes these steps.
LOOPS = {
    "rapid-H1": {"objective": "rapid", "H": 1},
    "rapid": {"objective": "rapid"},
    "eta": {"objective": "rapid", "eta": 0.5},
    "clip": {"objective": "rapid", "eta": 0.5, "clip": "both"},
    "nowhere": {"objective": "rapid", "eta": 0.5, "clip": "nowhere"},
    "others": {"objective": "rapid", "baseline": "others"},
    "none": {"objective": "rapid", "baseline": "none"},
    "unweighted": {"objective": "rapid", "weighted": False},
    "pg": {"objective": "pg"},
    "grpo": {"objective": "grpo", "beta": 0.0, "epsilon": 0.01},
    "kl": {"objective": "grpo", "beta": 2.0, "epsilon": 0.01},
    "dapo": {"objective": "dapo", "epsilon": 0.01, "epsilon_high": 0.02},
}


def compute_loss(settings, logp, behavior_logp, reference_logp, batch, share, token_share):
    mask, rewards = batch["completion_mask"], batch["known_rewards"]
    loss_settings = {
        name: value for name, value in settings.items() if name not in ("objective", "H")
    }
    match settings["objective"]:
        case "rapid":
            loss, _ = rapid_loss(
                logp, behavior_logp, mask, rewards, GROUP_SIZE, **{"eta": 2.0} | loss_settings
            )
        case "pg":
            loss, _ = pg_loss(logp, mask, rewards, GROUP_SIZE)
        case "grpo":
            loss, _ = grpo_loss(
                logp, behavior_logp, reference_logp, mask, rewards, GROUP_SIZE, **loss_settings
            )
        case "dapo":
            loss, _ = dapo_loss(
                logp, behavior_logp, mask, rewards, GROUP_SIZE, *loss_settings.values()
            )
            share = token_share
    return loss * share


def train_by_hand(model, mini_batches, settings) -> torch.Tensor:
    """Return the weights after one step of SGD on the graded groups of each mini-batch."""
    graded_batches = [
        (graded := {name: value[batch["is_graded"]] for name, value in batch.items()})
        | {"mu": compute_logps(model, graded).detach()}
        for batch in mini_batches
    ]
    for mini_batch, batch in zip(mini_batches, graded_batches, strict=True):
        share = len(batch["known_rewards"]) / len(mini_batch["known_rewards"])
        token_share = batch["completion_mask"].sum() / mini_batch["completion_mask"].sum()
        loss = compute_loss(
            settings,
            compute_logps(model, batch),
            batch["mu"],
            batch["mu"],
            batch,
            share,
            token_share,
        )
        take_sgd_step(model, loss, RATE)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def reward(prompts, completions, **_):
    """Return partial_reward, but 1 for some prompts, whose groups then have equal rewards."""
    return [
        1.0 if prompt.endswith(("1", "8")) else value
        for prompt, value in zip(prompts, partial_reward(prompts, completions), strict=True)
    ]


@pytest.mark.parametrize(
    ("loop", "savings"),
    [
        *((loop, ALL_SAVINGS) for loop in LOOPS),
        *((loop, NO_SAVINGS) for loop in ("rapid", "kl", "dapo")),
    ],
    ids=[*LOOPS, "plain rapid", "plain kl", "plain dapo"],
)
def test_gradient_sums_graded_groups_over_whole_mini_batch_size(toy_model, tmp_path, loop, savings):
    settings = {"H": 2} | LOOPS[loop]
    batches = []

    class BatchRecorder(ScriptedTrainer):
        def _sample_batch(self, inputs):
            batches.append(super()._sample_batch(inputs))
            return batches[-1]

    sizes = {"n_step": 32, "max_steps": settings["H"], "learning_rate": RATE}
    trainer = train_rapid(
        toy_model,
        tmp_path,
        reward=reward,
        trainer_class=BatchRecorder,
        **savings | settings | sizes,
    )
    (batch,) = batches
    batch = {name: batch[name] for name in FORWARD_COLUMNS}
    completions, prompts = (
        trainer.processing_class.batch_decode(ids, skip_special_tokens=True)
        for ids in (batch["completion_ids"], batch["prompt_ids"])
    )
    known_rewards = [math.nan if value is None else value for value in reward(prompts, completions)]
    batch["known_rewards"] = torch.tensor(known_rewards, dtype=torch.float64)
    is_group_graded = ~batch["known_rewards"].view(-1, GROUP_SIZE).isnan().any(1)
    batch["is_graded"] = is_group_graded.repeat_interleave(GROUP_SIZE)
    assert 0 < batch["is_graded"].sum() < len(batch["is_graded"])
    first_step = batch["known_rewards"][: len(batch["known_rewards"]) // settings["H"]]
    assert (first_step.view(-1, GROUP_SIZE) == 1).all(1).any()  # skipped if eta >= 1
    size = len(batch["is_graded"]) // settings["H"]
    parts = [
        {name: value[first : first + size] for name, value in batch.items()}
        for first in range(0, len(batch["is_graded"]), size)
    ]
    model = AutoModelForCausalLM.from_pretrained(toy_model, dtype=torch.float64)
    expected = train_by_hand(model, parts, settings)
    assert_same_learning(get_weights(trainer), expected, get_initial_weights(toy_model))


def test_ungraded_groups_are_in_no_mean(toy_model, tmp_path):
    """Graded prompts have rewards of 1, so that ungraded ones would lower a mean."""

    def reward(prompts, completions, **_):
        return [None if prompt.endswith("3") else 1.0 for prompt in prompts]

    trainer = train_rapid(toy_model, tmp_path, "rapid", reward, **NO_SAVINGS)
    log = [row for row in trainer.state.log_history if "rapid/graded" in row]
    assert len(log) == 8
    assert min(row["rapid/graded"] for row in log) < 1
    assert {row["rapid/accuracy"] for row in log} == {1.0}
    assert {row["rapid/signal"] for row in log} == {0.0}


@pytest.mark.parametrize(
    ("rewards", "workers"), [((1, 1, 1, None), 0), ((0, None, 0, None), 1), ((None,) * 4, 1)]
)
def test_equal_graded_rewards_have_no_gradient_as_in_trl(toy_model, tmp_path, rewards, workers):
    places = itertools.count()

    def reward(prompts, **_):
        return [rewards[next(places) % GROUP_SIZE] for _ in prompts]

    steps = {"per_device_train_batch_size": 16, "max_steps": 1, "learning_rate": RATE}
    settings = COMMON | steps | {"loss_type": "grpo", "max_completion_length": 6}
    config = GRPOConfig(str(tmp_path), **settings)
    trl_trainer = make_trainer(GRPOTrainer, config, toy_model, reward)
    trl_trainer.train()
    sizes = {"H": 1, "max_steps": 1, "grading_workers": workers}
    rapid_trainer = train_rapid(toy_model, tmp_path, "grpo", reward, beta=0.0, **NO_SAVINGS | sizes)
    for trainer in (trl_trainer, rapid_trainer):
        assert logged_values(trainer, "grad_norm") == [0.0]
    assert torch.equal(get_weights(trl_trainer), get_weights(rapid_trainer))


def test_warning_once_if_nothing_was_graded(toy_model, tmp_path, caplog):
    def reward(completions, trainer_state, **_):
        return [None if trainer_state.global_step else 1.0] * len(completions)

    train_rapid(toy_model, tmp_path, "pg", reward, max_steps=3)
    (message,) = [text for text in caplog.messages if "graded" in text]
    assert message.startswith(
        "step 2: each group of the 16 completions has one that was not graded, so nothing is learned "
        "from them. The first is a completion of the prompt '"
    )


def test_dapo_resamples_ungraded_groups(toy_model, tmp_path):
    one_round, many_rounds = (
        train_rapid(
            toy_model,
            tmp_path,
            "dapo",
            "partial_reward",
            dynamic_sampling_rounds=rounds,
            max_steps=4,
        )
        for rounds in (1, 20)
    )
    assert min(logged_values(one_round, "rapid/graded")) < 1
    assert logged_values(many_rounds, "rapid/graded") == [1] * 4
