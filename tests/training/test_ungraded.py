"""A group with a completion that nobody graded is left out, as if it contributed exactly nothing.

The oracle knows nothing of the trainer: it takes the completions that were sampled, makes one
forward pass of all graded groups, and takes the steps of plain SGD. N stays the size of the whole
mini-batch.
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
    ALL,
    COMMON,
    PLAIN,
    ScriptedTrainer,
    assert_learned_alike,
    descend,
    log_pi,
    logged,
    make,
    run,
    sometimes,
    untrained,
    weights,
)

GROUP, RATE = 4, 0.05
# Every setting of a loss, at a value at which it changes these steps.
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


def loss_of(settings, logp, mu, reference, batch, share, token_share):
    mask, rewards = batch["completion_mask"], batch["known"]
    given = {name: value for name, value in settings.items() if name not in ("objective", "H")}
    match settings["objective"]:
        case "rapid":
            loss, _ = rapid_loss(logp, mu, mask, rewards, GROUP, **{"eta": 2.0} | given)
        case "pg":
            loss, _ = pg_loss(logp, mask, rewards, GROUP)
        case "grpo":
            loss, _ = grpo_loss(logp, mu, reference, mask, rewards, GROUP, **given)
        case "dapo":
            loss, _ = dapo_loss(logp, mu, mask, rewards, GROUP, *given.values())
            share = token_share
    return loss * share


def by_hand(model, mini_batches, settings) -> torch.Tensor:
    """The weights after one step of SGD on the graded groups of each mini-batch."""
    start = [
        (kept := {name: value[batch["here"]] for name, value in batch.items()})
        | {"mu": log_pi(model, kept).detach()}
        for batch in mini_batches
    ]
    for whole, batch in zip(mini_batches, start, strict=True):
        share = len(batch["known"]) / len(whole["known"])
        token_share = batch["completion_mask"].sum() / whole["completion_mask"].sum()
        loss = loss_of(
            settings, log_pi(model, batch), batch["mu"], batch["mu"], batch, share, token_share
        )
        descend(model, loss, RATE)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def reward(prompts, completions, **_):
    """As `sometimes`, but of some prompts always 1: equal rewards have a gradient here and there."""
    return [
        1.0 if prompt.endswith(("1", "8")) else found
        for prompt, found in zip(prompts, sometimes(prompts, completions), strict=True)
    ]


@pytest.mark.parametrize(
    ("loop", "savings"),
    [*((loop, ALL) for loop in LOOPS), *((loop, PLAIN) for loop in ("rapid", "kl", "dapo"))],
    ids=[*LOOPS, "plain rapid", "plain kl", "plain dapo"],
)
def test_the_gradient_is_that_of_the_graded_groups_over_the_same_n(
    toy_model, tmp_path, loop, savings
):
    settings = {"H": 2} | LOOPS[loop]
    sampled = []

    class Watched(ScriptedTrainer):
        def _sample(self, inputs):
            sampled.append(super()._sample(inputs))
            return sampled[-1]

    sizes = {"n_step": 32, "max_steps": settings["H"], "learning_rate": RATE}
    trainer = run(toy_model, tmp_path, reward=reward, trainer=Watched, **savings | settings | sizes)
    (batch,) = sampled
    batch = {name: batch[name] for name in FORWARD_COLUMNS}
    completions, prompts = (
        trainer.processing_class.batch_decode(ids, skip_special_tokens=True)
        for ids in (batch["completion_ids"], batch["prompt_ids"])
    )
    found = [math.nan if one is None else one for one in reward(prompts, completions)]
    batch["known"] = torch.tensor(found, dtype=torch.float64)
    batch["here"] = ~batch["known"].view(-1, GROUP).isnan().any(1).repeat_interleave(GROUP)
    assert 0 < batch["here"].sum() < len(batch["here"])
    groups = batch["known"][: len(batch["known"]) // settings["H"]].view(-1, GROUP)
    assert (groups == 1).all(1).any()  # in the first step: skipped where eta >= 1
    size = len(batch["here"]) // settings["H"]
    parts = [
        {name: value[first : first + size] for name, value in batch.items()}
        for first in range(0, len(batch["here"]), size)
    ]
    model = AutoModelForCausalLM.from_pretrained(toy_model, dtype=torch.float64)
    expected = by_hand(model, parts, settings)
    assert_learned_alike(weights(trainer), expected, untrained(toy_model))


def test_a_group_that_is_not_graded_is_in_no_mean(toy_model, tmp_path):
    """Where it is not graded a prompt has rewards of 1 elsewhere, of 0 here."""

    def reward(prompts, completions, **_):
        return [None if prompt.endswith("3") else 1.0 for prompt in prompts]

    trainer = run(toy_model, tmp_path, "rapid", reward, **PLAIN)
    log = [row for row in trainer.state.log_history if "rapid/graded" in row]
    assert len(log) == 8
    assert min(row["rapid/graded"] for row in log) < 1
    assert {row["rapid/accuracy"] for row in log} == {1.0}
    assert {row["rapid/signal"] for row in log} == {0.0}


@pytest.mark.parametrize(
    ("rewards", "workers"), [((1, 1, 1, None), 0), ((0, None, 0, None), 1), ((None,) * 4, 1)]
)
def test_nothing_is_learned_where_the_graded_are_equal_as_in_trl(
    toy_model, tmp_path, rewards, workers
):
    places = itertools.count()

    def reward(prompts, **_):
        return [rewards[next(places) % GROUP] for _ in prompts]

    steps = {"per_device_train_batch_size": 16, "max_steps": 1, "learning_rate": RATE}
    settings = COMMON | steps | {"loss_type": "grpo", "max_completion_length": 6}
    config = GRPOConfig(str(tmp_path), **settings)
    theirs = make(GRPOTrainer, config, toy_model, reward)
    theirs.train()
    sizes = {"H": 1, "max_steps": 1, "grading_workers": workers}
    ours = run(toy_model, tmp_path, "grpo", reward, beta=0.0, **PLAIN | sizes)
    assert logged(theirs, "grad_norm") == logged(ours, "grad_norm") == [0.0]
    assert torch.equal(weights(theirs), weights(ours))


def test_that_nothing_was_graded_is_said_once(toy_model, tmp_path, caplog):
    def reward(completions, trainer_state, **_):
        return [None if trainer_state.global_step else 1.0] * len(completions)

    run(toy_model, tmp_path, "pg", reward, max_steps=3)
    (said,) = [text for text in caplog.messages if "graded" in text]
    assert said.startswith("step 2: none of 16 completions was graded, the first of the prompt '")


def test_a_group_that_is_not_graded_is_sampled_anew_by_dapo(toy_model, tmp_path):
    once, often = (
        run(toy_model, tmp_path, "dapo", "sometimes", dynamic_sampling_rounds=rounds, max_steps=4)
        for rounds in (1, 20)
    )
    assert min(logged(once, "rapid/graded")) < 1
    assert logged(often, "rapid/graded") == [1] * 4
