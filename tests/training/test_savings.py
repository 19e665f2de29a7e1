"""No saving changes what is learned: the parameters after 20 optimizer steps are the plain loop's.

Models are float64, log-probabilities float32 as TRL takes them: 2e-6 is their rounding over 20
steps.
"""

import pytest
import torch

from tests.training.loops import PLAIN, SAVINGS, build, run, weights

TOLERANCE = 2e-6


@pytest.fixture(scope="module")
def plain(toy_model, tmp_path_factory):
    runs = {}

    def of(objective):
        if objective not in runs:
            runs[objective] = run(toy_model, tmp_path_factory.mktemp("plain"), objective, **PLAIN)
        return runs[objective]

    return of


@pytest.mark.parametrize(
    ("objective", "saving"),
    [("rapid", saving) for saving in SAVINGS]
    + [(objective, "all") for objective in ("rapid", "grpo", "dapo", "pg")],
)
def test_the_same_parameters_as_the_plain_loop(toy_model, tmp_path, plain, objective, saving):
    settings = (
        SAVINGS[saving]
        if saving != "all"
        else {k: v for s in SAVINGS.values() for k, v in s.items()}
    )
    saved = run(toy_model, tmp_path, objective, **PLAIN | settings)
    assert saved.state.global_step == 20
    torch.testing.assert_close(weights(saved), weights(plain(objective)), rtol=0, atol=TOLERANCE)


def test_the_plain_loop_learns_something_to_compare(toy_model, plain):
    from transformers import AutoModelForCausalLM

    start = AutoModelForCausalLM.from_pretrained(toy_model, dtype=torch.float64)
    moved = weights(plain("rapid")) - torch.cat([p.flatten() for p in start.parameters()])
    assert moved.abs().max() > 1000 * TOLERANCE


def tokens_run(trainer_model) -> list[int]:
    """Collects the size of the inputs of each forward pass with gradient."""
    sizes: list[int] = []

    def count(module, args, kwargs):
        if torch.is_grad_enabled():
            sizes.append(kwargs["input_ids"].numel())

    trainer_model.register_forward_pre_hook(count, with_kwargs=True)
    return sizes


@pytest.mark.parametrize("saving", ["skip_zero_groups", "pack", "share_prefill"])
def test_a_saving_saves_tokens(toy_model, tmp_path, saving):
    sizes = {}
    for name, settings in (("plain", {}), ("saved", SAVINGS[saving])):
        trainer = build(toy_model, tmp_path, "rapid", **PLAIN | settings)
        sizes[name] = tokens_run(trainer.model.model)
        trainer.train()
    assert sum(sizes["saved"]) < 0.9 * sum(sizes["plain"])


def test_a_step_without_anything_to_learn_from_still_moves_the_momentum(toy_model, tmp_path):
    """Groups are all right or all wrong in turn: what is skipped must not stop Adam."""

    def reward(prompts, completions, **_):
        return [
            float(sum(map(ord, text)) % 2) * (len(prompt) % 2)
            for prompt, text in zip(prompts, completions, strict=True)
        ]

    small = {"optim": "adamw_torch", "learning_rate": 1e-4, "n_step": 4, "micro_batch_size": 4}
    kept, skipped = (
        run(toy_model, tmp_path, "rapid", reward, **PLAIN | small | {"skip_zero_groups": skip})
        for skip in (False, True)
    )
    share = [row["rapid/run"] for row in skipped.state.log_history if "rapid/run" in row]
    assert 0 in share[1:] and max(share) == 1
    torch.testing.assert_close(weights(skipped), weights(kept), rtol=0, atol=TOLERANCE)
